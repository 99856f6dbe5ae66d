"""Operations on columns and their metadata."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsRequest,
    AlterTableAlterColumnsResponse,
    AlterTableDropColumnsRequest,
    AlterTableDropColumnsResponse,
    UpdateFieldMetadataRequest,
    UpdateFieldMetadataResponse,
    UpdateTableSchemaMetadataRequest,
    UpdateTableSchemaMetadataResponse,
)
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError, TableSchemaValidationError

from pennon.columns.declarations import binding_metadata, computed_metadata, store_function
from pennon.columns.feature_columns import expression_inputs, sibling_outputs
from pennon.namespace.column_effects import ColumnEffect
from pennon.namespace.dependents import DependentOperations, wants_cascade
from pennon.namespace.feature_columns import stored_function
from pennon.namespace.function_environments import check_manifest
from pennon.namespace.operations import request_as, table_id, transaction_recorder
from pennon.storage.layout import check_branch
from pennon.tables.arrow_json import text_map, type_from_json, type_to_json
from pennon.tables.arrow_types import check_type, holds
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
from pennon.tables.query.expressions import SqlLimits, check_expression, check_written_size
from pennon.tables.writer import check_column_names, check_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lance_namespace_urllib3_client.models import (
        AddColumnsEntry,
        AddVirtualColumnEntry,
        AlterColumnsEntry,
        AlterVirtualColumnEntry,
    )

    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier
    from pennon.storage.file_io import FileIO
    from pennon.tables.writer import Written


class ColumnOperations(DependentOperations):
    """Add, alter and drop columns."""

    def alter_table_add_columns(self, request: AlterTableAddColumnsRequest) -> AlterTableAddColumnsResponse:
        """Add columns: filled by an SQL expression, or empty with what will fill them later."""
        request = request_as(AlterTableAddColumnsRequest, request)
        table = self._table(table_id(request))
        if not request.new_columns:
            raise InvalidInputError("The request names no column to add.")
        folder = self.services.storage_root.folder(table.location)
        self._check_functions(request.new_columns)

        def work(dataset: Any) -> None:
            added = _names_of(request.new_columns)
            _refuse_existing(dataset, added)
            _refuse_cycles({name: _require_inputs(dataset, column, added) for name, column in _functions(request)})
            _add(dataset, request.new_columns, folder, self.services.sql_limits)

        written = self._change(table, request.branch, "AlterTableAddColumns", work)
        return AlterTableAddColumnsResponse(version=written.version)

    def add_empty_columns(
        self, identifier: Identifier, schema: pa.Schema, branch: str | None
    ) -> AlterTableAddColumnsResponse:
        """Add columns of an Arrow schema, without values."""
        table = self._table(identifier)
        if not len(schema):
            raise InvalidInputError("The schema names no column to add.")

        def work(dataset: Any) -> None:
            check_schema(schema)
            _refuse_existing(dataset, schema.names)
            dataset.add_columns(schema)

        written = self._change(table, branch, "AlterTableAddColumns", work)
        return AlterTableAddColumnsResponse(version=written.version)

    def alter_table_alter_columns(self, request: AlterTableAlterColumnsRequest) -> AlterTableAlterColumnsResponse:
        """Rename columns, change their type or nullability, or give them another function."""
        request = request_as(AlterTableAlterColumnsRequest, request)
        table = self._table(table_id(request))
        if not request.alterations:
            raise InvalidInputError("The request names no column to alter.")
        folder = self.services.storage_root.folder(table.location)
        self._check_functions(request.alterations)
        effect = self._effect_on(table, request.branch, cascade=wants_cascade(request))

        def work(dataset: Any) -> None:
            effect.look_at_alterations(dataset, request.alterations)
            steps = _steps(dataset, _alterations(dataset.schema, request.alterations))
            named = {plain_path(entry.path) for entry in request.alterations if entry.virtual_column is not None}
            for entry in request.alterations:
                if entry.virtual_column is not None:
                    _require_inputs(dataset, entry.virtual_column, ())
            for entry in request.alterations:
                if entry.virtual_column is not None:
                    changes = _rebindings(dataset, folder, entry, named)
                    for path, change in changes.items():
                        check_metadata_change(path, stored_metadata(dataset, path), change)
                    dataset.update_field_metadata(changes)
            for step in steps:
                dataset.alter_columns(*step)
            effect.follow(dataset)

        written = self._change(table, request.branch, "AlterTableAlterColumns", work, effect)
        return AlterTableAlterColumnsResponse(version=written.version)

    def alter_table_drop_columns(self, request: AlterTableDropColumnsRequest) -> AlterTableDropColumnsResponse:
        """Drop columns; with cascade, also the columns and views that are computed from them."""
        request = request_as(AlterTableDropColumnsRequest, request)
        table = self._table(table_id(request))
        if not request.columns:
            raise InvalidInputError("The request names no column to drop.")
        effect = self._effect_on(table, request.branch, cascade=wants_cascade(request))

        def work(dataset: Any) -> None:
            for path in request.columns:
                find_field(dataset.schema, path)
            dataset.drop_columns(effect.look_at_drop(dataset, request.columns))

        written = self._change(table, request.branch, "AlterTableDropColumns", work, effect)
        self._finish(effect.dropped)
        return AlterTableDropColumnsResponse(transaction_id=written.transaction_id, version=written.version)

    def update_field_metadata(self, request: UpdateFieldMetadataRequest) -> UpdateFieldMetadataResponse:
        """Change the metadata of fields; a null value removes its key."""
        request = request_as(UpdateFieldMetadataRequest, request)
        table = self._table(table_id(request))

        def work(dataset: Any) -> None:
            for entry in request.updates:
                before = stored_metadata(dataset, entry.path)
                check_metadata_change(entry.path, before, entry.metadata, replace=bool(entry.replace))
            for replace in (True, False):
                changes: dict[str, dict[str, Any]] = {}
                for entry in request.updates:
                    if bool(entry.replace) == replace:
                        changes.setdefault(plain_path(entry.path), {}).update(entry.metadata)
                if changes:
                    dataset.update_field_metadata(changes, replace=replace)

        written = self._change(table, request.branch, "UpdateFieldMetadata", work)
        fields = self.services.datasets.at(table, check_branch(request.branch), written.version).schema
        metadata = {entry.path: text_map(find_field(fields, entry.path).metadata) for entry in request.updates}
        return UpdateFieldMetadataResponse.model_validate(
            {"transaction_id": written.transaction_id, "version": written.version, "fields": metadata}
        )

    def update_table_schema_metadata(
        self, request: UpdateTableSchemaMetadataRequest
    ) -> UpdateTableSchemaMetadataResponse:
        """Replace the metadata of a table's schema."""
        request = request_as(UpdateTableSchemaMetadataRequest, request)
        table = self._table(table_id(request))
        metadata = dict(request.metadata or {})

        def work(dataset: Any) -> None:
            dataset.update_schema_metadata(metadata, replace=True)

        written = self._change(table, request.branch, "UpdateTableSchemaMetadata", work)
        return UpdateTableSchemaMetadataResponse(metadata=metadata, transaction_id=written.transaction_id)

    def _check_functions(self, entries: Sequence[AddColumnsEntry | AlterColumnsEntry]) -> None:
        """Refuse functions whose manifest no worker would install."""
        for entry in entries:
            if entry.virtual_column is not None:
                check_manifest(entry.virtual_column.manifest, self.services.settings)

    def _effect_on(self, table: Table, branch: str | None, *, cascade: bool) -> ColumnEffect:
        return ColumnEffect(self, table, check_branch(branch), cascade=cascade)

    def _change(
        self,
        table: Table,
        branch: str | None,
        operation: str,
        work: Callable[[Any], None],
        effect: ColumnEffect | None = None,
    ) -> Written:
        note = transaction_recorder(operation, table)
        noted = note if effect is None else effect.noting(note)
        _, written = self.services.writer.change(table, check_branch(branch), noted, work)
        return written


