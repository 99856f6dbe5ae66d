"""A memory budget shared by threads: each reserves memory before it allocates, and waits until there is enough."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Self

from lance_namespace.errors import ThrottlingError

#: How long a thread waits for memory before its request is refused.
_WAIT_SECONDS = 60.0


class MemoryBudget:
    """The total number of bytes that all reservations of a process may hold.

    The only reservation gets any size, whatever the limit. New reservations are served in order. If all reservations
    that hold bytes wait for more, the last one to wait is refused, since none of them could continue.
    """

    def __init__(self, limit: int, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        self._used = 0
        self._holders = 0
        self._waiting_holders = 0
        self._queue: deque[Reservation] = deque()

    @property
    def used(self) -> int:
        """The number of reserved bytes."""
        return self._used

    def acquire(self, reservation: Reservation, size: int) -> None:
        """Add bytes to a reservation; waits until they are available."""
        with self._changed:
            if not self._fits(reservation, size):
                self._wait(reservation, size)
            if size:
                self._holders += not reservation.held
                self._used += size
                reservation.held += size

    def release(self, reservation: Reservation, size: int) -> None:
        """Return bytes of a reservation to the budget."""
        if not size:
            return
        with self._changed:
            self._used -= size
            reservation.held -= size
            self._holders -= not reservation.held
            self._changed.notify_all()

    def _fits(self, reservation: Reservation, size: int) -> bool:
        is_next = reservation.held or not self._queue or self._queue[0] is reservation
        return bool(is_next) and (self._used + size <= self._limit or self._used == reservation.held)

    def _wait(self, reservation: Reservation, size: int) -> None:
        is_holder = reservation.held > 0
        if is_holder:
            self._waiting_holders += 1
        else:
            self._queue.append(reservation)
        deadline = time.monotonic() + self._wait_seconds
        try:
            while not self._fits(reservation, size):
                left = deadline - time.monotonic()
                if left <= 0 or (is_holder and self._waiting_holders == self._holders):
                    raise ThrottlingError(
                        "Other requests use all memory for request bodies; nothing was done. "
                        "Try again later, or send smaller batches."
                    )
                self._changed.wait(left)
        finally:
            if is_holder:
                self._waiting_holders -= 1
            else:
                self._queue.remove(reservation)
                self._changed.notify_all()


class Reservation:
    """The memory that one request has reserved; without a budget, it is only counted."""

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self._budget = budget
        #: The number of reserved bytes.
        self.held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shrink(0)

    def grow(self, size: int) -> None:
        """Reserve more bytes; waits until they are available, and raises ``ThrottlingError`` after a timeout."""
        if self._budget is None:
            self.held += size
        else:
            self._budget.acquire(self, size)

    def shrink(self, size: int) -> None:
        """Release all but ``size`` bytes."""
        surplus = max(self.held - size, 0)
        if self._budget is None:
            self.held -= surplus
        else:
            self._budget.release(self, surplus)
