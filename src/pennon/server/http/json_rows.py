"""Rows as JSON, for clients that have no Arrow: the same query, asked for with ``Accept: application/json``."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pennon.tables.arrow_json import schema_to_json
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from pennon.namespace.queries import Answer

#: The most that one answer holds; JSON is made in memory and for people to look at.
MOST_ROWS = 10_000
MOST_BYTES = 32 * 1024 * 1024
#: Whole numbers that every reader of JSON keeps exact.
_EXACT = 2**53


def wants_json(accept: str) -> bool:
    """Tell whether a client asks for JSON and for nothing else: Arrow is what it gets when it leaves the choice."""
    return "application/json" in accept and "arrow" not in accept and "*/*" not in accept


class JsonRows:
    """An answer of batches as one JSON object: version, schema, rows, and whether that is all of them."""

    def __init__(self, answer: Answer) -> None:
        self.version = answer.version
        rows: list[dict[str, Any]] = []
        size, truncated = 0, False
        for batch in _batches(answer.reader):
            fitting = min(MOST_ROWS - len(rows), _rows_within(batch, MOST_BYTES - size))
            rows += _rows_of(batch.slice(0, fitting))
            size += batch.nbytes
            truncated = fitting < batch.num_rows
            if truncated:
                break
        schema = schema_to_json(answer.reader.schema)
        document = {"version": self.version, "schema": schema, "rows": rows, "truncated": truncated}
        self.body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _batches(reader: Any) -> Any:
    while True:
        with typed_errors():
            batch = next(reader, None)
        if batch is None:
            return
        yield batch


def _rows_within(batch: pa.RecordBatch, room: int) -> int:
    """Return how many rows of a batch fill some bytes: one more than fits, so that there is always one."""
    if room <= 0 or not batch.num_rows:
        return 0
    return int(min(batch.num_rows, room * batch.num_rows // max(batch.nbytes, 1) + 1))


def _rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = [_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    kind = _told_as(column.type)
    with typed_errors():  # a moment may be of a time zone that there is not
        column = column if column.type == kind else column.cast(kind)
    return [_plain(value) for value in column.to_pylist()]


def _told_as(kind: pa.DataType) -> pa.DataType:
    """Return the type that a value is told as: moments and decimals as text, which loses nothing of them."""
    if isinstance(kind, pa.BaseExtensionType):
        return _told_as(kind.storage_type)
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_told_as(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_told_as(kind.key_type), _told_as(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_told_as(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_told_as(kind.value_type)))
    return kind


def _plain(value: Any) -> Any:
    """Return a value as JSON can tell it: bytes in base64, numbers that JSON does not have as text."""
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -_EXACT <= value <= _EXACT else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
