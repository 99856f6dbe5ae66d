"""Upserts: what a request asks of one, and rows that can be read more than once."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from pennon.tables.field_paths import find_field, split_path
from pennon.tables.query.expressions import DEFAULT_LIMITS, SqlLimits, check_expression

if TYPE_CHECKING:
    from lance_namespace import MergeInsertIntoTableRequest

    from pennon.tables.arrow_stream import ArrowSource


class Spool:
    """The rows of a source: a large one is put on disk first, because a merge must not wait for a slow client."""

    def __init__(self, source: ArrowSource) -> None:
        self._source = source
        self._file: Any = None
        self._rows: pa.Table | None = None
        #: The columns that hold nulls.
        self.with_nulls: set[str] = set()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self._source.is_small:
            self._rows = self._source.table()
            self._look_for_nulls(self._rows)
            return self
        self._file = self._open.enter_context(tempfile.TemporaryFile())
        with pa.ipc.new_stream(self._file, self._source.schema) as writer:
            for batch in self._source.reader():
                self._look_for_nulls(batch)
                writer.write_batch(batch)
        self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self) -> Any:
        """Return the rows from the first one on."""
        if self._rows is not None:
            return self._rows
        self._file.seek(0)
        return pa.ipc.open_stream(self._file)

    def _look_for_nulls(self, rows: pa.Table | pa.RecordBatch) -> None:
        columns = zip(rows.schema.names, rows.columns, strict=True)
        self.with_nulls.update(name for name, column in columns if column.null_count)


class Merge:
    """What an upsert matches rows by, and does with them."""

    def __init__(
        self, request: MergeInsertIntoTableRequest, source: pa.Schema, limits: SqlLimits = DEFAULT_LIMITS
    ) -> None:
        given = request.on if isinstance(request.on, list) else [request.on] if request.on else []
        if not given:
            raise InvalidInputError("'on' must name the columns that identify a row.")
        self._request = request
        self._source = source
        self._keys = [_key(path, source) for path in given]
        self._update_condition = check_expression(request.when_matched_update_all_filt or "", limits)
        self._delete_condition = check_expression(request.when_not_matched_by_source_delete_filt or "", limits)

    def builder(self, dataset: Any, spool: Spool, seconds: float | None) -> Any:
        """Return what carries it out on a dataset, in some time at most."""
        for key in self._keys:
            find_field(dataset.schema, key)
        request = self._request
        builder = dataset.merge_insert(self._keys)
        if request.when_matched_update_all:
            builder.when_matched_update_all(self._update_condition or None)
        if request.when_not_matched_insert_all:
            builder.when_not_matched_insert_all()
        if request.when_not_matched_by_source_delete:
            builder.when_not_matched_by_source_delete(self._delete_condition or None)
        builder.use_index(bool(request.use_index) and self._may_use_index(dataset, spool))
        if seconds is not None:
            builder.retry_timeout(timedelta(seconds=max(seconds, 0.001)))
        return builder

    def _may_use_index(self, dataset: Any, spool: Spool) -> bool:
        """Tell whether an index finds what a scan does.

        With one, Lance loses rows whose key is null, and knows in conditions only the columns that the source has.
        """
        if spool.with_nulls.intersection(self._keys):
            return False
        return not self._update_condition or set(dataset.schema.names) <= set(self._source.names)


def _key(path: str, source: pa.Schema) -> str:
    """Return the column at a path; Lance matches rows by whole columns."""
    segments = split_path(path)
    find_field(source, path)
    if len(segments) > 1:
        raise InvalidInputError(f"Rows cannot be matched by {path!r}: it is inside of a column, and not one itself.")
    return segments[0]
