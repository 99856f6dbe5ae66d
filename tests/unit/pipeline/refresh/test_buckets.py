"""Buckets: each value is in one of them, with all of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.pipeline.refresh.buckets import Bucket


def dealt(batches: list[pa.Array], count: int) -> list[list[tuple[Any, list[int]]]]:
    """Deal out batches of values, whose rows are numbered."""
    found = []
    for number in range(count):
        bucket, start = Bucket(number, count), 0
        for values in batches:
            bucket.add(values, np.arange(start, start + len(values), dtype=np.uint64))
            start += len(values)
        found.append([(key, ids.tolist()) for key, ids in bucket.rows()])
    return found


def test_each_value_is_in_one_bucket_with_all_of_its_rows_in_order() -> None:
    random = np.random.default_rng(7)
    batches = [pa.array(random.integers(0, 500, 300)) for _ in range(4)]
    values = pa.concat_arrays(batches).to_pylist()
    buckets = dealt(batches, 3)
    assert all(buckets)
    found = dict(entry for bucket in buckets for entry in bucket)
    assert len(found) == sum(map(len, buckets))
    assert found == {key: [row for row, value in enumerate(values) if value == key] for key in set(values)}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([0.0, None, -0.0, float("nan"), None, float("nan")]), {"0.0": [0, 2], "None": [1, 4], "nan": [3, 5]}),
        (pa.array(["a", None, "b", "a"]).dictionary_encode(), {"'a'": [0, 3], "None": [1], "'b'": [2]}),
        (pa.array([], pa.string()), {}),
    ],
)
def test_values_are_distinguished_as_in_sql(values: pa.Array, wanted: dict[str, list[int]]) -> None:
    (bucket,) = dealt([values, values[:0]], 1)
    assert {repr(key): ids for key, ids in bucket} == wanted
