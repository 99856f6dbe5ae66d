"""Versions of managed tables: the unique key of their records decides racing commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any, LiteralString

from pennon.catalog.properties import Properties, dump_properties, load_properties
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row

#: The name of the main branch.
MAIN = ""
#: The largest integer that a database can store.
HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class Statistics:
    """The size of a version, by which maintenance finds the tables that need it."""

    fragments: int = 0
    #: Fragments below half of the default target size.
    small_fragments: int = 0
    #: Rows that are not deleted.
    rows: int = 0
    #: Rows that are deleted but still in data files.
    deleted_rows: int = 0
    #: The size of all data files, without their blobs.
    data_bytes: int = 0
    indices: int = 0
    #: The number of rows outside the index that covers the fewest.
    unindexed_rows: int = 0
    #: The version whose compaction left entries of deleted rows in a vector index.
    stale_since: int | None = None
    #: Whether the table is configured so that Lance removes versions at a commit.
    has_auto_cleanup: bool = False


@dataclass(frozen=True)
class Version:
    """One version of a table on a branch.

    ``manifest`` and ``staged`` are file names in the ``_versions`` folder of the branch. A version is pending from its
    record until its manifest is published.
    """

    table_id: str
    branch: str
    version: int
    manifest: str
    size: int
    digest: str
    e_tag: str | None = None
    staged: str | None = None
    metadata: Properties = field(default_factory=dict)
    pending: bool = False
    transaction_id: str | None = None
    #: The time of the committer's clock.
    created_at: int = field(default_factory=now_millis)
    #: The time of its record, by the clock of the server.
    recorded_at: int = field(default_factory=now_millis)
    #: None if it was recorded by an earlier release.
    statistics: Statistics | None = None


_SELECT: LiteralString = (
    "SELECT table_id, branch, version, manifest, staged, size, e_tag, digest, metadata, pending, transaction_id, "
    "created_at, recorded_at, fragments, small_fragments, row_count, deleted_rows, data_bytes, indices, "
    "unindexed_rows, stale_since, has_auto_cleanup FROM versions WHERE table_id = ? AND branch = ? AND version "
)


def _version(row: Row) -> Version:
    return Version(
        table_id=row[0],
        branch=row[1],
        version=row[2],
        manifest=row[3],
        staged=row[4],
        size=row[5],
        e_tag=row[6],
        digest=row[7],
        metadata=load_properties(row[8]),
        pending=bool(row[9]),
        transaction_id=row[10],
        created_at=row[11],
        recorded_at=row[12],
        statistics=statistics_of(row[13:]),
    )


def statistics_of(values: Sequence[Any]) -> Statistics | None:
    """Return the statistics in columns of a row; None if they are unknown."""
    if values[0] is None:
        return None
    *numbers, has_auto_cleanup = values
    return replace(Statistics(*numbers), has_auto_cleanup=bool(has_auto_cleanup))


def insert(connection: Connection, version: Version) -> bool:
    """Insert a version; false if another commit has its number. This decides every race."""
    added = connection.run(
        "INSERT INTO versions "
        "(table_id, branch, version, manifest, staged, size, e_tag, digest, metadata, pending, transaction_id, "
        "created_at, recorded_at, fragments, small_fragments, row_count, deleted_rows, data_bytes, indices, "
        "unindexed_rows, stale_since, has_auto_cleanup) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        version.table_id,
        version.branch,
        version.version,
        version.manifest,
        version.staged,
        version.size,
        version.e_tag,
        version.digest,
        dump_properties(version.metadata),
        int(version.pending),
        version.transaction_id,
        version.created_at,
        version.recorded_at,
        *_stored(version.statistics),
    )
    return added == 1


def set_statistics(connection: Connection, version: Version, statistics: Statistics) -> None:
    """Record the statistics of a version that was recorded without them."""
    connection.run(
        "UPDATE versions SET fragments = ?, small_fragments = ?, row_count = ?, deleted_rows = ?, data_bytes = ?, "
        "indices = ?, unindexed_rows = ?, stale_since = ?, has_auto_cleanup = ? "
        "WHERE table_id = ? AND branch = ? AND version = ? AND fragments IS NULL",
        *_stored(statistics),
        version.table_id,
        version.branch,
        version.version,
    )


def _stored(statistics: Statistics | None) -> tuple[object, ...]:
    if statistics is None:
        return (None,) * 9
    return (*astuple(statistics)[:8], int(statistics.has_auto_cleanup))


def find(connection: Connection, table_id: str, branch: str, version: int) -> Version | None:
    """Return one version."""
    if not 0 <= version <= HIGHEST:
        return None
    row = connection.one(
        _SELECT + "= ?",
        table_id,
        branch,
        version,
    )
    return _version(row) if row else None


def has_digest(connection: Connection, table_id: str, digest: str) -> bool:
    """Tell whether a table has a version whose manifest has this digest."""
    found = connection.one("SELECT 1 FROM versions WHERE table_id = ? AND digest = ? LIMIT 1", table_id, digest)
    return found is not None


def latest(connection: Connection, table_id: str, branch: str) -> Version | None:
    """Return the newest version of a branch."""
    row = connection.one(
        _SELECT + ">= 0 ORDER BY version DESC LIMIT 1",
        table_id,
        branch,
    )
    return _version(row) if row else None


def page(
    connection: Connection, table_id: str, branch: str, *, after: int | None, descending: bool, limit: int
) -> list[Version]:
    """Return versions of a branch after a version, in order."""
    if descending:
        rows = connection.all(
            _SELECT + "< ? ORDER BY version DESC LIMIT ?",
            table_id,
            branch,
            HIGHEST if after is None else after,
            limit,
        )
    else:
        rows = connection.all(
            _SELECT + "> ? ORDER BY version LIMIT ?",
            table_id,
            branch,
            -1 if after is None else after,
            limit,
        )
    return [_version(row) for row in rows]


def count(connection: Connection, table_id: str, branch: str) -> int:
    """Count the versions of a branch."""
    row = connection.one("SELECT COUNT(*) FROM versions WHERE table_id = ? AND branch = ?", table_id, branch)
    return int(row[0]) if row else 0


def finalize(connection: Connection, version: Version) -> None:
    """Record that the manifest of a pending version is published, with its entity tag and size."""
    connection.run(
        "UPDATE versions SET pending = 0, e_tag = ?, size = ?, digest = ?, staged = ? "
        "WHERE table_id = ? AND branch = ? AND version = ? AND pending = 1",
        version.e_tag,
        version.size,
        version.digest,
        version.staged,
        version.table_id,
        version.branch,
        version.version,
    )


def correct(connection: Connection, version: Version) -> None:
    """Record the manifest that is on storage for a version whose record differs from it."""
    connection.run(
        "UPDATE versions SET pending = 0, e_tag = ?, size = ?, digest = ? "
        "WHERE table_id = ? AND branch = ? AND version = ?",
        version.e_tag,
        version.size,
        version.digest,
        version.table_id,
        version.branch,
        version.version,
    )


def withdraw(connection: Connection, version: Version) -> bool:
    """Delete a version whose manifest is lost, unless its record changed since it was read."""
    removed = connection.run(
        "DELETE FROM versions WHERE table_id = ? AND branch = ? AND version = ? AND pending = ? AND digest = ?",
        version.table_id,
        version.branch,
        version.version,
        int(version.pending),
        version.digest,
    )
    return removed == 1


def delete_numbers(connection: Connection, table_id: str, branch: str, numbers: Iterable[int]) -> int:
    """Delete versions by number, and return how many there were."""
    return sum(
        connection.run(
            "DELETE FROM versions WHERE table_id = ? AND branch = ? AND version = ?", table_id, branch, number
        )
        for number in numbers
    )


def delete_branch(connection: Connection, table_id: str, branch: str) -> None:
    """Delete all versions of a branch."""
    connection.run("DELETE FROM versions WHERE table_id = ? AND branch = ?", table_id, branch)


def in_range(connection: Connection, table_id: str, branch: str, start: int, end: int | None) -> list[Version]:
    """Return the versions from ``start`` up to, but not including, ``end``; None means no end."""
    rows = connection.all(
        _SELECT + ">= ? AND version < ? ORDER BY version",
        table_id,
        branch,
        start,
        HIGHEST if end is None else end,
    )
    return [_version(row) for row in rows]


def changed_since(connection: Connection, millis: int) -> list[tuple[str, str, int, int]]:
    """Return the branches with versions since a time, as (table id, branch, newest version, its time)."""
    rows = connection.all(
        "SELECT table_id, branch, MAX(version), MAX(recorded_at) FROM versions WHERE recorded_at >= ? "
        "GROUP BY table_id, branch",
        millis,
    )
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]
