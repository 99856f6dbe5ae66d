"""Group commit: the writers of one table take turns, and small appends that wait share one commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cachetools import TTLCache

Item = TypeVar("Item")
Result = TypeVar("Result")


#: A group waits for the callers of the previous group, who may be about to submit again: for this share of the time
#: that the previous commit took.
_WAIT_SHARE = 0.5
_MAX_WAIT_SECONDS = 0.02
#: The size of a group predicts that of the next one for this long.
_GROUP_MEMORY_SECONDS = 1.0


@dataclass
class _TableQueue(Generic[Item, Result]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[tuple[Item, Future[Result]]] = field(default_factory=list)
    users: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    #: The expected size of the next group.
    expected: int = 0


class CommitQueue(Generic[Item, Result]):
    """A lock and a queue of pending items for each table in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, _TableQueue[Item, Result]] = {}
        #: The size and the seconds of each table's last group.
        self._last_groups: TTLCache[str, tuple[int, float]] = TTLCache(1024, _GROUP_MEMORY_SECONDS)

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold the lock of a key inside the block."""
        with self._queue(key) as queue, queue.lock:
            yield

    def submit(
        self,
        key: str,
        item: Item,
        commit: Callable[[list[Item]], list[Result | Exception]],
        exclusive: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Result:
        """Queue an item; the first caller that gets the lock commits all queued items, inside ``exclusive``.

        Returns or raises the outcome of this item, after the commit that contains it.
        """
        outcome: Future[Result] = Future()
        with self._queue(key) as queue:
            with self._lock:
                queue.waiting.append((item, outcome))
                if len(queue.waiting) >= queue.expected:
                    queue.arrived.set()
            with queue.lock:
                if not outcome.done():
                    try:
                        with exclusive():
                            self._gather(key, queue)
                            self._commit_waiting(key, queue, commit)
                    except BaseException:
                        self._withdraw(queue, outcome)
                        raise
        return outcome.result()

    def _gather(self, key: str, queue: _TableQueue[Item, Result]) -> None:
        """Wait briefly for the callers of the last group: one commit for all costs as much as one for a few."""
        with self._lock:
            queue.expected, seconds = self._last_groups.get(key, (0, 0.0))
            queue.arrived.clear()
            if len(queue.waiting) >= queue.expected:
                return
        queue.arrived.wait(min(seconds * _WAIT_SHARE, _MAX_WAIT_SECONDS))

    def _commit_waiting(
        self, key: str, queue: _TableQueue[Item, Result], commit: Callable[[list[Item]], list[Result | Exception]]
    ) -> None:
        with self._lock:
            group, queue.waiting = queue.waiting, []
        started = time.monotonic()
        outcomes: Sequence[Result | BaseException]
        try:
            outcomes = commit([item for item, _ in group])
        except BaseException as error:  # noqa: BLE001 (raised again to every caller of the group)
            outcomes = [error] * len(group)
        with self._lock:
            self._last_groups[key] = (len(group) + len(queue.waiting), time.monotonic() - started)
        for (_, outcome), result in zip(group, outcomes, strict=True):
            if isinstance(result, BaseException):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    def _withdraw(self, queue: _TableQueue[Item, Result], outcome: Future[Result]) -> None:
        """Remove an uncommitted item: its caller gets an error, so no other caller may commit it."""
        with self._lock:
            queue.waiting = [waiting for waiting in queue.waiting if waiting[1] is not outcome]

    @contextmanager
    def _queue(self, key: str) -> Iterator[_TableQueue[Item, Result]]:
        with self._lock:
            queue = self._queues.setdefault(key, _TableQueue())
            queue.users += 1
        try:
            yield queue
        finally:
            with self._lock:
                queue.users -= 1
                if queue.users == 0:
                    del self._queues[key]
