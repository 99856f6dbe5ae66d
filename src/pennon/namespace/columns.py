"""Operations on columns and their metadata."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Required, TypedDict

import lance_namespace as ln
import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError, TableSchemaValidationError

from pennon.columns.declarations import binding_metadata, computed_metadata, store_function
from pennon.columns.feature_columns import expression_inputs, sibling_outputs
from pennon.namespace.column_dependents import ColumnDependents
from pennon.namespace.dependents import Dependents, wants_cascade
from pennon.namespace.functions import check_manifest, stored_function
from pennon.namespace.requests import request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import transaction_recorder
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.arrow_json import text_map, type_from_json, type_to_json
from pennon.tables.arrow_types import check_type, contains_type
from pennon.tables.blobs import check_metadata_change
from pennon.tables.field_metadata import COMPUTED_KEYS, IDENTITY_KEY, STRUCT_FIELD_KEY
from pennon.tables.field_paths import (
    find_field,
    has_field,
    join_path,
    path_expression,
    plain_path,
    split_path,
    stored_metadata,
)
from pennon.tables.query.column_names import check_long_names
from pennon.tables.query.expressions import SqlLimits, check_expression, check_written_size
from pennon.tables.query.row_sizes import batch_rows_for, row_sizes_of
from pennon.tables.schema_checks import check_column_names, check_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import lance
    from lance_namespace_urllib3_client.models import (
        AddColumnsEntry,
        AddVirtualColumnEntry,
        AddVirtualColumnOutputEntry,
        AlterColumnsEntry,
        AlterVirtualColumnEntry,
    )

    from pennon.catalog.tables import Table
    from pennon.core.arrow_typing import AnyField
    from pennon.core.identifiers import Identifier
    from pennon.storage.file_io import FileIO
    from pennon.tables.writer import OnCommit, WriteResult

    VirtualColumn = AddVirtualColumnEntry | AlterVirtualColumnEntry


class LanceAlteration(TypedDict, total=False):
    """A change of one column, as Lance takes it."""

    path: Required[str]
    name: str
    nullable: bool
    data_type: pa.DataType


@dataclass(frozen=True)
class ColumnOperations:
    """Add, alter and drop columns."""

    services: Services
    resolver: TableResolver
    dependents: Dependents

    def alter_table_add_columns(self, request: ln.AlterTableAddColumnsRequest) -> ln.AlterTableAddColumnsResponse:
        """Add columns: computed by an SQL expression now, or empty and filled by a backfill later."""
        request = request_as(ln.AlterTableAddColumnsRequest, request)
        table = self.resolver.table(table_id(request))
        if not request.new_columns:
            raise InvalidInputError("new_columns is empty; name at least one column to add.")
        folder = self.resolver.folder(table)
        self._check_functions(request.new_columns)

        def work(dataset: lance.LanceDataset) -> None:
            added = _names_of(request.new_columns)
            _refuse_existing(dataset, added)
            _refuse_cycles({name: _require_inputs(dataset, column, added) for name, column in _functions(request)})
            _add(dataset, request.new_columns, folder, self.services.sql_limits)

        written = self._change(table, request.branch, "AlterTableAddColumns", work)
        return ln.AlterTableAddColumnsResponse(version=written.version)

    def add_empty_columns(
        self, identifier: Identifier, schema: pa.Schema, branch: str | None
    ) -> ln.AlterTableAddColumnsResponse:
        """Add the columns of an Arrow schema, filled with nulls."""
        table = self.resolver.table(identifier)
        if not len(schema):
            raise InvalidInputError("The schema has no fields; name at least one column to add.")

        def work(dataset: lance.LanceDataset) -> None:
            check_schema(schema)
            _refuse_existing(dataset, schema.names)
            dataset.add_columns(schema)

        written = self._change(table, branch, "AlterTableAddColumns", work)
        return ln.AlterTableAddColumnsResponse(version=written.version)

    def alter_table_alter_columns(self, request: ln.AlterTableAlterColumnsRequest) -> ln.AlterTableAlterColumnsResponse:
        """Rename columns, change their type or nullability, or give them another function."""
        request = request_as(ln.AlterTableAlterColumnsRequest, request)
        table = self.resolver.table(table_id(request))
        if not request.alterations:
            raise InvalidInputError("alterations is empty; name at least one column to alter.")
        folder = self.resolver.folder(table)
        self._check_functions(request.alterations)
        dependents = self._dependents_of(table, request.branch, cascade=wants_cascade(request))

        def work(dataset: lance.LanceDataset) -> None:
            dependents.check_alterations(dataset, request.alterations)
            steps = _steps(dataset, _alterations(dataset.schema, request.alterations))
            named = {plain_path(entry.path) for entry in request.alterations if entry.virtual_column is not None}
            for entry in request.alterations:
                if entry.virtual_column is not None:
                    _require_inputs(dataset, entry.virtual_column, ())
            for entry in request.alterations:
                if entry.virtual_column is not None:
                    changes = _rebindings(dataset, folder, entry.path, entry.virtual_column, named)
                    for path, change in changes.items():
                        check_metadata_change(path, stored_metadata(dataset, path), change)
                    dataset.update_field_metadata(changes)
            for step in steps:
                dataset.alter_columns(*step)  # type: ignore[arg-type]  # Lance declares each alteration as an iterable
            dependents.rename_inputs(dataset)

        written = self._change(table, request.branch, "AlterTableAlterColumns", work, dependents)
        return ln.AlterTableAlterColumnsResponse(version=written.version)

    def alter_table_drop_columns(self, request: ln.AlterTableDropColumnsRequest) -> ln.AlterTableDropColumnsResponse:
        """Drop columns; with cascade, also the feature columns and views that are computed from them."""
        request = request_as(ln.AlterTableDropColumnsRequest, request)
        table = self.resolver.table(table_id(request))
        if not request.columns:
            raise InvalidInputError("columns is empty; name at least one column to drop.")
        dependents = self._dependents_of(table, request.branch, cascade=wants_cascade(request))

        def work(dataset: lance.LanceDataset) -> None:
            for path in request.columns:
                find_field(dataset.schema, path)
            dataset.drop_columns(dependents.check_drop(dataset, request.columns))

        written = self._change(table, request.branch, "AlterTableDropColumns", work, dependents)
        self.dependents.clean_up(dependents.dropped)
        return ln.AlterTableDropColumnsResponse(transaction_id=written.transaction_id, version=written.version)

    def update_field_metadata(self, request: ln.UpdateFieldMetadataRequest) -> ln.UpdateFieldMetadataResponse:
        """Change the metadata of fields; a null value removes its key."""
        request = request_as(ln.UpdateFieldMetadataRequest, request)
        table = self.resolver.table(table_id(request))

        def work(dataset: lance.LanceDataset) -> None:
            for entry in request.updates:
                before = stored_metadata(dataset, entry.path)
                check_metadata_change(entry.path, before, entry.metadata, replace=bool(entry.replace))
            for replace in (True, False):
                changes: dict[str, dict[str, str | None]] = {}
                for entry in request.updates:
                    if bool(entry.replace) == replace:
                        changes.setdefault(plain_path(entry.path), {}).update(entry.metadata)
                if changes:
                    dataset.update_field_metadata(changes, replace=replace)

        written = self._change(table, request.branch, "UpdateFieldMetadata", work)
        fields = self.services.datasets.at(table, check_branch(request.branch), written.version).schema
        metadata = {entry.path: text_map(find_field(fields, entry.path).metadata) for entry in request.updates}
        return ln.UpdateFieldMetadataResponse.model_validate(
            {"transaction_id": written.transaction_id, "version": written.version, "fields": metadata}
        )

    def update_table_schema_metadata(
        self, request: ln.UpdateTableSchemaMetadataRequest
    ) -> ln.UpdateTableSchemaMetadataResponse:
        """Replace the metadata of a table's schema."""
        request = request_as(ln.UpdateTableSchemaMetadataRequest, request)
        table = self.resolver.table(table_id(request))
        metadata = dict(request.metadata or {})

        def work(dataset: lance.LanceDataset) -> None:
            dataset.update_schema_metadata({**metadata}, replace=True)

        written = self._change(table, request.branch, "UpdateTableSchemaMetadata", work)
        return ln.UpdateTableSchemaMetadataResponse(metadata=metadata, transaction_id=written.transaction_id)

    def _check_functions(self, entries: Sequence[AddColumnsEntry | AlterColumnsEntry]) -> None:
        """Refuse functions with a manifest that no worker would install."""
        for entry in entries:
            if entry.virtual_column is not None:
                check_manifest(entry.virtual_column.manifest, self.services.settings)

    def _dependents_of(self, table: Table, branch: str | None, *, cascade: bool) -> ColumnDependents:
        return ColumnDependents(self.dependents, table, check_branch(branch), cascade=cascade)

    def _change(
        self,
        table: Table,
        branch: str | None,
        operation: str,
        work: Callable[[lance.LanceDataset], None],
        dependents: ColumnDependents | None = None,
    ) -> WriteResult:
        record: OnCommit = transaction_recorder(operation, table)
        if dependents is not None:
            record = dependents.recorder(record)
        _, written = self.services.writer.change(table, check_branch(branch), record, work)
        return written


