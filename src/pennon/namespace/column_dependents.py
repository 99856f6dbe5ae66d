"""Dependents of the columns of one table: what a change of columns does to feature columns and views."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pennon.catalog import views
from pennon.columns.declarations import read_inputs
from pennon.columns.feature_columns import feature_columns, find_feature_column
from pennon.commits.view_protection import refuse_view_write
from pennon.core.caller import current_caller
from pennon.core.identifiers import format_identifier
from pennon.namespace.dependents import Dependents, Dropped
from pennon.tables.arrow_json import text_map
from pennon.tables.field_metadata import COMPUTED_INPUTS_KEY, COMPUTED_KEY, INPUTS_KEY
from pennon.tables.field_paths import find_field, join_path, plain_path, split_path
from pennon.views.lineage.column_renames import rename_column, rename_field, rename_in_expression
from pennon.views.lineage.dependents import columns_computed_from, overlaps, views_reading, with_downstream_views
from pennon.views.lineage.own_columns import own_columns
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    import lance
    from lance_namespace_urllib3_client.models import AlterColumnsEntry

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.views import Dependent
    from pennon.tables.writer import OnCommit


class ColumnDependents:
    """Handles the dependents of the columns that one request drops or alters.

    Without cascade, dependents prevent the change. With cascade, a drop drops them too, a rename renames the column in
    them, and a new type marks views as stale.
    """

    def __init__(self, dependents: Dependents, table: Table, branch: str, *, cascade: bool) -> None:
        self._dependents = dependents
        self._database = dependents.services.database
        self._table = table
        #: Views read main only, so a change on a branch does not concern them.
        self._on_main = not branch
        self._cascade = cascade
        self._principal = current_caller().principal  # unknown on the threads on which Lance commits
        self.dropped = Dropped()
        self._to_drop: list[str] = []
        self._renamed: dict[str, str] = {}
        self._retyped: list[str] = []

    def check_drop(self, dataset: lance.LanceDataset, columns: Sequence[str]) -> list[str]:
        """Return all columns that a drop of some columns drops, or raise the error that names their dependents."""
        self._refuse_own(dataset, columns)
        computed = columns_computed_from(dataset, columns)
        self._to_drop = [*columns, *computed]
        self._check(columns, [] if self._cascade else computed)
        return self._to_drop

    def check_alterations(self, dataset: lance.LanceDataset, entries: Sequence[AlterColumnsEntry]) -> None:
        """Remember the columns that get another name or type, or raise the error that names their dependents."""
        schema = dataset.schema
        self._refuse_own(dataset, [entry.path for entry in entries])
        self._renamed = {
            plain_path(entry.path): entry.rename
            for entry in entries
            if entry.rename is not None and entry.rename != find_field(schema, entry.path).name
        }
        self._retyped = [entry.path for entry in entries if entry.data_type is not None]
        changed = [*self._renamed, *self._retyped]
        self._check(changed, [] if self._cascade else _direct_dependents(dataset, changed))

    def rename_inputs(self, dataset: lance.LanceDataset) -> None:
        """Rename the inputs of feature columns that were computed from renamed columns."""
        top_level = {old: new for old, new in self._renamed.items() if len(split_path(old)) == 1}
        for path in feature_columns(dataset.schema) if top_level else []:
            before = text_map(find_field(dataset.schema, path).metadata)
            after = _with_renamed_inputs(before, top_level)
            if after != before:
                dataset.update_field_metadata({path: {**after}})

    def recorder(self, record: OnCommit) -> OnCommit:
        """Return a recorder that also changes the dependent views, in the same transaction."""

        def record_with_views(connection: Connection) -> str:
            self._change_views(connection)
            return record(connection)

        return record_with_views

    def _check(self, columns: Sequence[str], computed: Sequence[str]) -> None:
        self._check_views(self._database.read(self._dependent_views), columns, computed)

    def _check_views(
        self, needed_by: Sequence[Dependent], columns: Sequence[str], computed: Sequence[str] = ()
    ) -> None:
        names = ", ".join(repr(name) for name in columns)
        what = f"{'Column' if len(columns) == 1 else 'One of the columns'} {names}"
        # With cascade, views that only need their query rewritten are not dropped.
        to_drop = needed_by if self._to_drop or not self._cascade else []
        self._dependents.check(what, to_drop, self._principal, cascade=self._cascade, columns=computed)

    def _dependent_views(self, connection: Connection) -> list[Dependent]:
        if not self._on_main:
            return []
        changed = [*self._to_drop, *self._renamed, *self._retyped]
        found = views_reading(connection, self._table.id, changed)
        return with_downstream_views(connection, found) if self._to_drop and self._cascade else found

    def _change_views(self, connection: Connection) -> None:
        needed_by = self._dependent_views(connection)
        if self._table.managed:  # otherwise Lance has committed the change already
            self._check_views(needed_by, [*self._to_drop, *self._renamed, *self._retyped])
        if self._to_drop:
            self._dependents.drop_views(connection, needed_by, self.dropped)
            return
        for view in needed_by:
            self._rename(connection, view)
            retyped = [path for path in self._retyped if overlaps(view.columns, [path])]
            if retyped:
                self._mark_stale(connection, view, f"Column {retyped[0]!r} of {self._name} has another type.")

    def _rename(self, connection: Connection, dependent: Dependent) -> None:
        """Rename columns in the definition of a view, or mark it as stale if its query cannot be rewritten."""
        view = views.find(connection, dependent.view_id)
        if view is None:
            return
        definition: Definition | None = Definition.from_json(view.definition)
        watermark = view.watermark
        for old, new in self._renamed.items():
            if overlaps(dependent.columns, [old]) and definition is not None:
                definition = rename_column(definition, self._table.id, old, new)
                watermark = rename_field(watermark, self._table.id, old, new) if watermark else None
                if definition is None:
                    self._mark_stale(connection, dependent, f"Column {old!r} of {self._name} was renamed to {new!r}.")
        if definition is not None:
            sources = {source.table_id: source.columns for source in definition.sources}
            views.redefine(connection, view.table_id, definition.to_json(), sources, watermark)

    def _mark_stale(self, connection: Connection, view: Dependent, reason: str) -> None:
        views.mark_stale(connection, view.view_id, reason)

    def _refuse_own(self, dataset: lance.LanceDataset, paths: Sequence[str]) -> None:
        """Refuse to change columns that a view's query computes; columns added to the view may be changed."""
        if not self._table.is_view:
            return
        view = self._database.read(lambda connection: views.find(connection, self._table.id))
        own = own_columns(Definition.from_json(view.definition), dataset.schema) if view else frozenset[str]()
        for path in paths:
            if split_path(path)[0] in own:
                refuse_view_write(self._table, f"its column {path!r} comes from its query")

    @property
    def _name(self) -> str:
        return repr(format_identifier(self._table.identifier))


def _direct_dependents(dataset: lance.LanceDataset, changed: Sequence[str]) -> list[str]:
    """Return the feature columns that have one of some columns as an input."""
    computed = columns_computed_from(dataset, changed)
    return [name for name in computed if overlaps(find_feature_column(dataset, name).inputs, changed)]


def _with_renamed_inputs(metadata: dict[str, str], renamed: dict[str, str]) -> dict[str, str]:
    changed = dict(metadata)
    for key in (INPUTS_KEY, COMPUTED_INPUTS_KEY):
        inputs = read_inputs(metadata, key)
        if inputs is not None:
            paths = [split_path(path) for path in inputs]
            changed[key] = json.dumps([join_path([renamed.get(first, first), *inner]) for first, *inner in paths])
    for old, new in renamed.items():
        if COMPUTED_KEY in changed:
            changed[COMPUTED_KEY] = rename_in_expression(changed[COMPUTED_KEY], old, new)
    return changed
