"""What the catalog asks of a database: read, and write in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, LiteralString, Protocol, TypeVar

from lance_namespace.errors import ServiceUnavailableError

Result = TypeVar("Result")
Row = tuple[Any, ...]

_NOTE_ATTEMPTS = 5


class StillReferencedError(Exception):
    """A row cannot go because others refer to it, or cannot come because what it refers to is gone."""


class CommitOutcomeUnknownError(ServiceUnavailableError):
    """The connection was lost while a transaction was made durable: nobody knows whether it was."""


class Connection(Protocol):
    """A connection inside a transaction; statements are written with ``?`` for their parameters."""

    #: The storage root that stored locations are relative to; empty where only stored locations matter.
    root: str

    def one(self, sql: LiteralString, *parameters: object) -> Row | None:
        """Return the first row, if any."""

    def all(self, sql: LiteralString, *parameters: object) -> list[Row]:
        """Return all rows."""

    def run(self, sql: LiteralString, *parameters: object) -> int:
        """Run a statement and return how many rows it changed."""

    def take_turn(self, name: str) -> None:
        """Wait for every other transaction that took a turn of this name to end."""

    def script(self, sql: str) -> None:
        """Run the statements of a migration."""


class Database(Protocol):
    """A catalog database. Work handed to it touches nothing else, because it may be run again."""

    dialect: str
    #: Reads take microseconds and never wait for a network: they may run on the event loop.
    embedded: bool
    #: The file of an embedded catalog.
    file: Path | None

    def instance(self) -> str:
        """Return what tells this database from a copy of it: a copied file or a restored dump has another."""

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run work that only reads; each of its statements sees all that was committed before it."""

    def change_token(self) -> Hashable:
        """Return what differs from before once anything was written; none where telling that is not cheap."""

    def cached_read(self, find: Callable[..., Result], *key: Hashable) -> Result:
        """Return ``find(connection, *key)``, as of now; asking again costs less while nothing was written."""

    def invalidate(self) -> None:
        """Let look-ups be as of now; once this was called, they may be as of the last call of it.

        Whoever answers requests calls it for each: what one is told must not be older than the request itself.
        """

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run work in one transaction and return when it is durable; an exception undoes it.

        But for ``CommitOutcomeUnknownError``: whoever hears that looks at what is there before doing the work again.
        """

    def defer(self, work: Callable[[Connection], object]) -> None:
        """Run work in a transaction soon, without waiting for it; it is lost if the process dies before."""

    def exclusive(self, *names: str) -> AbstractContextManager[None]:
        """Keep every other process out of a block of the same name; several are taken in the order they are given."""

    def share(self, name: str) -> Callable[[], None]:
        """Take a lock that several may have at once, also of other processes; return what lets go of it."""

    def is_shared(self, name: str) -> bool:
        """Tell whether anybody has a lock of that name to share."""

    def forget_locks(self, *names: str) -> None:
        """Keep nothing of locks that nobody will take again."""

    def close(self) -> None:
        """Give back all connections."""


def write_transaction(database: Database, note: Callable[[Connection], Result]) -> Result:
    """Write down what was done already, and may stand there twice: no lost connection makes that a failure."""
    for _ in range(_NOTE_ATTEMPTS):
        with suppress(CommitOutcomeUnknownError):
            return database.write(note)
    return database.write(note)


def log_failure(outcome: Future[Any]) -> None:
    """Say in the log that deferred work failed; whoever needs its effect will do it again."""
    error = outcome.exception()
    if error is not None:
        logging.getLogger("pennon.catalog").warning("deferred catalog work failed: %r", error)
