"""From what a request asks for to the definition of a view, with everything checked that can be before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError

from pennon.columns.declarations import function_reference
from pennon.functions.envelope import COLUMN_KINDS, Envelope, read_envelope
from pennon.tables.blobs import is_blob
from pennon.tables.field_paths import find_field, plain_path, split_path
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.expressions import check_expression
from pennon.views.model.definition import Column, Definition, FunctionColumn, Source
from pennon.views.model.query import FunctionUse, StructuredQuery, TableUse
from pennon.views.model.schemas import HIDDEN, hidden_names, stored_schema
from pennon.views.sql.simple_select import changing_name, quote, tokenize, wide_name
from pennon.views.sql.spark_sql import SparkQuery
from pennon.views.sql.spark_types import unfit_for_spark

if TYPE_CHECKING:
    from pennon.catalog.tables import Table


@dataclass(frozen=True)
class Opened:
    """A table that a view reads, found and opened."""

    use: TableUse
    table: Table
    #: At the version the query asks for, else the newest.
    dataset: Any
    version: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns that ``*`` stands for."""
        return shown_schema(self.table, self.dataset)

    def source(self, columns: Iterable[str], name: str | None = None) -> Source:
        """Return the table as the source of a view that reads some of its columns, none of which holds blobs."""
        columns = tuple(columns)
        refuse_blobs(self.dataset.schema, columns)
        return Source(name or str(self.use), self.table.id, self.table.identifier, columns, self.version)


Open = Callable[[TableUse], Opened]


def shown_schema(table: Table, dataset: Any) -> pa.Schema:
    """Return the columns of a table that ``*`` stands for: of a view, without those that tie it to its own source."""
    hidden = HIDDEN if table.is_view else ()
    return pa.schema([field for field in dataset.schema if field.name not in hidden])


def refuse_blobs(schema: pa.Schema, columns: Iterable[str]) -> None:
    """Refuse columns that hold blobs: they are kept apart from rows, and read as places instead of values."""
    for path in columns:
        if is_blob(find_field(schema, path)):
            raise InvalidInputError(
                f"The column {path!r} holds blobs, which a view cannot read; name the columns that the view is to "
                "have, without this one."
            )


def refuse_unfit(schema: pa.Schema, columns: Iterable[str]) -> None:
    """Refuse columns that a query of Spark's reads, and whose values Spark could not keep as they are."""
    for path in columns:
        field = find_field(schema, path)
        reason = unfit_for_spark(field.type)
        if reason is not None:
            raise InvalidInputError(
                f"The column {path!r} is {field.type}, and {reason}: leave it out of the query, or select it with "
                "Pennon's JSON, which Lance evaluates."
            )


@dataclass(frozen=True)
class Draft:
    """A view that is ready to be made."""

    definition: Definition
    schema: pa.Schema
    #: What its folder has to keep.
    functions: tuple[bytes, ...] = ()


def draft_query(query: StructuredQuery | SparkQuery, open_table: Open, declared: pa.Schema | None) -> Draft:
    """Return the draft of a view that shows what a query makes."""
    if isinstance(query, SparkQuery):
        return _draft_spark(query, open_table, declared)
    return _draft_structured(query, open_table, declared)


def _draft_spark(query: SparkQuery, open_table: Open, declared: pa.Schema | None) -> Draft:
    opened = {use: open_table(use) for use in query.uses}
    bound = query.bind({use: found.schema for use, found in opened.items()})
    for found, columns in zip(opened.values(), bound.columns.values(), strict=True):
        refuse_unfit(found.dataset.schema, columns)
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
    return Draft(definition, _whole_schema(made, declared, definition))


def _draft_structured(query: StructuredQuery, open_table: Open, declared: pa.Schema | None) -> Draft:
    query = check_query(query)
    source = open_table(query.source)
    columns, made = project(query, source, least=0 if query.functions else 1)
    functions = [function_column(use, source, declared) for use in query.functions]
    made = _extended(made, [field for _, fields in functions for field in fields])
    needs = [path for function, _ in functions for path in function.inputs]
    volatile = find_volatile(columns, query.where)
    definition = Definition(
        kind="query",
        engine="lance",
        sources=(source.source(columns_needed(source, columns, query.where, needs)),),
        columns=columns,
        all_columns=query.columns is None and declared is None,
        where=query.where,
        limit=query.limit,
        offset=query.offset,
        functions=tuple(function for function, _ in functions),
        rebuild_reason=structured_reason(query, volatile),
        volatile=volatile,
    )
    contents = tuple(use.content for use in query.functions)
    return Draft(definition, _whole_schema(made, declared, definition), contents)


def _whole_schema(made: pa.Schema, declared: pa.Schema | None, definition: Definition) -> pa.Schema:
    hidden = hidden_names(definition.kind, incremental=definition.is_incremental)
    schema = stored_schema(made, declared, hidden)
    refuse_unknown_types(schema)
    return schema


def refuse_unknown_types(schema: pa.Schema) -> None:
    """Refuse a schema with a column whose type cannot be told."""
    for field in schema:
        if pa.types.is_null(field.type):
            raise TableSchemaValidationError(
                f"The type of {field.name!r} cannot be told before the view is computed; write "
                f"CAST(… AS …) around what {field.name!r} is, or send an output_schema."
            )


def check_query(query: StructuredQuery) -> StructuredQuery:
    """Return a query whose expressions were checked, and are without comments."""
    columns = query.columns
    if columns is not None:
        columns = tuple(replace(column, expression=check_expression(column.expression)) for column in columns)
    return replace(query, columns=columns, where=check_expression(query.where) if query.where else query.where)


def project(query: StructuredQuery, source: Opened, least: int = 1) -> tuple[tuple[Column, ...], pa.Schema]:
    """Return the columns of a query and the schema they make; Lance itself reads every expression."""
    columns = query.columns
    if columns is None:
        columns = tuple(Column(name, quote(name)) for name in source.schema.names)
    if len(columns) < least:
        raise InvalidInputError("The query names no columns.")
    for text in (*(column.expression for column in columns), *([query.where] if query.where else [])):
        wide = wide_name(text)
        if wide is not None:
            raise InvalidInputError(f"{wide} does not work row by row; write the query as SQL of Spark's instead.")
    with typed_errors():
        scanner = source.dataset.scanner(
            columns={column.name: column.expression for column in columns} or [],
            filter=query.where,
            with_row_id=True,
            limit=0,
        )
        made: pa.Schema = scanner.to_table().schema
    fields = [made.field(column.name) for column in columns]
    return columns, pa.schema(
        [_as_stored(field, column, source) for field, column in zip(fields, columns, strict=True)]
    )


def _as_stored(field: pa.Field, column: Column, source: Opened) -> pa.Field:
    """Return a field without what the source says of the same column: who fills it there does not fill it here."""
    plain = pa.field(field.name, field.type, True)
    stored: pa.Schema = source.dataset.schema
    name = next((name for name in stored.names if column.expression in (name, quote(name))), None)
    kept = (
        {key: value for key, value in (stored.field(name).metadata or {}).items() if _is_about_type(key)}
        if name
        else {}
    )
    return plain.with_metadata(kept) if kept else plain


def _is_about_type(key: bytes) -> bool:
    return key.startswith((b"ARROW:extension", b"lance-encoding"))


def structured_reason(query: StructuredQuery, volatile: str | None) -> str | None:
    """Return why a query has to be computed as a whole; none when it works row by row."""
    found = "LIMIT" if query.limit is not None else "OFFSET" if query.offset is not None else None
    if found is None and volatile is not None:
        found = f"{volatile}, whose value is not of the row alone"
    return None if found is None else f"The query uses {found}, so every refresh computes the whole view."


def find_volatile(columns: Sequence[Column], where: str | None) -> str | None:
    """Return what expressions read that is not of the row alone and changes by itself, if there is anything."""
    names = (changing_name(text) for text in (*(column.expression for column in columns), *([where] if where else [])))
    return next((name for name in names if name is not None), None)


def columns_needed(
    source: Opened, columns: Sequence[Column], where: str | None, paths: Iterable[str]
) -> tuple[str, ...]:
    """Return the columns of a source that a view needs: those its expressions name, and paths inside of others."""
    texts = [*(column.expression for column in columns), *([where] if where else [])]
    words = {token.text.lower() for text in texts for token in tokenize(text)}
    schema: pa.Schema = source.dataset.schema
    whole = [name for name in schema.names if name.lower() in words]
    nested = [plain_path(path) for path in paths]
    return tuple(dict.fromkeys([*whole, *(path for path in nested if split_path(path)[0] not in whole)]))


def function_column(
    use: FunctionUse, source: Opened, declared: pa.Schema | None
) -> tuple[FunctionColumn, list[pa.Field]]:
    """Return a function of a query as the view keeps it, and the columns it computes."""
    for path in use.inputs:
        find_field(source.dataset.schema, path)
    envelope = _envelope_of(use)
    fields = [pa.field(name, _output_type(envelope, name, field, declared)) for name, field in use.outputs]
    return FunctionColumn(function_reference(use.content), use.inputs, use.outputs, use.manifest), fields


def _envelope_of(use: FunctionUse) -> Envelope | None:
    """Return what is known of a function; none of one that only geneva can read."""
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
    return declared.field(name).type


def _extended(schema: pa.Schema, fields: Sequence[pa.Field]) -> pa.Schema:
    for field in fields:
        if field.name in schema.names:
            raise TableSchemaValidationError(f"There would be two columns {field.name!r}.")
        schema = schema.append(field)
    return schema


def merged_sources(definition: Definition) -> dict[str, tuple[str, ...]]:
    """Return the columns that a view reads of each table, by the tables' ids."""
    merged: dict[str, tuple[str, ...]] = {}
    for source in definition.sources:
        merged[source.table_id] = tuple(dict.fromkeys((*merged.get(source.table_id, ()), *source.columns)))
    return merged
