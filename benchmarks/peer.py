"""Serve a folder with pylance's own REST server: the peer that Pennon is measured against."""

from __future__ import annotations

import signal
import sys

from lance.namespace import RestAdapter


def main() -> None:
    """Serve the folder named on the command line until SIGTERM."""
    properties = {"root": sys.argv[1], "table_version_tracking_enabled": "true"}
    adapter = RestAdapter("dir", properties, port=0)
    adapter.start()
    print(f"The peer is listening on http://127.0.0.1:{adapter.port}", flush=True)
    # The server runs on threads of its own: this one only has to wait.
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    adapter.stop()


if __name__ == "__main__":
    # Blocked before any thread starts, so that every thread inherits the mask and sigwait gets the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
