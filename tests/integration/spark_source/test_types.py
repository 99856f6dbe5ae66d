"""Columns of all types that Lance stores, through Spark and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.integration.spark_source.spark_namespace import SparkNamespace
from tests.unit.spark.test_types import CASES

#: What Lance does not store in a table of its usual format.
UNSTORED = {pa.decimal256(30, 4)}


def all_types() -> pa.Table:
    """Return three rows with a column of each type, the last of nulls."""
    columns = {
        f"c{number}": pa.array([*(values * 2)[:2], None], kind)
        for number, (kind, _, values) in enumerate(CASES)
        if kind not in UNSTORED
    }
    return pa.table({"id": pa.array([0, 1, 2]), **columns})


def test_rows_of_all_types_come_back_as_they_were(namespace: SparkNamespace) -> None:
    dataset = namespace.create("t", all_types())
    frame = namespace.load("t")
    assert frame.count() == 3
    namespace.save(frame, "t")
    twice = namespace.open("t").to_table().to_pylist()
    assert twice[:3] == dataset.to_table().to_pylist()
    assert sorted(twice[3:], key=lambda row: int(row["id"])) == twice[:3]


def test_spark_sees_the_numbers_that_were_stored(namespace: SparkNamespace) -> None:
    table = pa.table(
        {
            "small": pa.array([255], pa.uint8()),
            "large": pa.array([2**64 - 1], pa.uint64()),
            "half": pa.array([1.5], pa.float32()).cast(pa.float16()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0], pa.float32()), 2),
            "time": pa.array([3_600_000_001], pa.time64("us")),
            "span": pa.array([-5_000_001], pa.duration("us")),
        }
    )
    namespace.create("t", table)
    row = namespace.sql(
        "SELECT small + 1, large - 1, half * 2, vector[1], cast(time AS string), cast(span AS string) FROM {0}.t "
        "WHERE small > 254 AND large > 18446744073709551614"
    ).collect()[0]
    assert tuple(row) == (256, 2**64 - 2, 3.0, 2.0, "01:00:00.000001", "INTERVAL '-0 00:00:05.000001' DAY TO SECOND")


def test_blobs_are_read_as_the_bytes_they_are_and_not_written(namespace: SparkNamespace) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    namespace.create("t", pa.table([[1, 2], [b"abc", None]], schema=pa.schema([("id", pa.int64()), blob])))
    assert [tuple(row) for row in namespace.load("t").orderBy("id").collect()] == [(1, b"abc"), (2, None)]
    with pytest.raises(Exception, match="holds blobs, which Spark cannot write"):
        namespace.save(namespace.load("t"), "t")
