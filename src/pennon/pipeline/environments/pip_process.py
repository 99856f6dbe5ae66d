"""The program that runs pip: a process that cannot start others.

``--only-binary`` is not enough: it does not hold for a package that is named by its URL, and a wheel's own metadata may
name one. Whatever pip builds from source or fetches from version control, it does in a process that it starts. So none
can be started here, and only wheels, of which nothing is run, can be installed.

It is run by its path, in a Python that imports nothing of Pennon.
"""

from __future__ import annotations

import runpy
import sys

_STARTS = frozenset(
    ["os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "subprocess.Popen"]
)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        shown = str(arguments[:2])[:200]
        raise PermissionError(f"only wheels can be installed: a process was to be started, to build or fetch: {shown}")


if __name__ == "__main__":
    sys.addaudithook(_refuse)
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
