"""Filters of Spark as filters of Lance."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pennon.spark.pushdown import translate

D = decimal.Decimal
DAY, NOON = dt.date(2024, 2, 29), dt.datetime.fromisoformat("2024-02-29T12:00:00.500")
COLUMNS: dict[str, pa.Array] = {
    "n": pa.array([1, 2, None], pa.int64()),
    "tiny": pa.array([1, 2, None], pa.int8()),
    "u": pa.array([1, 2**32 - 1, None], pa.uint32()),
    "uu": pa.array([1, 2**64 - 1, None], pa.uint64()),
    "x": pa.array([1.5, float("nan"), None], pa.float64()),
    "s": pa.array(["it's", "50% _\\", None], pa.string()),
    "b": pa.array([True, False, None], pa.bool_()),
    "day": pa.array([DAY, dt.date(1, 1, 1), None], pa.date32()),
    "at": pa.array([NOON, NOON, None], pa.timestamp("us", "UTC")),
    "clock": pa.array([NOON, NOON, None], pa.timestamp("ms")),
    "fine": pa.array([NOON, NOON, None], pa.timestamp("ns")),
    "berlin": pa.array([NOON, NOON, None], pa.timestamp("us", "Europe/Berlin")),
    "price": pa.array([D("1.50"), D("-2"), None], pa.decimal128(10, 2)),
    "inner": pa.array([{"a": 1, "odd.name": 2}, {"a": None, "odd.name": 3}, None]),
    "odd `name": pa.array([1, 2, 3]),
}
TABLE = pa.table(COLUMNS)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    return lance.write_dataset(TABLE, str(tmp_path_factory.mktemp("filtered") / "t.lance"))


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (EqualTo(("n",), 1), [0]),
        (Not(EqualTo(("n",), 1)), [1]),
        (EqualNullSafe(("n",), 2), [1]),
        (GreaterThan(("n",), -5), [0, 1]),
        (LessThan(("tiny",), 2), [0]),
        (EqualTo(("u",), 2**32 - 1), [1]),
        (EqualTo(("uu",), D(2**64 - 1)), [1]),
        (GreaterThanOrEqual(("uu",), D(1)), [0, 1]),
        (In(("n",), (1, None, 7)), [0]),
        (Not(In(("n",), (1, 7))), [1]),
        (IsNull(("s",)), [2]),
        (IsNotNull(("inner",)), [0, 1]),
        (EqualTo(("s",), "it's"), [0]),
        (StringStartsWith(("s",), "50% _"), [1]),
        (StringEndsWith(("s",), "\\"), [1]),
        (StringContains(("s",), "'"), [0]),
        (Not(StringContains(("s",), "'")), [1]),
        (EqualTo(("b",), True), [0]),
        (EqualTo(("day",), DAY), [0]),
        (LessThan(("day",), DAY), [1]),
        (EqualTo(("at",), NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=0)))), [0, 1]),
        (EqualTo(("clock",), NOON), [0, 1]),
        (EqualTo(("price",), D("1.5")), [0]),
        (LessThan(("price",), D("0")), [1]),
        (EqualTo(("inner", "a"), 1), [0]),
    ],
)
def test_lance_keeps_the_rows_that_spark_would_keep(dataset: lance.LanceDataset, given: Any, rows: list[int]) -> None:
    condition = translate(given, TABLE.schema)
    assert condition is not None
    assert condition.is_exact
    found = dataset.scanner(columns=[], with_row_address=True, filter=condition.text).to_table()
    assert found["_rowaddr"].to_pylist() == rows


def test_nan_is_kept_for_spark_to_judge(dataset: lance.LanceDataset) -> None:
    condition = translate(GreaterThan(("x",), 1.0), TABLE.schema)
    assert condition is not None
    assert not condition.is_exact
    assert dataset.count_rows(filter=condition.text) == 2


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("x",), 0.0),
        EqualTo(("x",), float("nan")),
        Not(LessThan(("x",), 1.0)),
        In(("x",), (1.5,)),
        EqualNullSafe(("n",), None),
        Not(EqualNullSafe(("n",), 1)),
        Not(In(("n",), (1, None))),
        In(("n",), (None,)),
        GreaterThan(("u",), -1),
        LessThan(("tiny",), 1000),
        GreaterThan(("n",), -(2**63)),
        EqualTo(("uu",), D("1.5")),
        EqualTo(("price",), D("1.555")),
        EqualTo(("clock",), NOON.replace(microsecond=1)),
        EqualTo(("fine",), NOON),
        EqualTo(("berlin",), NOON.replace(tzinfo=dt.UTC)),
        EqualTo(("odd `name",), 1),
        EqualTo(("nowhere",), 1),
        EqualTo(("inner", "b"), 1),
        EqualTo(("s",), "nul\0"),
    ],
)
def test_what_lance_may_see_otherwise_is_left_to_spark(given: Any) -> None:
    assert translate(given, TABLE.schema) is None
