"""Compilation of the query of a view into its definition, with all checks that are possible before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError

from pennon.columns.declarations import function_reference
from pennon.core.sql_names import quote_name
from pennon.functions.envelope import COLUMN_KINDS, Envelope, read_envelope
from pennon.tables.blobs import is_blob
from pennon.tables.field_paths import find_field, plain_path, split_path
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.expressions import check_expression
from pennon.views.model.definition import Column, Definition, FunctionColumn, Source
from pennon.views.model.query import QueryFunction, StructuredQuery, TableUse
from pennon.views.model.schemas import HIDDEN, hidden_names, stored_schema
from pennon.views.sql.simple_select import find_multi_row_call, find_volatile_name, tokenize
from pennon.views.sql.spark_sql import SparkQuery
from pennon.views.sql.spark_types import why_unsupported

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog.tables import Table
    from pennon.core.arrow_typing import AnyField


@dataclass(frozen=True)
class OpenedTable:
    """A table that a view reads, opened at the version that the query selects."""

    use: TableUse
    table: Table
    dataset: LanceDataset
    #: The version that the query selects; none means the newest.
    version: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of ``*``."""
        return visible_schema(self.table, self.dataset)

    def source(self, columns: Iterable[str], name: str | None = None) -> Source:
        """Return the table as a source of a view, and check that the columns it reads are not blobs."""
        columns = tuple(columns)
        check_no_blobs(self.dataset.schema, columns)
        return Source(name or str(self.use), self.table.id, self.table.identifier, columns, self.version)


Open = Callable[[TableUse], OpenedTable]


def visible_schema(table: Table, dataset: LanceDataset) -> pa.Schema:
    """Return the columns of ``*``, without the hidden columns that link a view to its source."""
    hidden = HIDDEN if table.is_view else ()
    return pa.schema([field for field in dataset.schema if field.name not in hidden])


def check_no_blobs(schema: pa.Schema, columns: Iterable[str]) -> None:
    """Refuse blob columns: a scan returns descriptors instead of their values."""
    for path in columns:
        if is_blob(find_field(schema, path)):
            raise InvalidInputError(
                f"The column {path!r} holds blobs, which a view cannot read; name the columns of the view without it."
            )


def check_spark_types(schema: pa.Schema, columns: Iterable[str]) -> None:
    """Refuse columns whose values Spark cannot keep unchanged."""
    for path in columns:
        field = find_field(schema, path)
        reason = why_unsupported(field.type)
        if reason is not None:
            raise InvalidInputError(
                f"The column {path!r} has type {field.type}, and {reason}: omit it from the query, or use Pennon's "
                "JSON query, which Lance evaluates."
            )


@dataclass(frozen=True)
class CompiledView:
    """A view that is ready to be created."""

    definition: Definition
    schema: pa.Schema
    #: The functions to store in the folder of the view.
    functions: tuple[bytes, ...] = ()


def compile_query(query: StructuredQuery | SparkQuery, open_table: Open, declared: pa.Schema | None) -> CompiledView:
    """Compile a view that shows the result of a query."""
    if isinstance(query, SparkQuery):
        return _compile_spark(query, open_table, declared)
    return _compile_structured(query, open_table, declared)


def _compile_spark(query: SparkQuery, open_table: Open, declared: pa.Schema | None) -> CompiledView:
    opened = {use: open_table(use) for use in query.uses}
    bound = query.bind({use: found.schema for use, found in opened.items()})
    for found, columns in zip(opened.values(), bound.columns.values(), strict=True):
        check_spark_types(found.dataset.schema, columns)
    definition = Definition(
        kind="query",
        engine="spark",
        sources=tuple(
            found.source(columns, name)
            for found, (name, columns) in zip(opened.values(), bound.columns.items(), strict=True)
        ),
        all_columns=query.has_star and declared is None,
        sql=bound.sql,
        rebuild_reason=query.rebuild_reason,
        volatile=query.volatile,
    )
    made = pa.schema([pa.field(name, kind or pa.null()) for name, kind in bound.fields])
    return CompiledView(definition, _whole_schema(made, declared, definition))


