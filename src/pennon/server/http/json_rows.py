"""Rows as JSON, for clients without Arrow: the response to a query with ``Accept: application/json``."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.tables.arrow_json import schema_to_json
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import JsonValue

    from pennon.core.arrow_typing import AnyArray
    from pennon.namespace.queries import QueryResult

#: Limits of one response: JSON is built in memory, and meant for people to look at.
MAX_ROWS = 10_000
MAX_BYTES = 32 * 1024 * 1024
#: Integers up to this are exact in every JSON parser.
_MAX_EXACT_INTEGER = 2**53


def wants_json(accept: str) -> bool:
    """Tell whether a client accepts JSON only; a client that leaves the choice gets Arrow."""
    return "application/json" in accept and "arrow" not in accept and "*/*" not in accept


class JsonRows:
    """Arrow batches as one JSON object: version, schema, rows, and whether the rows are truncated."""

    def __init__(self, answer: QueryResult) -> None:
        self.version = answer.version
        rows: list[dict[str, JsonValue]] = []
        size, truncated = 0, False
        for batch in _batches(answer.reader):
            fitting = min(MAX_ROWS - len(rows), _rows_within(batch, MAX_BYTES - size))
            rows += _rows_of(batch.slice(0, fitting))
            size += batch.nbytes
            truncated = fitting < batch.num_rows
            if truncated:
                break
        schema = schema_to_json(answer.reader.schema)
        document = {"version": self.version, "schema": schema, "rows": rows, "truncated": truncated}
        self.body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _batches(reader: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while True:
        with typed_errors():
            batch = next(reader, None)
        if batch is None:
            return
        yield batch


def _rows_within(batch: pa.RecordBatch, room: int) -> int:
    """Return how many rows of a batch fill a number of bytes: one more than fits, so that it is at least one."""
    if room <= 0 or not batch.num_rows:
        return 0
    return int(min(batch.num_rows, room * batch.num_rows // max(batch.nbytes, 1) + 1))


def _rows_of(batch: pa.RecordBatch) -> list[dict[str, JsonValue]]:
    columns = [_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: AnyArray) -> list[JsonValue]:
    kind = _json_type(column.type)
    with typed_errors():  # a timestamp may have an unknown time zone
        column = column if column.type == kind else column.cast(kind)
    return [_plain(value) for value in column.to_pylist()]


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to convert a type to: temporal values and decimals become strings, which keeps them exact."""
    if isinstance(kind, pa.BaseExtensionType):
        return _json_type(kind.storage_type)
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_json_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_json_type(kind.key_type), _json_type(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        items = _json_type(kind.value_type)
        fixed: pa.DataType = pa.list_(items, kind.list_size)
        return fixed
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        made: pa.DataType = make(kind.value_field.with_type(_json_type(kind.value_type)))
        return made
    return kind


def _plain(value: object) -> JsonValue:
    """Return a value as JSON: bytes in base64, numbers that JSON cannot express as strings."""
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value  # type: ignore[return-value]  # what is left is a string, a boolean or null
