"""Which reads are kept, and which a change removes."""

from __future__ import annotations

import os

import pytest

from pennon.catalog import read_cache
from pennon.catalog.read_cache import ReadCache


@pytest.fixture
def cache() -> ReadCache:
    cache = ReadCache()
    cache.activate()
    return cache


def test_a_read_is_kept_until_its_subject_changes(cache: ReadCache) -> None:
    read = cache.fill("table t", "find", lambda: 1)
    assert cache.find("table t", "find") is read
    cache.invalidate(["table u", "keys"])
    assert cache.find("table t", "find") is read
    assert read.is_valid
    cache.invalidate(["table t"])
    assert cache.find("table t", "find") is None
    assert not read.is_valid


def test_a_read_whose_subject_changes_while_it_is_made_is_not_kept(cache: ReadCache) -> None:
    def find() -> int:
        cache.invalidate(["table t"])  # as the event loop may, while this thread waits for the database
        return 1

    read = cache.fill("table t", "find", find)
    assert (read.value, read.is_valid) == (1, False)
    assert cache.find("table t", "find") is None


@pytest.mark.parametrize("again", [False, True], ids=["not followed", "followed again"])
def test_a_read_that_is_made_while_the_log_is_lost_is_not_kept(cache: ReadCache, again: bool) -> None:
    def find() -> int:
        cache.clear()
        if again:
            cache.activate()
        return 1

    assert not cache.fill("table t", "find", find).is_valid
    assert cache.find("table t", "find") is None


def test_nothing_is_kept_before_the_log_is_followed() -> None:
    cache = ReadCache()
    assert cache.fill("table t", "find", lambda: 1).value == 1
    assert cache.find("table t", "find") is None


def test_a_read_that_fails_is_not_kept(cache: ReadCache) -> None:
    with pytest.raises(LookupError):
        cache.fill("key x", "find", lambda: os.environ["PENNON_NO_SUCH_KEY"])
    assert cache.find("key x", "find") is None


def test_the_cache_is_bounded(cache: ReadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "_MAX_SUBJECTS", 3)
    reads = [cache.fill(f"table {number}", "find", lambda: 1) for number in range(5)]
    assert [read.is_valid for read in reads] == [False, False, True, True, True]
    branches = [cache.fill("versions t", number, lambda: 1) for number in range(40)]
    assert sum(read.is_valid for read in branches) <= 16


def test_the_reads_of_some_work_are_recorded(cache: ReadCache) -> None:
    first, second = cache.fill("a", "find", lambda: 1), cache.fill("b", "find", lambda: 2)
    cache.use(second)
    result, used = cache.record(lambda: cache.use(first))
    cache.use(second)
    assert (result, used) == (1, [first])