def _compile_structured(query: StructuredQuery, open_table: Open, declared: pa.Schema | None) -> CompiledView:
    query = check_query(query)
    source = open_table(query.source)
    columns, made = project(query, source, min_columns=0 if query.functions else 1)
    functions = [function_column(use, source, declared) for use in query.functions]
    made = _extended(made, [field for _, fields in functions for field in fields])
    needs = [path for function, _ in functions for path in function.inputs]
    volatile = find_volatile(columns, query.where)
    definition = Definition(
        kind="query",
        engine="lance",
        sources=(source.source(find_columns_read(source, columns, query.where, needs)),),
        columns=columns,
        all_columns=query.columns is None and declared is None,
        where=query.where,
        limit=query.limit,
        offset=query.offset,
        functions=tuple(function for function, _ in functions),
        rebuild_reason=find_rebuild_reason(query, volatile),
        volatile=volatile,
    )
    contents = tuple(use.content for use in query.functions)
    return CompiledView(definition, _whole_schema(made, declared, definition), contents)


def _whole_schema(made: pa.Schema, declared: pa.Schema | None, definition: Definition) -> pa.Schema:
    hidden = hidden_names(definition.kind, incremental=definition.is_incremental)
    schema = stored_schema(made, declared, hidden)
    check_known_types(schema)
    return schema


def check_known_types(schema: pa.Schema) -> None:
    """Refuse a schema with a column whose type could not be inferred."""
    for field in schema:
        if pa.types.is_null(field.type):
            raise TableSchemaValidationError(
                f"Cannot infer the type of {field.name!r}; write CAST(… AS …) around its expression, or send an "
                "output_schema."
            )


def check_query(query: StructuredQuery) -> StructuredQuery:
    """Check the expressions of a query, and remove their comments."""
    columns = query.columns
    if columns is not None:
        columns = tuple(replace(column, expression=check_expression(column.expression)) for column in columns)
    return replace(query, columns=columns, where=check_expression(query.where) if query.where else query.where)


def project(query: StructuredQuery, source: OpenedTable, min_columns: int = 1) -> tuple[tuple[Column, ...], pa.Schema]:
    """Return the columns of a query and their schema, for which Lance parses every expression."""
    columns = query.columns
    if columns is None:
        columns = tuple(Column(name, quote_name(name)) for name in source.schema.names)
    if len(columns) < min_columns:
        raise InvalidInputError("The query names no columns.")
    for text in (*(column.expression for column in columns), *([query.where] if query.where else [])):
        wide = find_multi_row_call(text)
        if wide is not None:
            raise InvalidInputError(f"{wide} does not work on single rows; write the query in Spark's SQL instead.")
    with typed_errors():
        scanner = source.dataset.scanner(
            columns={column.name: column.expression for column in columns} or [],
            filter=query.where,
            with_row_id=True,
            limit=0,
        )
        made = scanner.to_table().schema
    fields = [made.field(column.name) for column in columns]
    return columns, pa.schema(
        [_as_stored(field, column, source) for field, column in zip(fields, columns, strict=True)]
    )


def _as_stored(field: AnyField, column: Column, source: OpenedTable) -> AnyField:
    """Return a field with only that metadata of its source column that is about the type, not about its function."""
    plain = pa.field(field.name, field.type, True)
    stored = source.dataset.schema
    name = next((name for name in stored.names if column.expression in (name, quote_name(name))), None)
    metadata = (stored.field(name).metadata if name else None) or {}
    kept: dict[bytes | str, bytes | str] = {key: value for key, value in metadata.items() if _is_about_type(key)}
    return plain.with_metadata(kept) if kept else plain


