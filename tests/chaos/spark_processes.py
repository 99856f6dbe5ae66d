"""The processes of a server that work on jobs, found from the server downwards, and their sudden ends."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

WORKER, DAEMON, JAVA = "pennon.pipeline.worker.process", "pyspark.daemon", "org.apache.spark.deploy.SparkSubmit"


def kill(pid: int) -> bool:
    """End a process at once; false when it was gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for since its end has no command any more."""
    return bool(_command(pid))


def workers_of(server: int) -> list[int]:
    """Return the workers of a server."""
    return [pid for pid in _descendants(server) if WORKER in _command(pid)]


def javas_of(server: int) -> list[int]:
    """Return the drivers of Spark that a server's workers have."""
    return [pid for pid in _descendants(server) if JAVA in _command(pid)]


def daemons_of(server: int) -> list[int]:
    """Return the processes that fork the Python workers of Spark."""
    found = [pid for pid in _descendants(server) if DAEMON in _command(pid)]
    return [pid for pid in found if _parent(pid) not in found]


def python_workers_of(server: int) -> list[int]:
    """Return the processes that run the tasks of Spark."""
    daemons = daemons_of(server)
    return [pid for pid in _descendants(server) if _parent(pid) in daemons]


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            children.setdefault(_parent(int(folder.name)), []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return sorted(found)


def _parent(pid: int) -> int:
    # The name in parentheses may hold anything; what follows it does not.
    status = _read(pid, "stat")
    return int(status.rpartition(")")[2].split()[1]) if status else 0


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace("\0", " ")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
