"""A cache of small reads of the catalog, which the catalog's log of changes keeps exact.

Before a process answers a request, it reads what was added to the log since it last did, and removes those reads from
the cache. So an answer from the cache is never older than its request, and a write costs only the reads it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
Value = TypeVar("Value")

_MAX_SUBJECTS = 50_000
#: Reads about one subject, such as the latest versions of a table's branches.
_MAX_READS = 16


class CachedRead(Generic[Value]):
    """The result of a read, which is valid until its subject changes."""

    __slots__ = ("is_valid", "subject", "value")

    value: Value

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.is_valid = True


class ReadCache:
    """Reads by their subjects, the names that the log of changes uses. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._subjects: dict[str, dict[Hashable, CachedRead[Any]]] = {}
        #: Reads that threads are making now: a change that is logged meanwhile makes them invalid.
        self._pending: set[CachedRead[Any]] = set()
        #: Whether the log of changes is followed.
        self._is_active = False
        #: The reads that the event loop uses, while they are recorded.
        self._used: list[CachedRead[Any]] | None = None

    def record(self, work: Callable[[], Result]) -> tuple[Result, Sequence[CachedRead[Any]]]:
        """Run work on the event loop, and return its result with the reads it used."""
        used: list[CachedRead[Any]] = []
        self._used = used
        try:
            return work(), used
        finally:
            self._used = None

    def use(self, read: CachedRead[Value]) -> Value:
        """Return the result of a read on the event loop."""
        if self._used is not None:
            self._used.append(read)
        return read.value

    def find(self, subject: str, key: Hashable) -> CachedRead[Any] | None:
        """Return a read, if it is in the cache."""
        return self._subjects.get(subject, {}).get(key)

    def fill(self, subject: str, key: Hashable, read: Callable[[], Result]) -> CachedRead[Result]:
        """Make a read and keep its result, unless its subject changes meanwhile."""
        pending = CachedRead[Result](subject)
        with self._lock:
            if not self._is_active:
                pending.is_valid = False
            self._pending.add(pending)
        try:
            pending.value = read()
            with self._lock:
                if pending.is_valid:
                    self._keep(key, pending)
        finally:
            with self._lock:
                self._pending.discard(pending)
        return pending

    def invalidate(self, subjects: Iterable[str]) -> None:
        """Remove the reads about some subjects."""
        with self._lock:
            for subject in subjects:
                _end(self._subjects.pop(subject, {}).values())
                _end(read for read in self._pending if read.subject == subject)

    def activate(self) -> None:
        """Keep reads from now on: the log of changes is followed."""
        self._is_active = True

    def clear(self) -> None:
        """Remove all reads, and keep none until the log of changes is followed again."""
        with self._lock:
            self._is_active = False
            for reads in self._subjects.values():
                _end(reads.values())
            self._subjects.clear()
            _end(self._pending)

    def _keep(self, key: Hashable, read: CachedRead[Any]) -> None:
        reads = self._subjects.setdefault(read.subject, {})
        if len(reads) >= _MAX_READS:
            _end(reads.values())
            reads.clear()
        reads[key] = read
        if len(self._subjects) > _MAX_SUBJECTS:
            _end(self._subjects.pop(next(iter(self._subjects))).values())  # the oldest


def _end(reads: Iterable[CachedRead[Any]]) -> None:
    for read in reads:
        read.is_valid = False