def _names_of(entries: list[AddColumnsEntry]) -> list[str]:
    names: list[str] = []
    for entry in entries:
        names += [output.column for output in entry.virtual_column.outputs] if entry.virtual_column else [entry.name]
    return names


def _refuse_existing(dataset: lance.LanceDataset, names: list[str]) -> None:
    clashes = sorted(set(names) & set(dataset.schema.names))
    if clashes:
        raise TableSchemaValidationError(f"The column {clashes[0]!r} already exists.")
    check_column_names(names)


def _functions(request: ln.AlterTableAddColumnsRequest) -> Iterator[tuple[str, AddVirtualColumnEntry]]:
    """Yield each new feature column with its function."""
    for entry in request.new_columns:
        if entry.virtual_column is not None:
            yield from ((output.column, entry.virtual_column) for output in entry.virtual_column.outputs)


def _require_inputs(dataset: lance.LanceDataset, column: VirtualColumn, added: Collection[str]) -> set[str]:
    """Return the inputs of a function that are added columns; refuse inputs that do not exist."""
    found: set[str] = set()
    for path in column.input_columns or ():
        column_name = split_path(path)[0]
        if column_name in added:
            found.add(column_name)
        else:
            find_field(dataset.schema, path)
    return found


def _refuse_cycles(inputs: Mapping[str, set[str]]) -> None:
    """Refuse columns that are computed from each other in a cycle."""
    try:
        TopologicalSorter(inputs).prepare()
    except CycleError as error:
        names = " from ".join(repr(name) for name in reversed(error.args[1]))
        raise TableColumnNotFoundError(
            f"The columns are computed in a cycle: {names}. Name inputs that are in the table."
        ) from None


