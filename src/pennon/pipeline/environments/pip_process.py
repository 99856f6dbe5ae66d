"""Runs pip in a process that cannot start other processes.

``--only-binary`` is not enough: it does not apply to a package that is named by its URL, and the metadata of a wheel
may name one. pip starts a process for every build from source and for every download from version control. Without
processes, it can install wheels only, which run no code.

This program is started by its path, in a Python that imports nothing of Pennon.
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
        raise PermissionError(
            f"only wheels can be installed; pip tried to start a process to build or download a package: {shown}"
        )


if __name__ == "__main__":
    sys.addaudithook(_refuse)
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
