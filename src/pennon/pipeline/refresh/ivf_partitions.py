"""The rows of a table by the partitions of an IVF index, including rows that the index does not cover."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset
    from lance.fragment import LanceFragment

    from pennon.core.arrow_typing import AnyArray

Ids = NDArray[np.uint64]


class IndexPartitions:
    """The partitions of the IVF index of a column."""

    def __init__(self, dataset: LanceDataset, column: str, where: str | None) -> None:
        self._dataset = dataset
        self._column = column
        self._where = where
        name = next(index.name for index in dataset.describe_indices() if column in index.field_names)
        from lance.dataset import VectorIndexReader

        self._reader = VectorIndexReader(dataset, name)
        self._name = name
        self.count = int(self._reader.num_partitions())

    def rows(self, number: int) -> Ids:
        """Return the ids of the rows of a partition, ascending."""
        stored: Ids = self._reader.read_partition(number).column("_rowid").to_numpy()
        stored = stored[np.isin(stored, self._covered)]
        ids, nearest = self._others
        return np.sort(np.concatenate([stored, ids[nearest == number]]))

    @cached_property
    def _fragments(self) -> tuple[list[LanceFragment], list[LanceFragment]]:
        """The fragments that the index covers, and the others.

        An updated row keeps its id, and the index its old vector, so the fragment decides whether the index counts.
        """
        known = {
            int(fragment)
            for index in self._dataset.describe_indices()
            for segment in index.segments
            if index.name == self._name
            for fragment in segment.fragment_ids
        }
        fragments = self._dataset.get_fragments()
        return (
            [fragment for fragment in fragments if fragment.fragment_id in known],
            [fragment for fragment in fragments if fragment.fragment_id not in known],
        )

    @cached_property
    def _covered(self) -> Ids:
        covered, _ = self._fragments
        if not covered:
            return np.empty(0, dtype=np.uint64)
        scanner = self._dataset.scanner(fragments=covered, columns=[], filter=self._where, with_row_id=True)
        ids: Ids = scanner.to_table().column("_rowid").to_numpy()
        stored = [self._reader.read_partition(at).column("_rowid").to_numpy() for at in range(self.count)]
        self._unknown: Ids = ids[~np.isin(ids, np.concatenate(stored))] if stored else ids
        return ids

    @cached_property
    def _others(self) -> tuple[Ids, NDArray[np.int64]]:
        """The rows that no partition of the index has, and the partition with the nearest centroid for each."""
        _, outside = self._fragments
        ids: list[Ids] = []
        nearest: list[NDArray[np.int64]] = []
        batches: list[pa.RecordBatch] = []
        if len(self._covered) and len(self._unknown):
            import pyarrow as pa

            taken: pa.Table = self._dataset._take_rows(  # noqa: SLF001 (nothing public takes rows by id)
                pa.array(self._unknown), columns={"_rowid": "_rowid", "vector": f"`{self._column}`"}
            )
            batches += taken.to_batches()
        if outside:
            scanner = self._dataset.scanner(
                fragments=outside,
                columns={"_rowid": "_rowid", "vector": f"`{self._column}`"},
                filter=self._where,
            )
            batches = [*batches, *scanner.to_batches()]
        for batch in batches:
            ids.append(batch.column("_rowid").to_numpy())
            nearest.append(self._nearest(batch.column("vector")))
        if not ids:
            return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
        return np.concatenate(ids), np.concatenate(nearest)

    @cached_property
    def _centroids(self) -> tuple[NDArray[np.float64], str]:
        stats = self._reader.stats["indices"][0]
        return np.asarray(stats["centroids"], dtype=np.float64), str(stats["metric_type"]).lower()

    def _nearest(self, vectors: AnyArray) -> NDArray[np.int64]:
        centroids, metric = self._centroids
        # The index has no partition for a row without a vector; treat it as the zero vector.
        width = centroids.shape[1]
        values = np.array(
            [row if row is not None else [0.0] * width for row in vectors.to_pylist()], dtype=np.float64
        ).reshape(len(vectors), width)
        if metric == "cosine":
            values = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
        products = values @ centroids.T
        if metric == "dot":
            return np.asarray(products.argmax(axis=1))
        return np.asarray((np.square(centroids).sum(axis=1) - 2 * products).argmin(axis=1))
