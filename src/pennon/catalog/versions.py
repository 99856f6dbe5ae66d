"""Versions of managed tables: the record that decides which commit won."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString

from pennon.catalog.properties import Properties, dump_properties, load_properties
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row

#: The branch of a table that has no name of its own.
MAIN = ""
#: The largest number that a database can hold.
HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class Version:
    """One version of a table on a branch.

    ``manifest`` and ``staged`` are file names inside the branch's ``_versions`` folder. A version is pending from the
    moment its record decided the race until its manifest is known to be in its final place.
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
    created_at: int = field(default_factory=now_millis)


_SELECT: LiteralString = (
    "SELECT table_id, branch, version, manifest, staged, size, e_tag, digest, metadata, pending, transaction_id, "
    "created_at FROM versions WHERE table_id = ? AND branch = ? AND version "
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
    )


def insert(connection: Connection, version: Version) -> bool:
    """Record a version; false when another commit holds its number. This decides every race."""
    added = connection.run(
        "INSERT INTO versions "
        "(table_id, branch, version, manifest, staged, size, e_tag, digest, metadata, pending, transaction_id, "
        "created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
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
    )
    return added == 1


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
    """Return versions of a branch in order, after a version number."""
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


def settle(connection: Connection, version: Version) -> None:
    """Record that a version's manifest is in place, with the tag and size it has there."""
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
    """Record what is in place for a version whose record told of something else."""
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
    """Remove a version whose manifest is nowhere to be found, unless it was settled or replaced since it was read."""
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
    """Remove versions by number and return how many there were."""
    return sum(
        connection.run(
            "DELETE FROM versions WHERE table_id = ? AND branch = ? AND version = ?", table_id, branch, number
        )
        for number in numbers
    )


def delete_branch(connection: Connection, table_id: str, branch: str) -> None:
    """Remove every version of a branch."""
    connection.run("DELETE FROM versions WHERE table_id = ? AND branch = ?", table_id, branch)


def in_range(connection: Connection, table_id: str, branch: str, start: int, end: int | None) -> list[Version]:
    """Return the versions from start (inclusive) to end (exclusive; none means all)."""
    rows = connection.all(
        _SELECT + ">= ? AND version < ? ORDER BY version",
        table_id,
        branch,
        start,
        HIGHEST if end is None else end,
    )
    return [_version(row) for row in rows]


def changed_since(connection: Connection, millis: int) -> list[tuple[str, str, int, int]]:
    """Return which branches of which tables got versions since a time: the newest of each, and when it came."""
    rows = connection.all(
        "SELECT table_id, branch, MAX(version), MAX(created_at) FROM versions WHERE created_at >= ? "
        "GROUP BY table_id, branch",
        millis,
    )
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]
