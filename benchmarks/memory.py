"""Watch the memory of a server while it works."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from family import Family

if TYPE_CHECKING:
    from types import TracebackType

    from servers import Server

_EVERY_SECONDS = 0.05


def resident(processes: list[int]) -> float | None:
    """Return the resident memory of processes together, in megabytes; None where there is no /proc."""
    found = [size for size in map(_resident, processes) if size is not None]
    return sum(found) if found else None


def _resident(process: int) -> float | None:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")), None)
    return None if kilobytes is None else int(kilobytes) * 1024 / 1e6


class Watch:
    """Looks at a server's memory every 50 ms inside a block."""

    def __init__(self, server: Server) -> None:
        self._family = Family(server)
        self._processes: list[int] = []
        self._base: float | None = None
        self._peak = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def growth(self) -> float | None:
        """The most that was seen in the last block, above what there was before it."""
        return None if self._base is None else max(self._peak - self._base, 0.0)

    def __enter__(self) -> Watch:
        self._processes = self._family.members()
        self._base = resident(self._processes)
        self._peak = self._base or 0.0
        self._stop.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while True:
            self._peak = max(self._peak, resident(self._processes) or 0.0)
            if self._stop.wait(_EVERY_SECONDS):
                return