def _add(dataset: lance.LanceDataset, entries: list[AddColumnsEntry], folder: FileIO, limits: SqlLimits) -> None:
    """Add columns of all kinds: those with an expression in one commit, the empty ones in another."""
    expressions: dict[str, str] = {}
    empty: list[AnyField] = []
    for entry in entries:
        kinds = [entry.expression is not None, entry.computed is not None, entry.virtual_column is not None]
        if sum(kinds) != 1:
            raise InvalidInputError(
                f"The column {entry.name!r} needs exactly one of expression, computed or virtual_column."
            )
        checked = check_expression(entry.expression or entry.computed or "", limits)
        check_long_names(dataset, checked)
        if entry.expression is not None:
            expressions[entry.name] = checked
        elif entry.computed is not None:
            kind = dataset.scanner(columns={entry.name: checked}, limit=0).to_table().schema.field(0).type
            empty.append(pa.field(entry.name, kind, metadata=_expression_metadata(dataset, checked)))
        elif entry.virtual_column is not None:
            metadata = _binding(folder, entry.virtual_column)
            empty += [_output(output, metadata) for output in entry.virtual_column.outputs]
    check_schema(pa.schema(empty))
    if expressions:
        # With row ids, because Lance does not scan for constants only.
        for field in dataset.scanner(columns=expressions, with_row_id=True).projected_schema:
            check_type(field)
        check_written_size(dataset, expressions.values(), None, limits)
        sizes = row_sizes_of(dataset)
        row_bytes = sum(map(sizes.bytes_evaluated_by, expressions.values()))
        dataset.add_columns(expressions, batch_size=batch_rows_for(row_bytes))
    if empty:
        dataset.add_columns(empty)


