"""What a change of a table's columns means for what is computed from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pennon.catalog import views
from pennon.columns.declarations import read_inputs
from pennon.columns.feature_columns import feature_columns, find_feature_column
from pennon.commits.view_protection import refuse_view_write
from pennon.core.caller import current_caller
from pennon.core.identifiers import format_identifier
from pennon.namespace.dependents import DependentOperations, Dropped
from pennon.tables.arrow_json import text_map
from pennon.tables.field_metadata import COMPUTED_INPUTS_KEY, COMPUTED_KEY, INPUTS_KEY
from pennon.tables.field_paths import find_field, join_path, plain_path, split_path
from pennon.views.lineage.column_renames import rename_column, rename_field, rename_in
from pennon.views.lineage.dependents import columns_computed_from, overlaps, views_reading, with_views_above
from pennon.views.lineage.own_columns import own_columns
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from lance_namespace_urllib3_client.models import AlterColumnsEntry

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.views import Dependent

Note = Callable[["Connection"], str]


class ColumnEffect:
    """Follows one change: refuses it when something needs the columns, or takes what needs them along."""

    def __init__(self, operations: DependentOperations, table: Table, branch: str, *, cascade: bool) -> None:
        self._operations = operations
        self._table = table
        #: Views read main alone: what happens on a branch is nothing to them.
        self._on_main = not branch
        self._cascade = cascade
        self._principal = current_caller().principal  # not known any more where Lance commits
        self.dropped = Dropped()
        self._gone: list[str] = []
        self._renamed: dict[str, str] = {}
        self._retyped: list[str] = []

    def look_at_drop(self, dataset: Any, columns: Sequence[str]) -> list[str]:
        """Return the columns that go when some are dropped, or raise the error that names who needs them."""
        self._refuse_own(dataset, columns)
        computed = columns_computed_from(dataset, columns)
        self._gone = [*columns, *computed]
        self._check(columns, [] if self._cascade else computed)
        return self._gone

    def look_at_alterations(self, dataset: Any, entries: Sequence[AlterColumnsEntry]) -> None:
        """Take note of the columns that get another name or type, or raise the error that names who needs them."""
        schema = dataset.schema
        self._refuse_own(dataset, [entry.path for entry in entries])
        self._renamed = {
            plain_path(entry.path): entry.rename
            for entry in entries
            if entry.rename is not None and entry.rename != find_field(schema, entry.path).name
        }
        self._retyped = [entry.path for entry in entries if entry.data_type is not None]
        changed = [*self._renamed, *self._retyped]
        self._check(changed, [] if self._cascade else _columns_taking(dataset, changed))

    def follow(self, dataset: Any) -> None:
        """Let the columns of functions and expressions take their inputs by the new names."""
        top_level = {old: new for old, new in self._renamed.items() if len(split_path(old)) == 1}
        for path in feature_columns(dataset.schema) if top_level else []:
            before = text_map(find_field(dataset.schema, path).metadata)
            after = _with_new_inputs(before, top_level)
            if after != before:
                dataset.update_field_metadata({path: after})

    def noting(self, note: Note) -> Note:
        """Return a note that also does to views what the change means for them, in the same transaction."""

        def noted(connection: Connection) -> str:
            self._apply(connection)
            return note(connection)

        return noted

    def _check(self, columns: Sequence[str], computed: Sequence[str]) -> None:
        needing = self._operations.services.database.read(self._readers)
        self._settle(needing, columns, computed)

    def _settle(self, needing: Sequence[Dependent], columns: Sequence[str], computed: Sequence[str] = ()) -> None:
        names = ", ".join(repr(name) for name in columns)
        what = f"{'Column' if len(columns) == 1 else 'One of the columns'} {names}"
        # Whose query merely has to follow is not dropped.
        doomed = needing if self._gone or not self._cascade else []
        self._operations.settle(what, doomed, self._principal, cascade=self._cascade, columns=computed)

    def _readers(self, connection: Connection) -> list[Dependent]:
        if not self._on_main:
            return []
        changed = [*self._gone, *self._renamed, *self._retyped]
        found = views_reading(connection, self._table.id, changed)
        return with_views_above(connection, found) if self._gone and self._cascade else found

    def _apply(self, connection: Connection) -> None:
        needing = self._readers(connection)
        if self._table.managed:  # otherwise the change is made already
            self._settle(needing, [*self._gone, *self._renamed, *self._retyped])
        if self._gone:
            self._operations.drop_views(connection, needing, self.dropped)
            return
        for view in needing:
            self._rename(connection, view)
            retyped = [path for path in self._retyped if overlaps(view.columns, [path])]
            if retyped:
                self._mark(connection, view, f"column {retyped[0]!r} of {self._name} has another type")

    def _rename(self, connection: Connection, needing: Dependent) -> None:
        """Let a view read its columns by their new names; it is out of date when its query cannot follow."""
        view = views.find(connection, needing.view_id)
        if view is None:
            return
        definition: Definition | None = Definition.from_json(view.definition)
        watermark = view.watermark
        for old, new in self._renamed.items():
            if overlaps(needing.columns, [old]) and definition is not None:
                definition = rename_column(definition, self._table.id, old, new)
                watermark = rename_field(watermark, self._table.id, old, new) if watermark else None
                if definition is None:
                    self._mark(connection, needing, f"column {old!r} of {self._name} is called {new!r} now")
        if definition is not None:
            sources = {source.table_id: source.columns for source in definition.sources}
            views.redefine(connection, view.table_id, definition.to_json(), sources, watermark)

    def _mark(self, connection: Connection, view: Dependent, reason: str) -> None:
        views.mark_stale(connection, view.view_id, f"{reason[0].upper()}{reason[1:]}.")

    def _refuse_own(self, dataset: Any, paths: Sequence[str]) -> None:
        """Refuse to change columns that a view computes itself; those that were added to it are like any other."""
        if not self._table.is_view:
            return
        view = self._operations.services.database.read(lambda connection: views.find(connection, self._table.id))
        own = own_columns(Definition.from_json(view.definition), dataset.schema) if view else frozenset[str]()
        for path in paths:
            if split_path(path)[0] in own:
                refuse_view_write(self._table, f"its column {path!r} comes from its query")

    @property
    def _name(self) -> str:
        return repr(format_identifier(self._table.identifier))


def _columns_taking(dataset: Any, changed: Sequence[str]) -> list[str]:
    """Return the feature columns that take some columns themselves."""
    nearest = columns_computed_from(dataset, changed)
    return [name for name in nearest if overlaps(find_feature_column(dataset, name).inputs, changed)]


def _with_new_inputs(metadata: dict[str, str], renamed: dict[str, str]) -> dict[str, str]:
    changed = dict(metadata)
    for key in (INPUTS_KEY, COMPUTED_INPUTS_KEY):
        inputs = read_inputs(metadata, key)
        if inputs is not None:
            paths = [split_path(path) for path in inputs]
            changed[key] = json.dumps([join_path([renamed.get(first, first), *inner]) for first, *inner in paths])
    for old, new in renamed.items():
        if COMPUTED_KEY in changed:
            changed[COMPUTED_KEY] = rename_in(changed[COMPUTED_KEY], old, new)
    return changed
