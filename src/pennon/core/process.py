"""What a process asks of the operating system, with a fallback where only Linux offers it.

Linux ends a child when its parent dies and enforces a limit on the address space of a process. macOS does neither, so
a thread of the process watches there and ends it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time

#: What a child process writes to standard output once it is ready.
READY = b"ready\n"
_PR_SET_PDEATHSIG = 1
_PARENT_POLL_SECONDS = 0.5
_MEMORY_POLL_SECONDS = 0.05


def exit_with_parent(parent: int) -> None:
    """End this process when the process that started it dies, even by SIGKILL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), name="pennon-parent", daemon=True).start()
    if os.getppid() != parent:  # it died before the lines above
        sys.exit(1)


def limit_memory(most_bytes: int) -> None:
    """Limit the memory of this process, and let it leave no core file.

    On Linux an allocation beyond the limit on the address space fails. Elsewhere the limit holds for resident memory:
    a thread kills the process when it is exceeded, which a single large allocation can do between two checks.
    """
    _set_limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        _set_limit(resource.RLIMIT_AS, most_bytes)
    else:
        threading.Thread(target=_watch_memory, args=(most_bytes,), name="pennon-memory", daemon=True).start()


def peak_memory_bytes() -> int:
    """Return the most resident memory that this process has had since it started."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, the others kibibytes


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os._exit(1)


def _watch_memory(most_bytes: int) -> None:
    while peak_memory_bytes() <= most_bytes:
        time.sleep(_MEMORY_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _set_limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))
