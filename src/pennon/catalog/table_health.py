"""The health of tables as the catalog knows it: from the counters of their newest versions, without opening them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.catalog.versions import Statistics, statistics_of
from pennon.core.identifiers import Identifier, child_key_range, identifier_of, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pennon.catalog.database.protocol import Connection


@dataclass(frozen=True)
class TableHealth:
    """The newest version of a branch, the number of its versions, and what is due."""

    object: Identifier
    branch: str
    version: int
    versions: int
    #: Those of them that the last cleanup kept although they are beyond the limits of the policy.
    kept_versions: int
    #: The need for maintenance, for the order of tables.
    score: float
    #: None if an earlier release recorded the version.
    statistics: Statistics | None
    due_at: int | None
    due: str | None


@dataclass(frozen=True)
class Weights:
    """The counts that weigh the same in the order of tables: those at which maintenance is due."""

    small_fragments: int
    deleted_share: float
    unindexed_rows: int
    versions: int


def worst(connection: Connection, scope: Sequence[str], weights: Weights, limit: int) -> list[TableHealth]:
    """Return the tables in and below a namespace that need maintenance most, the worst first."""
    key = key_of(scope)
    low, high = child_key_range(key)
    rows = connection.all(
        "SELECT t.namespace, t.name, v.branch, v.version, n.versions, COALESCE(v.small_fragments, 0) * ? "
        "+ COALESCE(v.unindexed_rows, 0) * ? + (n.versions - COALESCE(s.kept_versions, 0)) * ? "
        "+ CASE WHEN v.deleted_rows > 0 THEN v.deleted_rows * ? / (v.row_count + v.deleted_rows) ELSE 0 END AS score, "
        "v.fragments, v.small_fragments, v.row_count, v.deleted_rows, v.data_bytes, v.indices, v.unindexed_rows, "
        "v.stale_since, v.has_auto_cleanup, s.due_at, s.due, COALESCE(s.kept_versions, 0) FROM "
        "(SELECT table_id, branch, MAX(version) AS version, COUNT(*) AS versions FROM versions "
        "GROUP BY table_id, branch) n JOIN tables t ON t.id = n.table_id "
        "JOIN versions v ON v.table_id = n.table_id AND v.branch = n.branch AND v.version = n.version "
        "LEFT JOIN maintenance_state s ON s.table_id = v.table_id AND s.branch = v.branch "
        "WHERE t.namespace = ? OR (t.namespace > ? AND t.namespace < ?) "
        "ORDER BY score DESC, t.namespace, t.name, v.branch LIMIT ?",
        1 / weights.small_fragments,
        1 / weights.unindexed_rows,
        1 / weights.versions,
        1 / weights.deleted_share,
        key,
        low,
        high,
        limit,
    )
    return [
        TableHealth(
            object=(*identifier_of(row[0]), row[1]),
            branch=row[2],
            version=int(row[3]),
            versions=int(row[4]),
            kept_versions=int(row[17]),
            score=float(row[5]),
            statistics=statistics_of(row[6:15]),
            due_at=row[15],
            due=row[16],
        )
        for row in rows
    ]
