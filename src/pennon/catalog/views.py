"""Materialized views: tables with a definition and a watermark, the versions of their sources."""

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
    """The versions of the sources that a view was last refreshed from."""

    #: By table id.
    versions: Mapping[str, int]
    #: The output limit of the last refresh, if it cut off rows.
    trimmed_to: int | None = None
    #: The field ids of the read columns, by table id: a column that is dropped and added again has another id.
    fields: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: The entity tags of these versions' manifests, by the ids of unmanaged tables: others may drop such a table and
    #: create another of its name, with the same version numbers.
    manifests: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the watermark as the catalog stores it."""
        kept: dict[str, object] = {
            "versions": dict(self.versions),
            "trimmed_to": self.trimmed_to,
            "fields": {source: dict(fields) for source, fields in self.fields.items()},
        }
        if self.manifests:  # left out if empty: watermarks are compared as text with those of earlier releases
            kept["manifests"] = dict(self.manifests)
        return json.dumps(kept, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Watermark:
        """Return the watermark that the catalog has stored."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class View:
    """A view as the catalog stores it; other packages interpret its definition."""

    table_id: str
    kind: str
    definition: dict[str, Any]
    #: The request that created the view, unchanged.
    request: dict[str, Any]
    auto_refresh: bool = False
    schedule: str | None = None
    on_schema_change: str = "ignore_new"
    created_at: int = field(default_factory=now_millis)
    watermark: Watermark | None = None
    refreshed_at: int | None = None
    #: The version of the view after its last refresh.
    refreshed_version: int | None = None
    #: Why the view is stale, if not for new versions of its sources.
    stale_reason: str | None = None
    failed_job: str | None = None


@dataclass(frozen=True)
class Dependent:
    """A view that reads a table, with the columns that it reads."""

    view_id: str
    identifier: Identifier
    columns: tuple[str, ...]


_SELECT: LiteralString = (
    "SELECT v.table_id, v.kind, v.definition, v.request, v.auto_refresh, v.schedule, v.on_schema_change, v.created_at, "
    "v.watermark, v.refreshed_at, v.refreshed_version, v.stale_reason, v.failed_job, t.namespace, t.name "
    "FROM views v JOIN tables t ON t.id = v.table_id "
)


def insert(connection: Connection, view: View, sources: Mapping[str, Sequence[str]]) -> None:
    """Insert a view whose table exists, with the columns that it reads of each source."""
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
    # Every commit checks whether its table is a view; in the row of the table, the check costs nothing.
    connection.run("UPDATE tables SET origin = ? WHERE id = ?", tables.VIEW, view.table_id)


def redefine(
    connection: Connection,
    view_id: str,
    definition: dict[str, Any],
    sources: Mapping[str, Sequence[str]],
    watermark: Watermark | None,
) -> None:
    """Replace the definition of a view, with an equivalent watermark."""
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
    """Change when a view is refreshed automatically, and how it handles new columns of its sources.

    None keeps a value; an empty schedule removes the schedule.
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
    """Return the view with a table id; None if the table is not a view."""
    row = connection.one(_SELECT + "WHERE v.table_id = ?", table_id)
    return _view(row) if row else None


def page(
    connection: Connection, namespace: Sequence[str], *, after: str | None, limit: int
) -> list[tuple[Identifier, View]]:
    """Return the views of a namespace after a name, sorted by name."""
    rows = connection.all(
        _SELECT + "WHERE t.namespace = ? AND t.name > ? ORDER BY t.name LIMIT ?",
        key_of(namespace),
        after or "",
        limit,
    )
    return [((*identifier_of(row[13]), row[14]), _view(row)) for row in rows]


def auto_refreshed(connection: Connection) -> list[View]:
    """Return the views that are refreshed automatically: after commits to their sources, or by a schedule."""
    rows = connection.all(_SELECT + "WHERE v.auto_refresh = 1 OR v.schedule IS NOT NULL")
    return [_view(row) for row in rows]


def dependents(connection: Connection, source_id: str) -> list[Dependent]:
    """Return the views that read a table, sorted by name."""
    rows = connection.all(
        "SELECT s.view_id, t.namespace, t.name, s.columns FROM view_sources s JOIN tables t ON t.id = s.view_id "
        "WHERE s.source_id = ? ORDER BY t.namespace, t.name",
        source_id,
    )
    return [Dependent(row[0], (*identifier_of(row[1]), row[2]), tuple(json.loads(row[3]))) for row in rows]


def advance(
    connection: Connection, view_id: str, before: Watermark | None, after: Watermark, version: int, at: int
) -> bool:
    """Record a refresh; false if another refresh changed the watermark first."""
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
    """Record why a view is stale, until its next refresh."""
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
