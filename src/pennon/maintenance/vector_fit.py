"""Whether vectors fit what an index was trained for: the range of their numbers, and their distance from centroids."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.tables.query.row_sizes import batch_rows_for, row_sizes_of

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment
    from numpy.typing import NDArray

#: A sample is read in blocks at random places.
_BLOCKS, _BLOCK_ROWS = 16, 64


def range_of(dataset: LanceDataset, column: str, fragments: Iterable[int], *, is_cosine: bool) -> tuple[float, float]:
    """Return the smallest and the largest number in the vectors of some fragments."""
    low, high = float("inf"), float("-inf")
    batch_rows = batch_rows_for(row_sizes_of(dataset).selected_bytes([column]))
    scanner = dataset.scanner(columns={"v": column}, fragments=_existing(dataset, fragments), batch_size=batch_rows)
    for vectors in _vectors(scanner.to_batches(), is_cosine=is_cosine):
        low, high = min(low, float(np.nanmin(vectors))), max(high, float(np.nanmax(vectors)))
    return low, high


def relative_distance(
    dataset: LanceDataset, index: str, column: str, new: Iterable[int], old: Iterable[int], *, is_cosine: bool
) -> float:
    """Return how many times as far from the nearest centroid as old vectors new ones are, by the mean of squares.

    It is 1.0 for vectors like those that the index was trained for, and 5 if all of them have moved. Both sides are
    sampled, by the numbers of their fragments. It is 0.0 if one of them has no vectors.
    """
    model: Any = dataset.centroids(index_name=index)
    centroids = np.asarray(model.flatten(), dtype=np.float32).reshape(len(model), -1)
    means = [
        _mean_distance(centroids, _sample(dataset, column, _existing(dataset, fragments), is_cosine=is_cosine))
        for fragments in (new, old)
    ]
    return means[0] / means[1] if all(np.isfinite(mean) and mean > 0 for mean in means) else 0.0


def _existing(dataset: LanceDataset, fragments: Iterable[int]) -> list[LanceFragment]:
    return [each for number in fragments if (each := dataset.get_fragment(number)) is not None]


def _sample(
    dataset: LanceDataset, column: str, fragments: Sequence[LanceFragment], *, is_cosine: bool
) -> Iterator[NDArray[np.float32]]:
    rows = [each.metadata.num_rows for each in fragments]
    if not sum(rows):
        return
    for position in random.choices(range(len(rows)), rows, k=_BLOCKS):  # noqa: S311 (a sample)
        offset = random.randrange(max(rows[position] - _BLOCK_ROWS, 0) + 1)  # noqa: S311 (a sample)
        chosen = [fragments[position]]
        scanner = dataset.scanner(columns={"v": column}, fragments=chosen, limit=_BLOCK_ROWS, offset=offset)
        yield from _vectors(scanner.to_batches(), is_cosine=is_cosine)


def _mean_distance(centroids: NDArray[np.float32], sample: Iterable[NDArray[np.float32]]) -> float:
    """Return the mean squared distance of vectors from the nearest centroid; NaN without vectors."""
    norms = np.square(centroids).sum(axis=1)
    nearest = [np.square(vectors).sum(axis=1) + (norms - 2 * vectors @ centroids.T).min(axis=1) for vectors in sample]
    return float(np.nanmean(np.concatenate(nearest))) if nearest else float("nan")


def _vectors(batches: Iterable[pa.RecordBatch], *, is_cosine: bool) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors of batches, one in each row of a matrix."""
    for batch in batches:
        column: Any = batch.column(0).drop_null()
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            column = column.flatten()
        if not len(column):
            continue
        vectors = np.asarray(pc.cast(column.flatten(), pa.float32())).reshape(len(column), -1)
        if is_cosine:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.where(norms == 0, 1, norms)
        yield vectors
