"""Treat a server as the process that was started and all that it started itself."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from servers import Server

_IDLE_SECONDS = 0.02  # of processor time in a look, below which a server counts as idle
_LOOK_SECONDS = 0.2


class Work:
    """The processor time that a server spends inside a block."""

    def __init__(self, server: Server) -> None:
        self._family = Family(server)
        self._spent = 0.0

    def __enter__(self) -> Work:
        self._spent = -self._family.processor_seconds()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spent += self._family.processor_seconds()

    def per(self, requests: int) -> float | None:
        """Share the time among requests, in milliseconds."""
        return self._spent * 1e3 / requests if requests and self._spent else None


class Family:
    """The processes of a server: it may answer with several, in sessions of their own."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def members(self) -> list[int]:
        """List the processes, the one that was started first; only that one where there is no /proc."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            fields = _fields(stat)
            if fields:
                parents[int(stat.parent.name)] = int(fields[1])
        found = [self._server.process.pid]
        for member in found:
            found += [process for process, parent in parents.items() if parent == member]
        return found

    def pause(self) -> None:
        """Take the processor from all of them."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let all of them go on."""
        self._signal(signal.SIGCONT)

    def settle(self, limit: float = 60.0) -> None:
        """Wait until they are idle: they may still work on requests whose client has gone."""
        deadline = time.monotonic() + limit
        before = self.processor_seconds()
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            now = self.processor_seconds()
            if now - before < _IDLE_SECONDS:
                return
            before = now

    def processor_seconds(self) -> float:
        """Sum the processor time of all of them; 0 where there is no /proc."""
        ticks = 0
        for process in self.members():
            fields = _fields(Path(f"/proc/{process}/stat"))
            ticks += int(fields[11]) + int(fields[12]) if fields else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def _signal(self, number: signal.Signals) -> None:
        # Once the first has been waited for, its number may belong to somebody else.
        if self._server.process.poll() is None:
            for process in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)


def _fields(stat: Path) -> list[str]:
    """Return what the system tells of a process after its name, which may hold spaces and brackets."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []
