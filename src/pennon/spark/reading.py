"""Reading a version of a table in Spark: fragments as partitions, and Arrow batches from each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pennon.spark.pushdown import translate
from pennon.spark.python_workers import spare_collection
from pennon.spark.types import arrow_schema, to_spark, width_of
from pennon.tables.blobs import scan_with_blobs
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

#: Bytes of a batch: few enough for a processor's cache on both sides of the socket.
_BATCH_BYTES = 512 * 1024
_MOST_BATCH_ROWS, _FEWEST_BATCH_ROWS = 65_536, 64
#: Partitions for each core: a task costs tens of milliseconds, and a slow one should not be waited for alone.
_PARTITIONS_PER_CORE = 2
_FEWEST_PARTITION_ROWS = 65_536
_FEWEST_TAKEN_ROWS = 8_192


@dataclass
class Scan(InputPartition):
    """Rows of some fragments: all, or so many from a first one, if there is no filter."""

    fragments: tuple[int, ...]
    first: int = 0
    count: int | None = None


@dataclass
class Take(InputPartition):
    """Rows by their ids."""

    row_ids: NDArray[np.int64]


class LanceReader(DataSourceReader):
    """Reads the columns of a schema from a version of a table."""

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
        self._wanted = partitions
        self._cores = cores
        self._conditions = [f"({condition})"] if condition else []

    def __getstate__(self) -> dict[str, Any]:
        # Tasks have their rows from their partition.
        return {**self.__dict__, "_row_ids": None}

    def partitions(self) -> Sequence[InputPartition]:
        """Return groups of fragments, or parts of large ones, about as many as there are cores to read them."""
        wanted = self._wanted or (self._cores or 1) * _PARTITIONS_PER_CORE
        dataset = self._snapshot.open()
        spare_collection()
        if self._row_ids is not None:
            if not dataset.has_stable_row_ids:
                raise InvalidInputError("The ids of the table's rows are not stable, so rows cannot be chosen by them.")
            return _split_ids(self._row_ids, wanted)
        fragments = [(fragment.fragment_id, fragment.count_rows()) for fragment in dataset.get_fragments()]
        least = 1 if self._wanted else _FEWEST_PARTITION_ROWS
        return _split_fragments(fragments, wanted, least, splitting=not self._conditions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        if not isinstance(partition, Scan | Take):
            return  # what Spark makes of no partitions at all
        schema = arrow_schema(self._schema)
        for batch in self._batches(partition, schema.names):
            spare_collection()
            if batch.num_rows:
                yield to_spark(batch, schema)

    def _batches(self, partition: Scan | Take, names: list[str]) -> Iterator[pa.RecordBatch]:
        dataset = self._snapshot.open()
        rows = batch_rows([dataset.schema.field(name) for name in names if name in dataset.schema.names])
        if isinstance(partition, Take):
            return _taken(dataset, partition.row_ids, names, rows)
        options: dict[str, Any] = {}
        if partition.count is not None:
            options = {"offset": partition.first, "limit": partition.count}
        scanner = scan_with_blobs(
            dataset,
            names,
            filter=" AND ".join(self._conditions) or None,
            fragments=[dataset.get_fragment(number) for number in partition.fragments],
            batch_size=rows,
            scan_in_order=False,
            **options,
        )
        batches: Iterator[pa.RecordBatch] = scanner.to_batches()
        return batches


@dataclass(frozen=True)
class PartitionReads:
    """Reads, in a task, the partitions whose numbers it gets."""

    reader: LanceReader
    partitions: Sequence[InputPartition]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the partitions."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.reader.read(self.partitions[number])


class PushingReader(LanceReader):
    """A reader that takes over filters of Spark, for data frames that are used once.

    Spark keeps what was pushed with the data frame, also for queries over it that have no filter.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take over the filters that Lance evaluates; Spark keeps those that are returned."""
        dataset = self._snapshot.open()
        for given in filters:
            condition = translate(given, dataset.schema)
            if condition is None or not _is_understood(dataset, condition.text):
                yield given
                continue
            self._conditions.append(condition.text)
            if not condition.exact:
                yield given


def batch_rows(fields: Iterable[pa.Field]) -> int:
    """Return how many rows of some columns make a batch, going by the types alone."""
    width = sum(width_of(field) for field in fields) or 1
    return max(_FEWEST_BATCH_ROWS, min(_MOST_BATCH_ROWS, _BATCH_BYTES // width))


def _split_fragments(
    fragments: Sequence[tuple[int, int]], wanted: int, least: int, *, splitting: bool
) -> list[InputPartition]:
    """Put neighbours together until they are a fair share; a fragment of several shares is read in parts."""
    share = max(least, -(-sum(rows for _, rows in fragments) // wanted), 1)
    parts: list[InputPartition] = []
    group: list[int] = []
    held = 0
    for number, rows in fragments:
        if group and held + rows > share * 1.25:
            parts.append(Scan(tuple(group)))
            group, held = [], 0
        if splitting and rows > share * 1.5:
            pieces = round(rows / share)
            edges = [rows * piece // pieces for piece in range(pieces + 1)]
            parts += [Scan((number,), first, last - first) for first, last in pairwise(edges)]
        else:
            group.append(number)
            held += rows
    return [*parts, Scan(tuple(group))] if group else parts


def _split_ids(row_ids: NDArray[np.int64], wanted: int) -> list[InputPartition]:
    import numpy as np

    pieces = max(1, min(wanted, len(row_ids) // _FEWEST_TAKEN_ROWS))
    return [Take(piece) for piece in np.array_split(row_ids, pieces) if len(piece)]


def _taken(dataset: Any, row_ids: NDArray[np.int64], names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(row_ids), rows):
        table = dataset._take_rows(row_ids[start : start + rows].tolist(), columns=names)  # noqa: SLF001 (no public one)
        yield from table.to_batches()


def _is_understood(dataset: Any, condition: str) -> bool:
    """Tell whether Lance can evaluate a condition; what it cannot is left to Spark."""
    try:
        dataset.scanner(columns=[], with_row_id=True, filter=condition).explain_plan()
    except (ValueError, OSError, RuntimeError):
        return False
    return True
