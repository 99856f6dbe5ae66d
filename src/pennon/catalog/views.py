"""Materialized views: tables with a definition, and how far into their sources they have come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, LiteralString

from pennon.catalog import tables
from pennon.core.clock import now_millis
from pennon.core.identifiers import Identifier, identifier_of, key_of

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row


@dataclass(frozen=True)
class Watermark:
    """What a view holds: its sources at these versions."""

    #: By the ids of the tables.
    versions: Mapping[str, int]
    #: How many rows the last refresh was allowed to leave, when that was fewer than there would be.
    trimmed_to: int | None = None
    #: The ids of the columns read, by the ids of the tables: a column made anew under an old name is another.
    fields: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: The tags of the manifests of these versions, by the ids of the tables that Pennon does not manage: others may
    #: drop such a table and make another one of its name, with versions of the same numbers.
    manifests: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the watermark as the catalog keeps it."""
        kept: dict[str, Any] = {
            "versions": dict(self.versions),
            "trimmed_to": self.trimmed_to,
            "fields": {source: dict(fields) for source, fields in self.fields.items()},
        }
        if self.manifests:  # a watermark without them is compared with its text from before there were any
            kept["manifests"] = dict(self.manifests)
        return json.dumps(kept, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Watermark:
        """Return the watermark that the catalog kept."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class View:
    """A view as the catalog knows it; what it is made of is for others to read."""

    table_id: str
    kind: str
    definition: dict[str, Any]
    #: What was asked for, as it came.
    request: dict[str, Any]
    auto_refresh: bool = False
    schedule: str | None = None
    on_schema_change: str = "ignore_new"
    created_at: int = field(default_factory=now_millis)
    watermark: Watermark | None = None
    refreshed_at: int | None = None
    #: The version of the view that its last refresh made or found.
    refreshed_version: int | None = None
    #: Why the view is out of date for another reason than new versions of its sources.
    stale_reason: str | None = None
    failed_job: str | None = None


@dataclass(frozen=True)
class Dependent:
    """A view that reads a table, and which columns of it."""

    view_id: str
    identifier: Identifier
    columns: tuple[str, ...]


_SELECT: LiteralString = (
    "SELECT v.table_id, v.kind, v.definition, v.request, v.auto_refresh, v.schedule, v.on_schema_change, v.created_at, "
    "v.watermark, v.refreshed_at, v.refreshed_version, v.stale_reason, v.failed_job, t.namespace, t.name "
    "FROM views v JOIN tables t ON t.id = v.table_id "
)


def insert(connection: Connection, view: View, sources: Mapping[str, Sequence[str]]) -> None:
    """Record a view whose table is there already, and the columns it reads of which tables."""
    connection.run(
        "INSERT INTO views (table_id, kind, definition, request, auto_refresh, schedule, on_schema_change, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        view.table_id,
        view.kind,
        json.dumps(view.definition),
        json.dumps(view.request),
        int(view.auto_refresh),
        view.schedule,
        view.on_schema_change,
        view.created_at,
    )
    _insert_sources(connection, view.table_id, sources)
    # Every commit asks whether its table is a view: kept where the table is read anyway, that costs nothing.
    connection.run("UPDATE tables SET origin = ? WHERE id = ?", tables.VIEW, view.table_id)


def redefine(
    connection: Connection,
    view_id: str,
    definition: dict[str, Any],
    sources: Mapping[str, Sequence[str]],
    watermark: Watermark | None,
) -> None:
    """Give a view another definition, and a watermark that says the same in its terms."""
    connection.run(
        "UPDATE views SET definition = ?, watermark = ? WHERE table_id = ?",
        json.dumps(definition),
        watermark.to_json() if watermark else None,
        view_id,
    )
    connection.run("DELETE FROM view_sources WHERE view_id = ?", view_id)
    _insert_sources(connection, view_id, sources)


def configure(
    connection: Connection,
    view_id: str,
    *,
    auto_refresh: bool | None,
    schedule: str | None,
    on_schema_change: str | None,
) -> None:
    """Change when a view is refreshed without being asked, and what new columns of its sources do.

    What is none stays as it is; an empty schedule ends the one there is.
    """
    connection.run(
        "UPDATE views SET auto_refresh = COALESCE(?, auto_refresh), schedule = NULLIF(COALESCE(?, schedule), ''), "
        "on_schema_change = COALESCE(?, on_schema_change) WHERE table_id = ?",
        None if auto_refresh is None else int(auto_refresh),
        schedule,
        on_schema_change,
        view_id,
    )


def find(connection: Connection, table_id: str) -> View | None:
    """Return the view that a table is, if it is one."""
    row = connection.one(_SELECT + "WHERE v.table_id = ?", table_id)
    return _view(row) if row else None


def page(
    connection: Connection, namespace: Sequence[str], *, after: str | None, limit: int
) -> list[tuple[Identifier, View]]:
    """Return the views of a namespace in the order of their names, after a name."""
    rows = connection.all(
        _SELECT + "WHERE t.namespace = ? AND t.name > ? ORDER BY t.name LIMIT ?",
        key_of(namespace),
        after or "",
        limit,
    )
    return [((*identifier_of(row[13]), row[14]), _view(row)) for row in rows]


def following(connection: Connection) -> list[View]:
    """Return the views that are refreshed without being asked: after commits to their sources, or by the clock."""
    rows = connection.all(_SELECT + "WHERE v.auto_refresh = 1 OR v.schedule IS NOT NULL")
    return [_view(row) for row in rows]


def dependents(connection: Connection, source_id: str) -> list[Dependent]:
    """Return the views that read a table, in the order of their names."""
    rows = connection.all(
        "SELECT s.view_id, t.namespace, t.name, s.columns FROM view_sources s JOIN tables t ON t.id = s.view_id "
        "WHERE s.source_id = ? ORDER BY t.namespace, t.name",
        source_id,
    )
    return [Dependent(row[0], (*identifier_of(row[1]), row[2]), tuple(json.loads(row[3]))) for row in rows]


def advance(
    connection: Connection, view_id: str, before: Watermark | None, after: Watermark, version: int, at: int
) -> bool:
    """Record that a view holds its sources at other versions; false when another refresh was faster."""
    changed = connection.run(
        "UPDATE views SET watermark = ?, refreshed_version = ?, refreshed_at = ?, stale_reason = NULL, "
        "failed_job = NULL WHERE table_id = ? AND COALESCE(watermark, '') = ?",
        after.to_json(),
        version,
        at,
        view_id,
        before.to_json() if before else "",
    )
    return changed == 1


def mark_stale(connection: Connection, view_id: str, reason: str, job_id: str | None = None) -> None:
    """Record why a view is out of date, until its next refresh."""
    connection.run("UPDATE views SET stale_reason = ?, failed_job = ? WHERE table_id = ?", reason, job_id, view_id)


def _insert_sources(connection: Connection, view_id: str, sources: Mapping[str, Sequence[str]]) -> None:
    for source_id, columns in sources.items():
        connection.run(
            "INSERT INTO view_sources (view_id, source_id, columns) VALUES (?, ?, ?)",
            view_id,
            source_id,
            json.dumps(list(columns)),
        )


def _view(row: Row) -> View:
    return View(
        table_id=row[0],
        kind=row[1],
        definition=json.loads(row[2]),
        request=json.loads(row[3]),
        auto_refresh=bool(row[4]),
        schedule=row[5],
        on_schema_change=row[6],
        created_at=row[7],
        watermark=Watermark.from_json(row[8]) if row[8] else None,
        refreshed_at=row[9],
        refreshed_version=row[10],
        stale_reason=row[11],
        failed_job=row[12],
    )
