"""``python -m tests.support.inheriting_server serve …``: the real server, as where processes cannot share a port."""

from __future__ import annotations

from pennon.cli.main import main
from pennon.server import supervisor


def start() -> None:
    """Run the command line, with a supervisor that hands its own socket to its processes."""
    vars(supervisor)["can_share_port"] = lambda: False
    main()


if __name__ == "__main__":
    start()