def _expression_metadata(dataset: lance.LanceDataset, expression: str) -> dict[str, str]:
    return computed_metadata(expression, expression_inputs(dataset.schema, expression))


def _binding(folder: FileIO, column: VirtualColumn) -> dict[str, str]:
    """Store a function, and return the field metadata that binds a column to it."""
    return binding_metadata(column, store_function(folder, column))


def _rebindings(
    dataset: lance.LanceDataset, folder: FileIO, path: str, column: VirtualColumn, named: set[str]
) -> dict[str, dict[str, str | None]]:
    """Return the metadata changes, by path, of a column that gets another function, and of its sibling outputs.

    The outputs of one function are computed by one call, so they stay together: all outputs of the old function get the
    new one, unless it has only one output, or the request alters them itself.
    """
    own, field = plain_path(path), find_field(dataset.schema, path)
    before = text_map(field.metadata)
    changes = {path: _rebinding(folder, column, before)}
    outputs = _output_names(folder, changes[path])
    takes_all = not before.get(STRUCT_FIELD_KEY)
    if takes_all and len(outputs or ()) > 1 and not pa.types.is_struct(field.type):
        raise InvalidInputError(
            f"The new function of {own!r} has several outputs ({', '.join(outputs or ())}), and the column takes none "
            "of them. Give it a function with one output, or add a column for each output and drop this one."
        )
    if takes_all or (outputs is not None and len(outputs) == 1):
        return changes
    siblings = sibling_outputs(dataset, own, before)
    moving = [each for each in siblings if each.path == own or each.path not in named]
    lost = [each for each in moving if outputs is not None and each.struct_field not in outputs]
    if lost:
        together = ", ".join(repr(each.path) for each in siblings if each.path != own)
        missing = ", ".join(f"{each.struct_field!r} for {each.path!r}" for each in lost)
        raise InvalidInputError(
            f"One function fills {own!r} together with {together or 'no other column'}, but the new one has no output "
            f"{missing}; it has {', '.join(outputs or ())}. Give it that output, drop the column first, or alter "
            f"{own!r} to a function with one output, which leaves the other columns to the old one."
        )
    for each in moving:
        if each.path != own:
            changes[each.path] = _rebinding(folder, column, text_map(find_field(dataset.schema, each.path).metadata))
    return changes


def _output_names(folder: FileIO, metadata: dict[str, str | None]) -> list[str] | None:
    """Return the names of a function's outputs; None if it does not declare them."""
    reference = metadata.get("virtual_column.udf")
    outputs = () if reference is None else stored_function(folder, reference, "the column").outputs
    return [output.struct_field for output in outputs] or None


