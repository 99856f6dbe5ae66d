"""Lanes: the writers of one table take turns, and small appends that wait share one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class _Lane:
    turn: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[tuple[Any, Future[Any]]] = field(default_factory=list)
    users: int = 0


class Lanes(Generic[Item, Result]):
    """One lane a table, for as long as somebody is in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Wait for the lane of a key, and hold it inside the block."""
        with self._lane(key) as lane, lane.turn:
            yield

    def join(self, key: str, item: Item, commit: Callable[[list[Item]], list[Result | Exception]]) -> Result:
        """Add an item to those that wait; whoever gets the lane first commits them all.

        Returns or raises this item's own outcome, after the commit that carries it.
        """
        outcome: Future[Result] = Future()
        with self._lane(key) as lane:
            with self._lock:
                lane.waiting.append((item, outcome))
            with lane.turn:
                if not outcome.done():
                    self._commit_waiting(lane, commit)
        return outcome.result()

    def _commit_waiting(self, lane: _Lane, commit: Callable[[list[Item]], list[Result | Exception]]) -> None:
        with self._lock:
            group, lane.waiting = lane.waiting, []
        try:
            outcomes = commit([item for item, _ in group])
        except Exception as error:  # noqa: BLE001 (every member of the group must hear of it)
            outcomes = [error] * len(group)
        for (_, outcome), result in zip(group, outcomes, strict=True):
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

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
