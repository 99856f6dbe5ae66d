"""Lanes: who is told of a failure has written nothing, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from pennon.tables.group_commit import Lanes
from tests.support.waiting import wait_until


class Panic(BaseException):
    """What is no Exception, as the panics of Lance."""


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as opened:
        yield opened


def test_what_its_caller_was_told_to_have_failed_is_committed_by_nobody(threads: ThreadPoolExecutor) -> None:
    lanes: Lanes[str, str] = Lanes()
    committed: list[str] = []
    failures = [RuntimeError("no lock is to be had")]

    @contextmanager
    def shut() -> Iterator[None]:
        if failures:
            raise failures.pop()
        yield

    def commit(items: list[str]) -> list[str | Exception]:
        committed.extend(items)
        return list(items)

    with lanes.turn("t"):  # so that both wait
        outcomes = {item: threads.submit(lanes.join, "t", item, commit, shut) for item in ("tea", "milk")}
        wait_until(lambda: len(lanes._lanes["t"].waiting) == 2)
    told = {item for item, outcome in outcomes.items() if outcome.exception() is None}
    assert len(told) == 1
    assert set(committed) == told


def test_a_panic_is_told_to_all_of_a_group(threads: ThreadPoolExecutor) -> None:
    lanes: Lanes[str, str] = Lanes()

    def commit(items: list[str]) -> list[str | Exception]:
        if items:
            raise Panic
        return []

    with lanes.turn("t"):
        outcomes = [threads.submit(lanes.join, "t", item, commit) for item in ("tea", "milk")]
        wait_until(lambda: len(lanes._lanes["t"].waiting) == 2)
    assert [type(outcome.exception(60)) for outcome in outcomes] == [Panic, Panic]
