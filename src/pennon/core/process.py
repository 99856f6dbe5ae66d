"""What a process asks of the operating system, with a fallback where only Linux offers it.

Linux ends a child when its parent dies and enforces a limit on the address space of a process. macOS does neither, so
a thread of the process watches there and ends it.

Query processes have a limit on their address space. API processes have one on the memory that they hold: their address
space says little, because an idle one has 2 GB and each thread adds to it.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: What a child process writes to standard output once it is ready.
READY = b"ready\n"
_PR_SET_PDEATHSIG = 1
_PARENT_POLL_SECONDS = 0.5
_MEMORY_POLL_SECONDS = 0.05
#: The exit code of a process that exceeded its memory limit.
MEMORY_LIMIT_EXIT_CODE = 86
#: The kernel's OOM killer prefers processes with a higher score: queries first, then API processes, then everything
#: else on the machine, such as PostgreSQL and workers.
API_OOM_SCORE, QUERY_OOM_SCORE = 500, 900
#: Resident file pages are left out: the kernel can reclaim them.
_HELD_MEMORY = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
_UNLIMITED_CGROUP_BYTES = 2**60


def omit_centroids() -> None:
    """Have Lance leave the centroids out of an index's statistics; must be called before there are threads.

    As JSON, those of 1,024 partitions of 768 dimensions take 1.8 s and 50 MB; without them, statistics take 11 ms.
    """
    os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")


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


def watch_memory(limit_bytes: int, report: Callable[[int], None]) -> None:
    """End this process when it holds more memory than a limit; ``report`` is called with the bytes held before.

    A thread compares them every 50 ms, so the limit can be exceeded by what is allocated in that time.
    """
    threading.Thread(target=_watch_held_memory, args=(limit_bytes, report), name="pennon-memory", daemon=True).start()


def prefer_oom_kill(score: int) -> None:
    """Let the kernel end this process rather than others when the machine runs out of memory (Linux)."""
    if sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(score), encoding="ascii")


def held_memory_bytes() -> int:
    """Return the memory that this process holds, with what was swapped out; elsewhere than on Linux its peak."""
    if sys.platform != "linux":
        return peak_memory_bytes()
    status = Path("/proc/self/status").read_bytes()
    return 1024 * sum(int(size) for size in _HELD_MEMORY.findall(status))


def available_memory_bytes() -> int:
    """Return the memory of the machine, or of this process's container (cgroup) if that is less."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if sys.platform == "linux":
        sizes += _cgroup_limits(Path("/sys/fs/cgroup"), _read_text(Path("/proc/self/cgroup")))
    return min(sizes)


def _cgroup_limits(root: Path, membership: str) -> list[int]:
    """Return the memory limits of a process's cgroup and of those above it, of version 1 and 2."""
    limits = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        group = top / path.lstrip("/")
        # Inside a container, the path can be that on its host: the root of the mount is the container's own cgroup.
        for folder in (group, *group.parents):
            if folder.is_relative_to(top):
                text = _read_text(folder / name).strip()
                limits += [int(text)] if text.isdigit() and int(text) < _UNLIMITED_CGROUP_BYTES else []
    return limits


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


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


def _watch_held_memory(limit_bytes: int, report: Callable[[int], None]) -> None:
    while (held := held_memory_bytes()) <= limit_bytes:
        time.sleep(_MEMORY_POLL_SECONDS)
    try:
        report(held)
    finally:
        os._exit(MEMORY_LIMIT_EXIT_CODE)


def _set_limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))
