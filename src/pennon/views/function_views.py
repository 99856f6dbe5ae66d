"""Compilation of views whose rows a function returns: chunkers, which turn one row into several, and UDTFs."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError
from lance_namespace_urllib3_client.models import MaterializedViewUdtfEntry

from pennon.columns.declarations import check_manifest_checksum, function_reference
from pennon.functions.envelope import Envelope, read_envelope
from pennon.functions.error_policy import ErrorPolicy, effective_policy
from pennon.functions.options import OPTION_LIMITS
from pennon.tables.field_paths import find_field, path_expression
from pennon.tables.indexes import VECTOR_TYPES
from pennon.views.compilation import (
    CompiledView,
    Open,
    OpenedTable,
    check_known_types,
    check_query,
    find_columns_read,
    find_rebuild_reason,
    find_volatile,
    project,
)
from pennon.views.model.definition import Column, Definition, Expansion, Kind
from pennon.views.model.query import StructuredQuery
from pennon.views.model.schemas import HIDDEN, hidden_names, stored_schema

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.core.arrow_typing import AnyField

Amount = TypeVar("Amount", int, float)

_KINDS = {"chunker": ("chunker", "batched_chunker"), "udtf": ("udtf",)}
_REBUILD_REASON = "A table function receives all rows of its source, so every refresh computes the whole view."


def compile_function_view(
    kind: Kind,
    query: StructuredQuery,
    entry: MaterializedViewUdtfEntry,
    open_table: Open,
    declared: pa.Schema | None,
) -> CompiledView:
    """Compile a view whose rows a function returns for the rows of a query."""
    if query.functions:
        raise InvalidInputError(f"The query of a {kind} cannot have functions; create another view for them.")
    content = _checked_content(entry)
    envelope = _envelope_of(kind, entry, content)
    query = check_query(query)
    source = open_table(query.source)
    columns, made = project(query, source, min_columns=0 if kind == "chunker" else 1)
    expansion = _expansion(kind, entry, envelope, source, columns, content)
    _check_partitions(expansion, query, made, source)
    outputs = _outputs(envelope, kind, declared, made)
    if kind == "chunker":
        inherited = [field for field in made if field.name not in outputs.names and _is_wanted(field, declared)]
        columns = tuple(column for column in columns if column.name in {field.name for field in inherited})
        outputs = pa.schema([*inherited, *outputs])
        own = tuple(name for name in outputs.names if name not in {field.name for field in inherited})
    else:
        columns, own = _function_inputs(expansion, columns), tuple(outputs.names)
    volatile = find_volatile(columns, query.where)
    definition = Definition(
        kind=kind,
        engine="lance",
        sources=(source.source(find_columns_read(source, columns, query.where, _paths(kind, expansion))),),
        columns=columns,
        all_columns=query.columns is None and kind == "chunker" and declared is None,
        where=query.where,
        limit=query.limit,
        offset=query.offset,
        expansion=replace(expansion, outputs=own),
        rebuild_reason=_REBUILD_REASON if kind == "udtf" else find_rebuild_reason(query, volatile),
        volatile=volatile,
    )
    schema = stored_schema(outputs, declared, hidden_names(kind, incremental=definition.is_incremental))
    check_known_types(schema)
    return CompiledView(definition, schema, (content,))


def _checked_content(entry: MaterializedViewUdtfEntry) -> bytes:
    """Decode a function, and verify its checksum."""
    try:
        content = base64.b64decode(entry.udtf, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("The function ('udtf') is not base64.") from None
    known = {hashlib.sha256(entry.udtf.encode()).hexdigest(), hashlib.sha256(content).hexdigest()}
    if entry.udtf_sha.lower() not in known:
        raise InvalidInputError("udtf_sha is neither the SHA-256 of 'udtf' as sent, nor that of the decoded bytes.")
    check_manifest_checksum(entry.manifest, entry.manifest_checksum)
    return content


def _envelope_of(kind: Kind, entry: MaterializedViewUdtfEntry, content: bytes) -> Envelope:
    try:
        envelope = read_envelope(content)
    except ValueError as error:
        raise InvalidInputError(f"The function {entry.udtf_name!r} cannot be read: {error}") from None
    if envelope.form != "pickle" and envelope.kind not in _KINDS[kind]:
        raise InvalidInputError(
            f"The function {entry.udtf_name!r} is a {envelope.kind}, but the view's kind is {kind}."
        )
    if kind == "chunker" and envelope.form != "pickle" and entry.batch is not None:
        batched = envelope.kind == "batched_chunker"
        if entry.batch != batched:
            is_batched = "is" if batched else "is not"
            raise InvalidInputError(
                f"batch is {entry.batch}, but the function {entry.udtf_name!r} {is_batched} batched."
            )
    return envelope


def _expansion(
    kind: Kind,
    entry: MaterializedViewUdtfEntry,
    envelope: Envelope,
    source: OpenedTable,
    columns: tuple[Column, ...],
    content: bytes,
) -> Expansion:
    options = envelope.options
    partition_by = entry.partition_by or options.partition_by
    indexed = entry.partition_by_indexed_column or options.partition_by_indexed_column
    _check_options_of_kind(kind, entry, partition_by, indexed)
    inputs = _inputs(kind, entry, envelope)
    for path in (*(inputs or ()), *([partition_by] if partition_by else [])):
        if kind == "chunker" or path not in {column.name for column in columns}:
            find_field(source.dataset.schema, path)
    if indexed:
        check_index(source.dataset, indexed)
    _check_error_handling(entry.error_handling, envelope)
    return Expansion(
        reference=function_reference(content),
        name=entry.udtf_name,
        version=entry.udtf_version,
        inputs=inputs,
        outputs=(),
        batch=bool(entry.batch) or envelope.kind == "batched_chunker",
        partition_by=partition_by,
        partition_by_indexed_column=indexed,
        num_cpus=_positive("num_cpus", entry.num_cpus, options.num_cpus),
        num_gpus=_positive("num_gpus", entry.num_gpus or None, options.num_gpus),
        memory=_positive("memory", entry.memory, options.memory),
        error_handling=entry.error_handling,
        manifest=entry.manifest,
    )


def _check_options_of_kind(
    kind: Kind, entry: MaterializedViewUdtfEntry, partition_by: str | None, indexed: str | None
) -> None:
    """Refuse options that only the other kind of function has."""
    if kind == "udtf":
        if entry.batch:
            raise InvalidInputError("batch is for chunkers; a table function always receives batches.")
        if partition_by and indexed:
            raise InvalidInputError("partition_by and partition_by_indexed_column cannot be used together.")
        return
    if partition_by or indexed:
        raise InvalidInputError("partition_by and partition_by_indexed_column are for table functions (kind udtf).")
    if entry.error_handling is not None:
        raise InvalidInputError("error_handling is for table functions; a chunker's function has its own policy.")


def _inputs(kind: Kind, entry: MaterializedViewUdtfEntry, envelope: Envelope) -> tuple[str, ...] | None:
    given = entry.input_columns if entry.input_columns is not None else list(envelope.inputs) or None
    if given is None and kind == "chunker":
        raise InvalidInputError("A chunker needs input_columns: the columns that its function reads.")
    if given is not None and not given:
        raise InvalidInputError("input_columns is empty; omit it to pass all columns.")
    return None if given is None else tuple(given)


def _check_partitions(expansion: Expansion, query: StructuredQuery, made: pa.Schema, source: OpenedTable) -> None:
    """Refuse to partition by a nested column, or by an index together with a limit or an offset."""
    path = expansion.partition_by
    if path is not None:
        kind = (made.field(path) if path in made.names else find_field(source.dataset.schema, path)).type
        if pa.types.is_nested(kind):
            raise InvalidInputError(f"partition_by is {path!r} of type {kind}; it must not be a nested type.")
    if expansion.partition_by_indexed_column and (query.limit, query.offset) != (None, None):
        raise InvalidInputError("partition_by_indexed_column cannot be used with a limit or an offset.")


def check_index(dataset: LanceDataset, path: str) -> None:
    """Refuse a column without an IVF index."""
    find_field(dataset.schema, path)
    for index in dataset.describe_indices():
        if path in index.field_names and str(index.index_type).upper() in VECTOR_TYPES:
            return
    raise InvalidInputError(f"The column {path!r} has no IVF index; create one before you partition a view by it.")


def _check_error_handling(given: dict[str, Any] | None, envelope: Envelope) -> None:
    if envelope.form == "geneva":
        return  # geneva has its own format
    try:
        effective_policy(given, ErrorPolicy())
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"Invalid error_handling: {error}") from None


def _positive(name: str, given: Amount | None, default: Amount | None) -> Amount | None:
    value = given if given is not None else default
    if value is not None and not value > 0:
        raise InvalidInputError(f"{name} is {value}; it must be greater than 0.")
    if value is not None and value > OPTION_LIMITS[name]:
        raise InvalidInputError(f"{name} is {value}; it must be at most {OPTION_LIMITS[name]:.0f}.")
    return value


def _outputs(envelope: Envelope, kind: Kind, declared: pa.Schema | None, made: pa.Schema) -> pa.Schema:
    """Return the columns of a function: those it declares, or the declared columns that are not from the query."""
    if envelope.outputs:
        return pa.schema([pa.field(output.struct_field, output.data_type) for output in envelope.outputs])
    if declared is None:
        raise TableSchemaValidationError("The function does not declare its columns; send an output_schema.")
    others = [*HIDDEN, *(made.names if kind == "chunker" else ())]
    fields = [pa.field(field.name, field.type) for field in declared if field.name not in others]
    if not fields:
        raise TableSchemaValidationError("output_schema has no column for the function.")
    return pa.schema(fields)


def _is_wanted(field: AnyField, declared: pa.Schema | None) -> bool:
    return declared is None or field.name in declared.names


def _function_inputs(expansion: Expansion, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the input columns of a table function, and its partition column."""
    if expansion.inputs is None:
        return columns
    known = {column.name: column for column in columns}
    wanted = (*expansion.inputs, *([expansion.partition_by] if expansion.partition_by else []))
    return tuple(known.get(path) or Column(path, path_expression(path)) for path in dict.fromkeys(wanted))


def _paths(kind: Kind, expansion: Expansion) -> tuple[str, ...]:
    """Return the columns that a view reads in addition to those of its query."""
    if kind == "chunker":
        return expansion.inputs or ()
    indexed = expansion.partition_by_indexed_column
    return (indexed,) if indexed else ()
