"""Versions of managed tables: the unique key of their records decides racing commits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString

from pennon.catalog.properties import Properties, dump_properties, load_properties
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row

#: The name of the main branch.
MAIN = ""
#: The largest integer that a database can store.
HIGHEST = 2**63 - 1


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
    """Insert a version; false if another commit has its number. This decides every race."""
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
        "SELECT table_id, branch, MAX(version), MAX(created_at) FROM versions WHERE created_at >= ? "
        "GROUP BY table_id, branch",
        millis,
    )
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]
