"""A budget of memory that threads share: each reserves what it is about to hold, and waits while others hold it."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Self

from lance_namespace.errors import ThrottlingError

#: How long a thread waits for memory before its request is refused.
_WAIT_SECONDS = 60.0


class MemoryBudget:
    """Bytes that all reservations of a process may hold together.

    A reservation that is the only one gets what it asks for, whatever the limit. Those that hold nothing yet are served
    in the order in which they came. When all that hold something wait for more, the last one to ask is refused, since
    nobody else would go on.
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
        """The bytes that are held now."""
        return self._used

    def take(self, reservation: Reservation, size: int) -> None:
        """Add bytes to a reservation; waits until there is room for them."""
        with self._changed:
            if not self._fits(reservation, size):
                self._wait(reservation, size)
            if size:
                self._holders += not reservation.held
                self._used += size
                reservation.held += size

    def give_back(self, reservation: Reservation, size: int) -> None:
        """Take bytes off a reservation."""
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
                        "The memory for request bodies is used up by other requests; nothing was done. "
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
    """What one request holds of a budget; without a budget, what it holds is only counted."""

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self._budget = budget
        #: The bytes that are reserved.
        self.held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shrink(0)

    def grow(self, size: int) -> None:
        """Reserve more bytes; waits until there is room, and raises ``ThrottlingError`` when none comes free."""
        if self._budget is None:
            self.held += size
        else:
            self._budget.take(self, size)

    def shrink(self, size: int) -> None:
        """Hold no more than some bytes from now on."""
        surplus = max(self.held - size, 0)
        if self._budget is None:
            self.held -= surplus
        else:
            self._budget.give_back(self, surplus)
