"""The database interface of the catalog: reads, and writes in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, LiteralString, Protocol, TypeVar

from lance_namespace.errors import ServiceUnavailableError

from pennon.catalog.read_cache import ReadCache

Result = TypeVar("Result")
Row = tuple[Any, ...]

_WRITE_ATTEMPTS = 5


class ForeignKeyError(Exception):
    """A row cannot be deleted because others refer to it, or cannot be inserted because its parent does not exist."""


class CommitOutcomeUnknownError(ServiceUnavailableError):
    """The connection was lost during the commit of a transaction, which may or may not have been applied."""


class Connection(Protocol):
    """A connection inside a transaction; statements have ``?`` for parameters."""

    #: The storage root that stored locations are relative to; empty to use stored locations unchanged.
    root: str

    def one(self, sql: LiteralString, *parameters: object) -> Row | None:
        """Return the first row; None if there is none."""

    def all(self, sql: LiteralString, *parameters: object) -> list[Row]:
        """Return all rows."""

    def run(self, sql: LiteralString, *parameters: object) -> int:
        """Run a statement, and return the number of changed rows."""

    def lock(self, name: str) -> None:
        """Lock a name until the transaction ends; waits for other transactions that have locked it."""

    def script(self, sql: str) -> None:
        """Run the statements of a migration."""


class Database(Protocol):
    """A catalog database. Work must have no other effects than on the database, because it may be retried."""

    dialect: str
    #: Whether reads take microseconds without a network.
    embedded: bool
    #: Reads that are kept for work on the event loop.
    cache: ReadCache
    #: The file of an embedded catalog.
    file: Path | None

    def instance(self) -> str:
        """Return the id of this database, which a copied file or a restored dump does not share."""

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run work that only reads; each statement sees all earlier commits."""

    def change_token(self) -> Hashable:
        """Return a token that changes with every write; None if it is not cheap to get."""

    def refresh(self) -> bool | Awaitable[bool]:
        """Bring the cache up to date with all writes that were acknowledged before this call.

        The server calls it for every request, on the event loop. If the result is false, the cache must not be used for
        this request, and its work must not run on the event loop.
        """

    def cached_read(self, subject: str, find: Callable[..., Result], *key: Hashable) -> Result:
        """Return ``find(connection, *key)``, on the event loop from the cache; a change of the subject removes it."""

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run work in one transaction, and return when it is durable; an exception rolls it back.

        On ``CommitOutcomeUnknownError`` the caller must check whether the write happened before retrying.
        """

    def defer(self, work: Callable[[Connection], object]) -> None:
        """Run work in a transaction later, without waiting for it; it is lost if the process dies first."""

    def exclusive(self, *names: str) -> AbstractContextManager[None]:
        """Hold exclusive locks, also against other processes; several are acquired in the given order."""

    def lock_shared(self, name: str) -> Callable[[], None]:
        """Acquire a shared lock, also with other processes, and return the function that releases it."""

    def is_locked(self, name: str) -> bool:
        """Tell whether any process holds a shared lock."""

    def delete_locks(self, *names: str) -> None:
        """Delete the files of locks that are not used any more."""

    def close(self) -> None:
        """Close all connections."""


def write_at_least_once(database: Database, work: Callable[[Connection], Result]) -> Result:
    """Run work that may be applied twice, and retry it after a lost connection.

    For records of something that has already happened, which must not fail any more.
    """
    for _ in range(_WRITE_ATTEMPTS):
        with suppress(CommitOutcomeUnknownError):
            return database.write(work)
    return database.write(work)


def log_failure(outcome: Future[Result]) -> None:
    """Log that deferred work failed; the next process that needs its effect repeats it."""
    error = outcome.exception()
    if error is not None:
        logging.getLogger("pennon.catalog").warning("deferred catalog work failed: %r", error)
