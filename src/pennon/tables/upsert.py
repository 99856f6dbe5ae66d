"""Upserts: the options of a request, and a spool of rows that can be read more than once."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Self, cast

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from pennon.tables.field_paths import find_field, split_path
from pennon.tables.query.column_names import check_long_names
from pennon.tables.query.expressions import DEFAULT_LIMITS, SqlLimits, check_expression
from pennon.tables.query.row_sizes import check_merged_columns

if TYPE_CHECKING:
    from io import BufferedRandom

    from lance import LanceDataset
    from lance.dataset import MergeInsertBuilder
    from lance_namespace import MergeInsertIntoTableRequest

    from pennon.tables.arrow_stream import ArrowSource


class Spool:
    """The rows of a source: a large one is spooled to disk first, because a merge must not wait for a slow client."""

    def __init__(self, source: ArrowSource) -> None:
        self._source = source
        self._file: IO[bytes] | None = None
        self._rows: pa.Table | None = None
        #: The columns with nulls.
        self.with_nulls: set[str] = set()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self._source.is_small:
            self._rows = self._source.table()
            self._record_nulls(self._rows)
            return self
        self._file = self._open.enter_context(tempfile.TemporaryFile())
        with pa.ipc.new_stream(self._file, self._source.schema) as writer:
            for batch in self._source.reader():
                self._record_nulls(batch)
                writer.write_batch(batch)
        self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self) -> pa.Table | pa.RecordBatchReader:
        """Return the rows from the start."""
        if self._file is None:
            assert self._rows is not None  # noqa: S101 (entered)
            return self._rows
        self._file.seek(0)
        return pa.ipc.open_stream(cast("BufferedRandom", self._file))

    def _record_nulls(self, rows: pa.Table | pa.RecordBatch) -> None:
        names = rows.schema.names
        self.with_nulls.update(name for index, name in enumerate(names) if rows.column(index).null_count)


class Merge:
    """The key columns of an upsert, and what it does with matched and unmatched rows."""

    def __init__(
        self, request: MergeInsertIntoTableRequest, source: pa.Schema, limits: SqlLimits = DEFAULT_LIMITS
    ) -> None:
        given = request.on if isinstance(request.on, list) else [request.on] if request.on else []
        if not given:
            raise InvalidInputError("'on' is missing: name the columns that identify a row.")
        self._request = request
        self._source = source
        self._keys = [_key(path, source) for path in given]
        self._update_condition = check_expression(request.when_matched_update_all_filt or "", limits)
        self._delete_condition = check_expression(request.when_not_matched_by_source_delete_filt or "", limits)

    def builder(self, dataset: LanceDataset, spool: Spool, seconds: float | None) -> MergeInsertBuilder:
        """Return the builder that runs the upsert on a dataset, with a timeout for retries."""
        for key in self._keys:
            find_field(dataset.schema, key)
        check_long_names(dataset, self._update_condition, self._delete_condition)
        check_merged_columns(dataset, self._keys, [self._update_condition, self._delete_condition])
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

    def _may_use_index(self, dataset: LanceDataset, spool: Spool) -> bool:
        """Return whether an index finds the same rows as a scan.

        With an index, Lance loses rows with a null key, and conditions can use only the columns of the source.
        """
        if spool.with_nulls.intersection(self._keys):
            return False
        return not self._update_condition or set(dataset.schema.names) <= set(self._source.names)


def _key(path: str, source: pa.Schema) -> str:
    """Return the key column at a path; Lance matches rows by top-level columns only."""
    segments = split_path(path)
    find_field(source, path)
    if len(segments) > 1:
        raise InvalidInputError(f"Rows cannot be matched by {path!r}: a key must be a top-level column.")
    return segments[0]
