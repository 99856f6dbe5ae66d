"""The reader of the Spark source: fragments become partitions, which yield Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from lance_namespace.errors import InvalidInputError
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pennon.spark.pushdown import translate
from pennon.spark.python_workers import freeze_garbage_collector
from pennon.spark.types import arrow_schema, estimate_width, to_spark
from pennon.tables.blobs import scan_with_blobs
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from lance import LanceDataset, LanceFragment
    from numpy.typing import NDArray
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pennon.core.arrow_typing import AnyField

#: Bytes per batch, chosen to fit into a CPU cache on both sides of the socket.
_BATCH_BYTES = 512 * 1024
_MAX_BATCH_ROWS, _MIN_BATCH_ROWS = 65_536, 64
#: Partitions per core: a task costs tens of milliseconds, and several even out a slow one.
_PARTITIONS_PER_CORE = 2
_MIN_PARTITION_ROWS = 65_536
_MIN_TAKE_ROWS = 8_192


@dataclass
class Scan(InputPartition):
    """The rows of some fragments: all, or, without a filter, a range of them."""

    fragments: tuple[int, ...]
    first: int = 0
    count: int | None = None


@dataclass
class Take(InputPartition):
    """Rows by row id."""

    row_ids: NDArray[np.int64]


class LanceReader(DataSourceReader):
    """Reads columns of one version of a table."""

    def __init__(
        self,
        snapshot: Snapshot,
        schema: StructType,
        *,
        row_ids: NDArray[np.int64] | None = None,
        condition: str | None = None,
        partitions: int | None = None,
        cores: int | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._schema = schema
        self._row_ids = row_ids
        self._partition_count = partitions
        self._cores = cores
        self._conditions = [f"({condition})"] if condition else []

    def __getstate__(self) -> dict[str, object]:
        # A task gets its row ids from its partition.
        return {**self.__dict__, "_row_ids": None}

    def partitions(self) -> Sequence[InputPartition]:
        """Return groups of fragments, or ranges of large ones, in proportion to the number of cores."""
        wanted = self._partition_count or (self._cores or 1) * _PARTITIONS_PER_CORE
        dataset = self._snapshot.open()
        freeze_garbage_collector()
        if self._row_ids is not None:
            if not dataset.has_stable_row_ids:
                raise InvalidInputError("Rows cannot be chosen by row id: the table has no stable row ids.")
            return _split_ids(self._row_ids, wanted)
        fragments = [(fragment.fragment_id, fragment.count_rows()) for fragment in dataset.get_fragments()]
        min_rows = 1 if self._partition_count else _MIN_PARTITION_ROWS
        return _split_fragments(fragments, wanted, min_rows, can_split=not self._conditions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        if not isinstance(partition, Scan | Take):
            return  # Spark makes a placeholder if there are no partitions
        schema = arrow_schema(self._schema)
        for batch in self._batches(partition, schema.names):
            freeze_garbage_collector()
            if batch.num_rows:
                yield to_spark(batch, schema)

    def _batches(self, partition: Scan | Take, names: list[str]) -> Iterator[pa.RecordBatch]:
        dataset = self._snapshot.open()
        rows = batch_rows([dataset.schema.field(name) for name in names if name in dataset.schema.names])
        if isinstance(partition, Take):
            return _take_batches(dataset, partition.row_ids, names, rows)
        scanner = scan_with_blobs(
            dataset,
            names,
            filter=" AND ".join(self._conditions) or None,
            fragments=[cast("LanceFragment", dataset.get_fragment(number)) for number in partition.fragments],
            batch_size=rows,
            scan_in_order=False,
            offset=None if partition.count is None else partition.first,
            limit=partition.count,
        )
        return scanner.to_batches()


@dataclass(frozen=True)
class PartitionScan:
    """Reads partitions in a task, which receives their numbers."""

    reader: LanceReader
    partitions: Sequence[InputPartition]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the partitions."""
        for batch in numbers:
            for number in batch.column(0).to_numpy():
                yield from self.reader.read(self.partitions[number])


class PushingReader(LanceReader):
    """A reader that evaluates filters of Spark, for data frames that are used once.

    Spark keeps pushed filters with the data frame, even for later queries on it without a filter.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Keep the filters that Lance can evaluate, and return those that Spark must evaluate."""
        dataset = self._snapshot.open()
        for given in filters:
            condition = translate(given, dataset.schema)
            if condition is None or not _can_evaluate(dataset, condition.text):
                yield given
                continue
            self._conditions.append(condition.text)
            if not condition.is_exact:
                yield given


def batch_rows(fields: Iterable[AnyField]) -> int:
    """Estimate the number of rows per batch from the types of the columns."""
    width = sum(estimate_width(field) for field in fields) or 1
    return max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, _BATCH_BYTES // width))


def _split_fragments(
    fragments: Sequence[tuple[int, int]], wanted: int, min_rows: int, *, can_split: bool
) -> list[InputPartition]:
    """Group consecutive fragments into partitions of about equal size, and split large fragments into ranges."""
    share = max(min_rows, -(-sum(rows for _, rows in fragments) // wanted), 1)
    parts: list[InputPartition] = []
    group: list[int] = []
    held = 0
    for number, rows in fragments:
        if group and held + rows > share * 1.25:
            parts.append(Scan(tuple(group)))
            group, held = [], 0
        if can_split and rows > share * 1.5:
            pieces = round(rows / share)
            edges = [rows * piece // pieces for piece in range(pieces + 1)]
            parts += [Scan((number,), first, last - first) for first, last in pairwise(edges)]
        else:
            group.append(number)
            held += rows
    return [*parts, Scan(tuple(group))] if group else parts


def _split_ids(row_ids: NDArray[np.int64], wanted: int) -> list[InputPartition]:
    import numpy as np

    pieces = max(1, min(wanted, len(row_ids) // _MIN_TAKE_ROWS))
    return [Take(piece) for piece in np.array_split(row_ids, pieces) if len(piece)]


def _take_batches(
    dataset: LanceDataset, row_ids: NDArray[np.int64], names: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(row_ids), rows):
        table = dataset._take_rows(row_ids[start : start + rows].tolist(), columns=names)  # noqa: SLF001 (no public one)
        yield from table.to_batches()


def _can_evaluate(dataset: LanceDataset, condition: str) -> bool:
    """Return whether Lance can evaluate a filter."""
    try:
        dataset.scanner(columns=[], with_row_id=True, filter=condition).explain_plan()
    except (ValueError, OSError, RuntimeError):
        return False
    return True
