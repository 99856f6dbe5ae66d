"""Lanes: the writers of one table take turns, and small appends that wait share one commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cachetools import TTLCache

Item = TypeVar("Item")
Result = TypeVar("Result")


#: A group waits for callers of the one before it, who may be about to come again: for this share of what that took.
_PATIENCE = 0.5
_LONGEST_WAIT = 0.02
#: For so long a group tells something about the next one.
_MEMORY_SECONDS = 1.0


@dataclass
class _Lane:
    turn: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[tuple[Any, Future[Any]]] = field(default_factory=list)
    users: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    #: How many may be expected in the next group.
    expected: int = 0


class Lanes(Generic[Item, Result]):
    """One lane a table, for as long as somebody is in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._habits: TTLCache[str, tuple[int, float]] = TTLCache(1024, _MEMORY_SECONDS)

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Wait for the lane of a key, and hold it inside the block."""
        with self._lane(key) as lane, lane.turn:
            yield

    def join(
        self,
        key: str,
        item: Item,
        commit: Callable[[list[Item]], list[Result | Exception]],
        shut: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Result:
        """Add an item to those that wait; whoever gets the lane first commits them all, inside ``shut``.

        Returns or raises this item's own outcome, after the commit that carries it.
        """
        outcome: Future[Result] = Future()
        with self._lane(key) as lane:
            with self._lock:
                lane.waiting.append((item, outcome))
                if len(lane.waiting) >= lane.expected:
                    lane.arrived.set()
            with lane.turn:
                if not outcome.done():
                    try:
                        with shut():
                            self._gather(key, lane)
                            self._commit_waiting(key, lane, commit)
                    except BaseException:
                        self._withdraw(lane, outcome)
                        raise
        return outcome.result()

    def _gather(self, key: str, lane: _Lane) -> None:
        """Wait a moment for those who were in the last group: one commit for all costs as much as one for a few."""
        with self._lock:
            lane.expected, took = self._habits.get(key, (0, 0.0))
            lane.arrived.clear()
            if len(lane.waiting) >= lane.expected:
                return
        lane.arrived.wait(min(took * _PATIENCE, _LONGEST_WAIT))

    def _commit_waiting(self, key: str, lane: _Lane, commit: Callable[[list[Item]], list[Result | Exception]]) -> None:
        with self._lock:
            group, lane.waiting = lane.waiting, []
        began = time.monotonic()
        outcomes: Sequence[Result | BaseException]
        try:
            outcomes = commit([item for item, _ in group])
        except BaseException as error:  # noqa: BLE001 (every member of the group must hear of it)
            outcomes = [error] * len(group)
        with self._lock:
            self._habits[key] = (len(group) + len(lane.waiting), time.monotonic() - began)
        for (_, outcome), result in zip(group, outcomes, strict=True):
            if isinstance(result, BaseException):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    def _withdraw(self, lane: _Lane, outcome: Future[Any]) -> None:
        """Take out an item that was not committed: its caller hears of a failure, so nobody may commit it any more."""
        with self._lock:
            lane.waiting = [waiting for waiting in lane.waiting if waiting[1] is not outcome]

    @contextmanager
    def _lane(self, key: str) -> Iterator[_Lane]:
        with self._lock:
            lane = self._lanes.setdefault(key, _Lane())
            lane.users += 1
        try:
            yield lane
        finally:
            with self._lock:
                lane.users -= 1
                if lane.users == 0:
                    del self._lanes[key]