def _names_of(entries: list[AddColumnsEntry]) -> list[str]:
    names: list[str] = []
    for entry in entries:
        names += [output.column for output in entry.virtual_column.outputs] if entry.virtual_column else [entry.name]
    return names


def _refuse_existing(dataset: Any, names: list[str]) -> None:
    clashes = sorted(set(names) & set(dataset.schema.names))
    if clashes:
        raise TableSchemaValidationError(f"The column {clashes[0]!r} already exists.")
    check_column_names(names)


def _functions(request: AlterTableAddColumnsRequest) -> Iterator[tuple[str, AddVirtualColumnEntry]]:
    """Yield each column that a function fills."""
    for entry in request.new_columns:
        if entry.virtual_column is not None:
            yield from ((output.column, entry.virtual_column) for output in entry.virtual_column.outputs)


def _require_inputs(
    dataset: Any, column: AddVirtualColumnEntry | AlterVirtualColumnEntry, added: Collection[str]
) -> set[str]:
    """Return the inputs of a function among the added columns; refuse one that is no column of the table either."""
    found: set[str] = set()
    for path in column.input_columns or ():
        head = split_path(path)[0]
        if head in added:
            found.add(head)
        else:
            find_field(dataset.schema, path)
    return found


def _refuse_cycles(inputs: Mapping[str, set[str]]) -> None:
    """Refuse columns that are computed from themselves: they would have no values to begin with."""
    try:
        TopologicalSorter(inputs).prepare()
    except CycleError as error:
        names = " from ".join(repr(name) for name in reversed(error.args[1]))
        raise TableColumnNotFoundError(
            f"There is no column to begin with: {names} is computed. Name inputs that are in the table."
        ) from None