def _is_about_type(key: bytes) -> bool:
    return key.startswith((b"ARROW:extension", b"lance-encoding"))


def find_rebuild_reason(query: StructuredQuery, volatile: str | None) -> str | None:
    """Return why every refresh must compute the whole view; none if it can be refreshed incrementally."""
    found = "LIMIT" if query.limit is not None else "OFFSET" if query.offset is not None else None
    if found is None and volatile is not None:
        found = f"{volatile}, whose value does not depend on the row alone"
    return None if found is None else f"The query uses {found}, so every refresh computes the whole view."


def find_volatile(columns: Sequence[Column], where: str | None) -> str | None:
    """Return the first function or column in expressions whose value does not depend on the row alone."""
    names = (
        find_volatile_name(text) for text in (*(column.expression for column in columns), *([where] if where else []))
    )
    return next((name for name in names if name is not None), None)


def find_columns_read(
    source: OpenedTable, columns: Sequence[Column], where: str | None, paths: Iterable[str]
) -> tuple[str, ...]:
    """Return the columns that a view reads from a source: those in its expressions, and paths of nested fields."""
    texts = [*(column.expression for column in columns), *([where] if where else [])]
    words = {token.text.lower() for text in texts for token in tokenize(text)}
    schema = source.dataset.schema
    whole = [name for name in schema.names if name.lower() in words]
    nested = [plain_path(path) for path in paths]
    return tuple(dict.fromkeys([*whole, *(path for path in nested if split_path(path)[0] not in whole)]))


def function_column(
    use: QueryFunction, source: OpenedTable, declared: pa.Schema | None
) -> tuple[FunctionColumn, list[AnyField]]:
    """Return a function as it is stored in the definition, and the fields of its columns."""
    for path in use.inputs:
        find_field(source.dataset.schema, path)
    envelope = _envelope_of(use)
    fields = [pa.field(name, _output_type(envelope, name, field, declared)) for name, field in use.outputs]
    return FunctionColumn(function_reference(use.content), use.inputs, use.outputs, use.manifest), fields


def _envelope_of(use: QueryFunction) -> Envelope | None:
    """Return the envelope of a function; none for a function that only geneva can load."""
    try:
        envelope = read_envelope(use.content)
    except ValueError as error:
        if use.is_foreign:
            return None
        raise InvalidInputError(f"The function of {use.outputs[0][0]!r} cannot be read: {error}") from None
    if envelope.kind not in COLUMN_KINDS:
        raise InvalidInputError(f"The function of {use.outputs[0][0]!r} is a {envelope.kind}; here it must be a udf.")
    return envelope


def _output_type(envelope: Envelope | None, name: str, field: str, declared: pa.Schema | None) -> pa.DataType:
    known = {output.struct_field: output.data_type for output in envelope.outputs} if envelope else {}
    if field in known:
        return known[field]
    if not field and known:
        return pa.struct([pa.field(part, kind) for part, kind in known.items()])
    if known:
        raise InvalidInputError(f"The function of {name!r} returns no {field!r}; it returns {', '.join(known)}.")
    if declared is None or name not in declared.names:
        raise TableSchemaValidationError(
            f"The function of {name!r} does not say what it returns; send an output_schema with {name!r} in it."
        )
    field_type: pa.DataType = declared.field(name).type
    return field_type


def _extended(schema: pa.Schema, fields: Sequence[AnyField]) -> pa.Schema:
    for field in fields:
        if field.name in schema.names:
            raise TableSchemaValidationError(f"The view has two columns named {field.name!r}.")
        schema = schema.append(field)
    return schema


def columns_by_table(definition: Definition) -> dict[str, tuple[str, ...]]:
    """Return the columns that a view reads from each table, by table id."""
    merged: dict[str, tuple[str, ...]] = {}
    for source in definition.sources:
        merged[source.table_id] = tuple(dict.fromkeys((*merged.get(source.table_id, ()), *source.columns)))
    return merged