def _rebinding(folder: FileIO, column: VirtualColumn, before: dict[str, str]) -> dict[str, str | None]:
    """Return the metadata changes of a column that gets another function; None removes a key."""
    metadata: dict[str, str | None] = {**_binding(folder, column)}
    if IDENTITY_KEY in before:
        del metadata[IDENTITY_KEY]  # the column stays the same one, with its recorded state
    reference = metadata.get("virtual_column.udf")
    if reference is None:
        return metadata
    outputs = stored_function(folder, reference, repr(column.udf_name)).outputs
    if STRUCT_FIELD_KEY in before and len(outputs) == 1:
        metadata[STRUCT_FIELD_KEY] = outputs[0].struct_field or None
    return metadata | {key: None for key in COMPUTED_KEYS if key in before}


def _output(output: AddVirtualColumnOutputEntry, metadata: dict[str, str]) -> AnyField:
    own = {**(output.metadata or {}), **metadata}
    if output.struct_field:
        own[STRUCT_FIELD_KEY] = output.struct_field
    kind = type_from_json(output.data_type)
    if contains_type(_is_empty_struct, kind):
        raise TableSchemaValidationError(
            f"The type of {output.column!r} has a struct without fields, for which Lance cannot store nulls: {kind}."
        )
    # Nullable even if the function never returns null, because its rows are filled later.
    return pa.field(output.column, kind, metadata=own)


def _is_empty_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and not kind.num_fields


def _alterations(schema: pa.Schema, entries: list[AlterColumnsEntry]) -> list[LanceAlteration]:
    changes = [_alteration(schema, entry) for entry in entries]
    paths = [split_path(change["path"]) for change in changes]
    renamed = [[*path[:-1], change.get("name", path[-1])] for path, change in zip(paths, changes, strict=True)]
    for named in (paths, renamed):
        twice = [path for path in named if named.count(path) > 1]
        if twice:
            raise InvalidInputError(f"The alterations name the column {join_path(twice[0])!r} twice.")
    return changes


def _alteration(schema: pa.Schema, entry: AlterColumnsEntry) -> LanceAlteration:
    field = find_field(schema, entry.path)
    change: LanceAlteration = {"path": entry.path}
    if entry.rename is not None and entry.rename != field.name:
        check_column_names([entry.rename])
        if has_field(schema, [*split_path(entry.path)[:-1], entry.rename]):
            raise TableSchemaValidationError(f"The column {entry.rename!r} already exists.")
        change["name"] = entry.rename
    if entry.nullable is not None:
        change["nullable"] = entry.nullable
    kind = None if entry.data_type is None else type_from_json(entry.data_type)
    if kind is not None and type_to_json(kind) != type_to_json(field.type):  # Lance cannot cast every type to itself
        check_type(pa.field(field.name, kind))
        change["data_type"] = kind
    if len(change) == 1 and entry.virtual_column is None and entry.rename is None and kind is None:
        raise InvalidInputError(f"The alteration of {entry.path!r} changes nothing.")
    return change


def _steps(dataset: lance.LanceDataset, changes: list[LanceAlteration]) -> list[list[LanceAlteration]]:
    """Split alterations into commits that Lance supports.

    A commit that changes types can make the columns it changes nullable, but no others, and none of them required.
    """
    changes = [change for change in changes if len(change) > 1]
    separate = [it for it in changes if "nullable" in it and not (it["nullable"] and "data_type" in it)]
    if not separate or not any("data_type" in change for change in changes):
        return [changes] if changes else []
    # Checked first: if the second commit failed, the first one would stay.
    for path in [change["path"] for change in separate if not change["nullable"]]:
        if dataset.count_rows(f"{path_expression(path)} IS NULL"):
            raise TableSchemaValidationError(f"The column {path!r} holds nulls.")
    types: list[LanceAlteration] = [
        {"path": change["path"], "data_type": change["data_type"]} for change in changes if "data_type" in change
    ]
    others = [_without_type(change) for change in changes]
    return [types, [change for change in others if len(change) > 1]]


def _without_type(change: LanceAlteration) -> LanceAlteration:
    rest = change.copy()
    rest.pop("data_type", None)
    return rest