def _add(dataset: Any, entries: list[AddColumnsEntry], folder: FileIO, limits: SqlLimits) -> None:
    """Add columns of all kinds: the empty ones in one commit, those of expressions in another."""
    expressions: dict[str, str] = {}
    empty: list[pa.Field] = []
    for entry in entries:
        kinds = [entry.expression is not None, entry.computed is not None, entry.virtual_column is not None]
        if sum(kinds) != 1:
            raise InvalidInputError(f"The column {entry.name!r} needs one of expression, computed or virtual_column.")
        checked = check_expression(entry.expression or entry.computed or "", limits)
        if entry.expression is not None:
            expressions[entry.name] = checked
        elif entry.computed is not None:
            kind = dataset.scanner(columns={entry.name: checked}, limit=0).to_table().schema.field(0).type
            empty.append(pa.field(entry.name, kind, metadata=_declare(dataset, checked)))
        elif entry.virtual_column is not None:
            metadata = _binding(folder, entry.virtual_column)
            empty += [_output(output, metadata) for output in entry.virtual_column.outputs]
    check_schema(pa.schema(empty))
    if expressions:
        # With row ids, because Lance does not scan for constants alone.
        for field in dataset.scanner(columns=expressions, with_row_id=True).projected_schema:
            check_type(field)
        check_written_size(dataset, expressions.values(), None, limits)
        dataset.add_columns(expressions)
    if empty:
        dataset.add_columns(empty)


def _declare(dataset: Any, expression: str) -> dict[str, str]:
    return computed_metadata(expression, expression_inputs(dataset.schema, expression))


def _binding(folder: FileIO, column: Any) -> dict[str, str]:
    """Keep a function and return what ties a column to it."""
    return binding_metadata(column, store_function(folder, column))


