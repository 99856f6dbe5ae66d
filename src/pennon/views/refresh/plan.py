"""What a refresh has to do: nothing, to follow the changes of its source, or to compute the view anew; and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

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
from pennon.views.refresh.changes import Changes, NotComparableError, compare, field_ids, new_columns
from pennon.views.refresh.freshness import was_remade

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.catalog.tables import Table
    from pennon.storage.root import StorageRoot
    from pennon.tables.datasets import Datasets

Mode = Literal["no_op", "incremental", "rebuild"]


class PlannerServices(Protocol):
    """What planning takes: the catalog, and the tables as they are or were, with their folders."""

    @property
    def database(self) -> Database:
        """The catalog."""

    @property
    def datasets(self) -> Datasets:
        """The tables."""

    @property
    def storage_root(self) -> StorageRoot:
        """Where they are."""


@dataclass(frozen=True)
class Read:
    """A source at the version that a refresh reads."""

    source: Source
    table: Table
    dataset: Any
    #: What tells its manifest from another one of the same number, where Pennon does not manage the table.
    manifest: str | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return format_identifier(self.table.identifier)


@dataclass(frozen=True)
class RefreshPlan:
    """What a refresh is going to do."""

    table: Table
    view: View
    definition: Definition
    reads: tuple[Read, ...]
    mode: Mode
    reason: str
    after: Watermark
    #: Of the one source of an incremental refresh.
    changes: Changes = field(default_factory=Changes)

    @property
    def versions(self) -> dict[str, int]:
        """The versions it reads, by the names of the tables."""
        return {read.name: read.dataset.version for read in self.reads}

    @property
    def rows(self) -> int:
        """How many rows of the source it computes."""
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
        spec: What the refresh is asked for.
        held: Versions of tables, by their ids, that are read instead of the newest.
    """

    def __init__(
        self, services: PlannerServices, table: Table, spec: Mapping[str, Any], held: Mapping[str, int] | None = None
    ) -> None:
        self._services = services
        self._table = table
        self._spec = spec
        self._held = held or {}

    def plan(self) -> RefreshPlan:
        """Look at the sources as they are now, and decide."""
        view = self._services.database.read(lambda connection: views.find(connection, self._table.id))
        if view is None:
            name = format_identifier(self._table.identifier)
            raise TableNotFoundError(f"{name!r} is not a materialized view any more.")
        definition = Definition.from_json(view.definition)
        reads = self.reads(definition)
        after = Watermark(
            # A table may be read at a fixed version, too; what can change is what tells whether anything did.
            versions={read.table.id: read.dataset.version for read in sorted(reads, key=_moves)},
            trimmed_to=None,
            fields={read.table.id: self._fields(read) for read in reads},
            manifests={read.table.id: read.manifest for read in sorted(reads, key=_moves) if read.manifest is not None},
        )
        mode, reason, changes = self._decide(view, definition, reads, after)
        if mode == "no_op" and view.watermark is not None:
            after = replace(after, trimmed_to=view.watermark.trimmed_to)
        return RefreshPlan(self._table, view, definition, reads, mode, reason, after, changes)

    def reads(self, definition: Definition) -> tuple[Read, ...]:
        """Open the sources of a view at the versions that a refresh reads."""
        return tuple(self._read(source, first=at == 0) for at, source in enumerate(definition.sources))

    def _read(self, source: Source, *, first: bool) -> Read:
        table = self._services.database.read(lambda connection: tables.find_by_id(connection, source.table_id))
        if table is None:
            name = format_identifier(source.identifier)
            raise TableNotFoundError(f"The table {name!r}, which the view reads, was dropped.")
        version = source.version
        if version is None and first:
            version = self._spec.get("src_version")
        if version is None:
            version = self._held.get(table.id)
        handle = self._services.datasets.open(table, "", version)
        return Read(source, table, handle.dataset, None if table.managed else handle.content)

    def _fields(self, read: Read) -> dict[str, int]:
        try:
            return field_ids(read.dataset, read.source.columns)
        except TableColumnNotFoundError as error:
            raise TableColumnNotFoundError(
                f"The view needs a column that {read.name!r} does not have any more: {error}"
            ) from None

    def _decide(
        self, view: View, definition: Definition, reads: tuple[Read, ...], after: Watermark
    ) -> tuple[Mode, str, Changes]:
        before, limit = view.watermark, self._spec.get("output_limit")
        none = Changes()
        if before is None:
            return "rebuild", "The view was never refreshed.", none
        if self._spec.get("full"):
            return "rebuild", "A full refresh was asked for.", none
        if before.trimmed_to != limit and (before.trimmed_to is not None or limit is not None):
            return "rebuild", "The number of rows that the view may have is another than before.", none
        if before.versions.keys() != after.versions.keys():
            return "rebuild", "The view reads other tables than before.", none
        known = before.fields
        new = [path for key, fields in after.fields.items() for path in fields if path not in known.get(key, fields)]
        if new:
            return "rebuild", f"The view shows new columns of its sources: {', '.join(map(repr, new))}.", none
        if definition.volatile is not None:
            return "rebuild", f"The query uses {definition.volatile}, which changes by itself.", none
        datasets = self._services.datasets
        remade = next((read.name for read in reads if _moves(read) and was_remade(datasets, read.table, before)), None)
        if remade is not None:
            return "rebuild", f"{remade!r} was dropped and made again since the last refresh.", none
        if dict(before.versions) == dict(after.versions):
            return "no_op", "Nothing was written to its sources since the last refresh.", none
        return self._compare(view, definition, reads, before)

    def _compare(
        self, view: View, definition: Definition, reads: tuple[Read, ...], before: Watermark
    ) -> tuple[Mode, str, Changes]:
        none, found = Changes(), Changes()
        for read in reads:
            known = before.versions[read.table.id]
            if known == read.dataset.version or not _moves(read):
                continue
            if known > read.dataset.version:
                return "rebuild", f"An older version of {read.name!r} was asked for.", none
            old = self._old(read, known)
            if old is None:
                return "rebuild", f"Version {known} of {read.name!r} is gone, so nobody knows what changed.", none
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
            if not changes.none:
                if not definition.is_incremental:
                    return "rebuild", definition.rebuild_reason or "", none
                found = changes
        if found.none:
            return "no_op", "No row that the view reads changed since the last refresh.", none
        if before.trimmed_to is not None:
            return "rebuild", "The view does not have all of its rows, so that it cannot follow changes.", none
        return "incremental", "Each row of the view comes from one row of its source.", found

    def _old(self, read: Read, version: int) -> Any:
        try:
            return self._services.datasets.at(read.table, "", version)
        except LanceNamespaceError:
            return None

    def _drift(self, view: View, read: Read, old: Any, before: Watermark) -> str | None:
        """Return why a source with another schema than before makes the view be computed anew; none if it does not."""
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
                return f"The column {path!r} of {read.name!r} was made anew, or has another type."
        return None


def _moves(read: Read) -> bool:
    """Tell whether a source is read at its newest version, and not at a fixed one."""
    return read.source.version is None
