"""Group commit: a caller that gets an error has written nothing, and no caller waits forever."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from pennon.tables.group_commit import CommitQueue
from tests.support.waiting import wait_until


class Panic(BaseException):
    """A BaseException that is no Exception, like a panic in Lance."""


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as opened:
        yield opened


def test_an_item_whose_caller_got_an_error_is_never_committed(threads: ThreadPoolExecutor) -> None:
    queue: CommitQueue[str, str] = CommitQueue()
    committed: list[str] = []
    failures = [RuntimeError("cannot get the lock")]

    @contextmanager
    def exclusive() -> Iterator[None]:
        if failures:
            raise failures.pop()
        yield

    def commit(items: list[str]) -> list[str | Exception]:
        committed.extend(items)
        return list(items)

    with queue.lock("t"):  # both callers wait
        outcomes = {item: threads.submit(queue.submit, "t", item, commit, exclusive) for item in ("tea", "milk")}
        wait_until(lambda: len(queue._queues["t"].waiting) == 2)
    succeeded = {item for item, outcome in outcomes.items() if outcome.exception() is None}
    assert len(succeeded) == 1
    assert set(committed) == succeeded


def test_a_panic_is_raised_to_every_caller_of_a_group(threads: ThreadPoolExecutor) -> None:
    queue: CommitQueue[str, str] = CommitQueue()

    def commit(items: list[str]) -> list[str | Exception]:
        if items:
            raise Panic
        return []

    with queue.lock("t"):
        outcomes = [threads.submit(queue.submit, "t", item, commit) for item in ("tea", "milk")]
        wait_until(lambda: len(queue._queues["t"].waiting) == 2)
    assert [type(outcome.exception(60)) for outcome in outcomes] == [Panic, Panic]
