"""The plan of a refresh: no-op, incremental or rebuild, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from lance_namespace.errors import (
    LanceNamespaceError,
    TableColumnNotFoundError,
    TableNotFoundError,
    TableSchemaValidationError,
)

from pennon.catalog import tables, views
from pennon.catalog.views import View, Watermark
from pennon.core.identifiers import format_identifier
from pennon.views.model.definition import Definition, Source
from pennon.views.refresh.changes import NotComparableError, RowChanges, compare, field_ids, new_columns
from pennon.views.refresh.freshness import was_recreated

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog import Database
    from pennon.catalog.tables import Table
    from pennon.core.job_model import RefreshSpec
    from pennon.storage.root import StorageRoot
    from pennon.tables.datasets import Datasets

Mode = Literal["no_op", "incremental", "rebuild"]


class PlannerServices(Protocol):
    """The services that planning needs."""

    @property
    def database(self) -> Database:
        """The catalog."""

    @property
    def datasets(self) -> Datasets:
        """The tables."""

    @property
    def storage_root(self) -> StorageRoot:
        """The storage root."""


@dataclass(frozen=True)
class SourceRead:
    """A source, opened at the version that a refresh reads."""

    source: Source
    table: Table
    dataset: LanceDataset
    #: The tag of its manifest if Pennon does not manage the table; detects a table that was created again.
    manifest: str | None = None

    @property
    def name(self) -> str:
        """The full name of the table."""
        return format_identifier(self.table.identifier)

    @property
    def is_pinned(self) -> bool:
        """Whether the query selects a version, instead of the newest."""
        return self.source.version is not None


@dataclass(frozen=True)
class PlannedRefresh:
    """What a refresh will do."""

    table: Table
    view: View
    definition: Definition
    reads: tuple[SourceRead, ...]
    mode: Mode
    reason: str
    after: Watermark
    #: The changes of the source, for an incremental refresh.
    changes: RowChanges = field(default_factory=RowChanges)

    @property
    def versions(self) -> dict[str, int]:
        """The versions that it reads, by table name."""
        return {read.name: read.dataset.version for read in self.reads}

    @property
    def rows(self) -> int:
        """The number of source rows that it computes."""
        if self.mode == "no_op":
            return 0
        if self.mode == "incremental":
            return len(self.changes.added) + len(self.changes.changed)
        return sum(read.dataset.count_rows() for read in self.reads)


class Planner:
    """Plans the refreshes of one view.

    Args:
        services: The catalog and the tables.
        table: The view's table.
        spec: The parameters of the refresh.
        held: Versions to read instead of the newest, by table id.
    """

    def __init__(
        self, services: PlannerServices, table: Table, spec: RefreshSpec, held: Mapping[str, int] | None = None
    ) -> None:
        self._services = services
        self._table = table
        self._spec = spec
        self._held = held or {}

    def plan(self) -> PlannedRefresh:
        """Compare the sources with the watermark of the view, and decide."""
        view = self._services.database.read(lambda connection: views.find(connection, self._table.id))
        if view is None:
            name = format_identifier(self._table.identifier)
            raise TableNotFoundError(f"{name!r} is no longer a materialized view.")
        definition = Definition.from_json(view.definition)
        reads = self.reads(definition)
        after = Watermark(
            # If a table is read both at a fixed and at the newest version, the newest one decides.
            versions={read.table.id: read.dataset.version for read in sorted(reads, key=_follows_newest)},
            trimmed_to=None,
            fields={read.table.id: self._fields(read) for read in reads},
            manifests={
                read.table.id: read.manifest for read in sorted(reads, key=_follows_newest) if read.manifest is not None
            },
        )
        mode, reason, changes = self._decide(view, definition, reads, after)
        if mode == "no_op" and view.watermark is not None:
            after = replace(after, trimmed_to=view.watermark.trimmed_to)
        return PlannedRefresh(self._table, view, definition, reads, mode, reason, after, changes)

    def reads(self, definition: Definition) -> tuple[SourceRead, ...]:
        """Open the sources of a view at the versions to read."""
        return tuple(self._read(source, first=at == 0) for at, source in enumerate(definition.sources))

    def _read(self, source: Source, *, first: bool) -> SourceRead:
        table = self._services.database.read(lambda connection: tables.find_by_id(connection, source.table_id))
        if table is None:
            name = format_identifier(source.identifier)
            raise TableNotFoundError(f"The source table {name!r} of the view was dropped.")
        version = source.version
        if version is None and first:
            version = self._spec.get("src_version")
        if version is None:
            version = self._held.get(table.id)
        handle = self._services.datasets.open(table, "", version)
        return SourceRead(source, table, handle.dataset, None if table.managed else handle.content)

    def _fields(self, read: SourceRead) -> dict[str, int]:
        try:
            return field_ids(read.dataset, read.source.columns)
        except TableColumnNotFoundError as error:
            raise TableColumnNotFoundError(
                f"The view reads a column that {read.name!r} no longer has: {error}"
            ) from None

    def _decide(
        self, view: View, definition: Definition, reads: tuple[SourceRead, ...], after: Watermark
    ) -> tuple[Mode, str, RowChanges]:
        before, limit = view.watermark, self._spec.get("output_limit")
        none = RowChanges()
        if before is None:
            return "rebuild", "The view was never refreshed.", none
        if self._spec.get("full"):
            return "rebuild", "A full refresh was requested.", none
        if before.trimmed_to != limit and (before.trimmed_to is not None or limit is not None):
            return "rebuild", "The output limit of the view has changed.", none
        if before.versions.keys() != after.versions.keys():
            return "rebuild", "The view reads different tables than before.", none
        known = before.fields
        new = [path for key, fields in after.fields.items() for path in fields if path not in known.get(key, fields)]
        if new:
            return "rebuild", f"The view has new columns of its sources: {', '.join(map(repr, new))}.", none
        if definition.volatile is not None:
            return "rebuild", f"The query uses {definition.volatile}, whose value changes over time.", none
        datasets = self._services.datasets
        following = [read for read in reads if not read.is_pinned]
        recreated = next((read.name for read in following if was_recreated(datasets, read.table, before)), None)
        if recreated is not None:
            return "rebuild", f"{recreated!r} was dropped and created again since the last refresh.", none
        if dict(before.versions) == dict(after.versions):
            return "no_op", "Nothing was written to its sources since the last refresh.", none
        return self._compare(view, definition, reads, before)

    def _compare(
        self, view: View, definition: Definition, reads: tuple[SourceRead, ...], before: Watermark
    ) -> tuple[Mode, str, RowChanges]:
        none, found = RowChanges(), RowChanges()
        for read in reads:
            known = before.versions[read.table.id]
            if known == read.dataset.version or read.is_pinned:
                continue
            if known > read.dataset.version:
                return "rebuild", f"An older version of {read.name!r} was requested.", none
            old = self._old(read, known)
            if old is None:
                return "rebuild", f"Version {known} of {read.name!r} is gone, so its changes are unknown.", none
            reason = self._drift(view, read, old, before)
            if reason is not None:
                return "rebuild", reason, none
            try:
                folder = self._services.storage_root.folder(read.table.location)
                writes = partial(self._services.datasets.column_writes, read.table, "", known, read.dataset.version)
                changes = compare(old, read.dataset, read.source.columns, folder, writes)
            except NotComparableError as error:
                reason = definition.rebuild_reason or f"{read.name!r} cannot be compared row by row: {error}."
                return "rebuild", reason, none
            if not changes.is_empty:
                if not definition.is_incremental:
                    return "rebuild", definition.rebuild_reason or "", none
                found = changes
        if found.is_empty:
            return "no_op", "No row that the view reads changed since the last refresh.", none
        if before.trimmed_to is not None:
            return "rebuild", "The view is limited to a part of its rows, so changes cannot be applied.", none
        return "incremental", "Each row of the view depends on one row of its source.", found

    def _old(self, read: SourceRead, version: int) -> LanceDataset | None:
        try:
            return self._services.datasets.at(read.table, "", version)
        except LanceNamespaceError:
            return None

    def _drift(self, view: View, read: SourceRead, old: LanceDataset, before: Watermark) -> str | None:
        """Return why the new schema of a source requires a rebuild; none if it does not."""
        new = new_columns(old, read.dataset)
        if new and view.on_schema_change != "ignore_new":
            named = ", ".join(map(repr, new))
            if view.on_schema_change == "fail":
                raise TableSchemaValidationError(
                    f"{read.name!r} has new columns ({named}), and the view's on_schema_change is 'fail'."
                )
            return f"{read.name!r} has new columns: {named}."
        known = before.fields.get(read.table.id, {})
        for path, number in self._fields(read).items():
            if path in known and known[path] != number:
                return f"The column {path!r} of {read.name!r} was created again, or has another type."
        return None


def _follows_newest(read: SourceRead) -> bool:
    return not read.is_pinned