def _rebindings(
    dataset: Any, folder: FileIO, entry: AlterColumnsEntry, named: set[str]
) -> dict[str, dict[str, str | None]]:
    """Return what changes in the metadata of a column that gets another function, and of the outputs that go with it.

    Several outputs are of one call, so they stay together: unless the new function has one output only, or the request
    names them itself, the other outputs of the old function get the new one, too.
    """
    column, own = entry.virtual_column, plain_path(entry.path)
    before = text_map(find_field(dataset.schema, entry.path).metadata)
    changes = {entry.path: _rebinding(folder, column, before)}
    outputs = _stated_outputs(folder, changes[entry.path])
    takes_all = not before.get(STRUCT_FIELD_KEY)
    if takes_all and len(outputs or ()) > 1 and not pa.types.is_struct(find_field(dataset.schema, entry.path).type):
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


def _stated_outputs(folder: FileIO, metadata: dict[str, str | None]) -> list[str] | None:
    """Return the names of a function's outputs; none where it does not state them."""
    reference = metadata.get("virtual_column.udf")
    outputs = () if reference is None else stored_function(folder, reference, "the column").outputs
    return [output.struct_field for output in outputs] or None


def _rebinding(folder: FileIO, column: Any, before: dict[str, str]) -> dict[str, str | None]:
    """Return what changes in the metadata of a column that something filled before; null where a key goes."""
    metadata: dict[str, str | None] = {**_binding(folder, column)}
    if IDENTITY_KEY in before:
        del metadata[IDENTITY_KEY]  # it is the same column: what is known of its values stays true
    reference = metadata.get("virtual_column.udf")
    if reference is None:
        return metadata
    outputs = stored_function(folder, reference, repr(column.udf_name)).outputs
    if STRUCT_FIELD_KEY in before and len(outputs) == 1:
        metadata[STRUCT_FIELD_KEY] = outputs[0].struct_field or None
    return metadata | {key: None for key in COMPUTED_KEYS if key in before}


def _output(output: Any, metadata: dict[str, str]) -> pa.Field:
    own = {**(output.metadata or {}), **metadata}
    if output.struct_field:
        own[STRUCT_FIELD_KEY] = output.struct_field
    kind = type_from_json(output.data_type)
    if holds(_is_empty_struct, kind):
        raise TableSchemaValidationError(
            f"The type of {output.column!r} has a struct without fields, of which Lance cannot store nulls: {kind}."
        )
    # Rows are filled later, so a new column can hold nulls whatever its function promises.
    return pa.field(output.column, kind, metadata=own)


def _is_empty_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and not kind.num_fields


def _alterations(schema: pa.Schema, entries: list[AlterColumnsEntry]) -> list[dict[str, Any]]:
    changes = [_alteration(schema, entry) for entry in entries]
    paths = [split_path(change["path"]) for change in changes]
    renamed = [[*path[:-1], change.get("name", path[-1])] for path, change in zip(paths, changes, strict=True)]
    for named in (paths, renamed):
        twice = [path for path in named if named.count(path) > 1]
        if twice:
            raise InvalidInputError(f"The alterations name the column {join_path(twice[0])!r} twice.")
    return changes


def _alteration(schema: pa.Schema, entry: AlterColumnsEntry) -> dict[str, Any]:
    field = find_field(schema, entry.path)
    change: dict[str, Any] = {"path": entry.path}
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


def _steps(dataset: Any, changes: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return alterations as Lance can carry them out.

    The commit that changes types can let columns of these have nulls, and no others; nor can it forbid nulls.
    """
    changes = [change for change in changes if len(change) > 1]
    apart = [it for it in changes if "nullable" in it and not (it["nullable"] and "data_type" in it)]
    if not apart or not any("data_type" in change for change in changes):
        return [changes] if changes else []
    # Looked for first: what fails in the second commit would leave the first one behind.
    for path in [change["path"] for change in apart if not change["nullable"]]:
        if dataset.count_rows(f"{path_expression(path)} IS NULL"):
            raise TableSchemaValidationError(f"The column {path!r} holds nulls.")
    types = [{"path": change["path"], "data_type": change["data_type"]} for change in changes if "data_type" in change]
    others = [{key: value for key, value in change.items() if key != "data_type"} for change in changes]
    return [types, [change for change in others if len(change) > 1]]
