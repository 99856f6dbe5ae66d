"""Types of Lance in Spark, and values on the way in and out."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import TableSchemaValidationError
from pyspark.sql.types import StructField, StructType

from pennon.spark.types import arrow_schema, check_writable, spark_schema, to_lance, to_spark

D = decimal.Decimal
MOMENT = dt.datetime.fromisoformat("2024-02-29T12:00:00.123456")
#: The Arrow type, what Spark calls it, and values; a null is added to each.
CASES: list[tuple[pa.DataType, str, list[Any]]] = [
    (pa.bool_(), "boolean", [True, False]),
    (pa.int8(), "tinyint", [-128, 127]),
    (pa.int16(), "smallint", [-(2**15), 2**15 - 1]),
    (pa.int32(), "int", [-(2**31), 2**31 - 1]),
    (pa.int64(), "bigint", [-(2**63), 2**63 - 1]),
    (pa.uint8(), "smallint", [0, 255]),
    (pa.uint16(), "int", [0, 2**16 - 1]),
    (pa.uint32(), "bigint", [0, 2**32 - 1]),
    (pa.uint64(), "decimal(20,0)", [0, 2**64 - 1]),
    (pa.float16(), "float", [1.5, -2.0]),
    (pa.float32(), "float", [0.1, float("inf")]),
    (pa.float64(), "double", [0.1, -0.0]),
    (pa.string(), "string", ["", "ä\n"]),
    (pa.large_string(), "string", ["a", "b" * 100]),
    (pa.binary(), "binary", [b"", b"\0\xff"]),
    (pa.large_binary(), "binary", [b"a", b"b"]),
    (pa.binary(3), "binary", [b"abc", b"\0\0\0"]),
    (pa.decimal128(10, 2), "decimal(10,2)", [D("1.23"), D("-99999999.99")]),
    (pa.decimal256(30, 4), "decimal(30,4)", [D("1.2345"), D("0")]),
    (pa.date32(), "date", [dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
    (pa.date64(), "date", [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    (pa.timestamp("s"), "timestamp_ntz", [MOMENT.replace(microsecond=0)]),
    (pa.timestamp("ms"), "timestamp_ntz", [MOMENT.replace(microsecond=123000)]),
    (pa.timestamp("us"), "timestamp_ntz", [MOMENT]),
    (pa.timestamp("ns"), "timestamp_ntz", [MOMENT]),
    (pa.timestamp("us", "UTC"), "timestamp", [MOMENT.replace(tzinfo=dt.UTC)]),
    (pa.timestamp("ns", "Europe/Berlin"), "timestamp", [MOMENT.replace(tzinfo=dt.UTC)]),
    (pa.time32("s"), "time(0)", [dt.time(23, 59, 59)]),
    (pa.time64("us"), "time(6)", [dt.time(23, 59, 59, 999999)]),
    (pa.time64("ns"), "time(6)", [dt.time(0, 0, 0, 1)]),
    (pa.duration("s"), "interval day to second", [dt.timedelta(days=-3)]),
    (pa.duration("us"), "interval day to second", [dt.timedelta(microseconds=1)]),
    (pa.duration("ns"), "interval day to second", [dt.timedelta(hours=5)]),
    (pa.dictionary(pa.int32(), pa.string()), "string", ["a", "b", "a"]),
    (pa.list_(pa.int64()), "array<bigint>", [[], [1, None]]),
    (pa.large_list(pa.uint32()), "array<bigint>", [[1, 2], [2**32 - 1]]),
    (pa.list_(pa.float32(), 2), "array<float>", [[1.0, 2.0], [3.0, None]]),
    (pa.list_(pa.float16(), 2), "array<float>", [[1.5, 2.0], [3.0, 4.0]]),
    (pa.list_(pa.list_(pa.uint8(), 2)), "array<array<smallint>>", [[[1, 2], None, [3, 4]], []]),
    (pa.map_(pa.string(), pa.uint16()), "map<string,int>", [[("a", 1)], []]),
    (pa.struct([("u", pa.uint64()), ("v", pa.list_(pa.float16(), 2))]), "struct<u:decimal(20,0),v:array<float>>",
     [{"u": 2**64 - 1, "v": [1.5, 2.0]}, {"u": None, "v": None}]),
    (pa.null(), "void", [None]),
]  # fmt: skip


def batch(kind: pa.DataType, values: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([*values, None], kind)], schema=pa.schema([("c", kind)]))


@pytest.mark.parametrize(("kind", "name", "values"), CASES, ids=[str(case[0]) for case in CASES])
def test_each_type_has_one_of_sparks_and_its_values_come_back(kind: pa.DataType, name: str, values: list[Any]) -> None:
    stored = batch(kind, values)
    seen = spark_schema(stored.schema)
    assert seen[0].dataType.simpleString() == name
    given = to_spark(stored, arrow_schema(seen))
    check_writable(seen, stored.schema)
    assert to_lance(given, stored.schema).to_pylist() == stored.to_pylist()
    # Rows out of the middle of others, as slices of them.
    assert to_lance(given.slice(1), stored.schema).to_pylist() == stored.to_pylist()[1:]
    assert to_spark(stored.slice(1), arrow_schema(seen)).to_pylist() == given.to_pylist()[1:]


def test_ids_of_rows_are_long_numbers() -> None:
    seen = spark_schema(pa.schema([("_rowid", pa.uint64()), ("n", pa.uint64())]))
    assert [field.dataType.simpleString() for field in seen] == ["bigint", "decimal(20,0)"]


def test_a_part_of_a_microsecond_is_cut_off() -> None:
    stored = pa.RecordBatch.from_arrays([pa.array([1_999], pa.int64()).cast(pa.timestamp("ns"))], names=["c"])
    given = to_spark(stored, arrow_schema(spark_schema(stored.schema)))
    assert given["c"].cast(pa.int64()).to_pylist() == [1]


def test_bfloat16_is_read_as_the_number_it_is() -> None:
    from lance.arrow import bfloat16_array

    stored = pa.RecordBatch.from_arrays([bfloat16_array([1.5, None, -2.0])], names=["c"])
    assert spark_schema(stored.schema)[0].dataType.simpleString() == "float"
    assert to_spark(stored, arrow_schema(spark_schema(stored.schema)))["c"].to_pylist() == [1.5, None, -2.0]


@pytest.mark.parametrize("kind", [pa.decimal256(50, 2), pa.decimal128(5, -2), pa.month_day_nano_interval()])
def test_a_type_that_spark_does_not_have_names_its_column(kind: pa.DataType) -> None:
    with pytest.raises(TableSchemaValidationError, match=r"no type for .* the column 'c'; omit it .*'columns'"):
        spark_schema(pa.schema([("c", kind)]))


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([300], pa.int16()), pa.uint8()),
        (pa.array([-1], pa.int64()), pa.uint32()),
        (pa.array([D(2**64)], pa.decimal128(20, 0)), pa.uint64()),
        (pa.array([D("1.5")], pa.decimal128(3, 1)), pa.int32()),
        (pa.array([0.1], pa.float32()), pa.float16()),
        (pa.array([0.1], pa.float64()), pa.float32()),
        (pa.array([2**53 + 1], pa.int64()), pa.float64()),
        (pa.array([MOMENT], pa.timestamp("us")), pa.timestamp("ms")),
        (pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32())), pa.list_(pa.float32(), 2)),
        (pa.array([[0.1, 0.2]], pa.list_(pa.float32())), pa.list_(pa.float16(), 2)),
        (pa.array([b"abcd"], pa.binary()), pa.binary(3)),
    ],
)
def test_a_value_that_would_be_changed_is_refused(given: pa.Array, kind: pa.DataType) -> None:
    rows = pa.RecordBatch.from_arrays([given], names=["c"])
    with pytest.raises(TableSchemaValidationError, match=r"'c' has type .*, which cannot hold all values"):
        to_lance(rows, pa.schema([("c", kind)]))


def test_rounding_is_only_allowed_for_floating_point() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([0.1, float("nan"), None], pa.float64())], names=["c"])
    rounded = to_lance(rows, pa.schema([("c", pa.float16())]), rounding=True)
    assert rounded["c"].cast(pa.float32()).to_pylist()[0] == 0.0999755859375
    assert to_lance(rows.slice(1), pa.schema([("c", pa.float16())]))["c"].null_count == 1
    with pytest.raises(TableSchemaValidationError):
        to_lance(rows.slice(0, 1), pa.schema([("c", pa.int64())]), rounding=True)


@pytest.mark.parametrize(
    ("given", "kind"),
    [("string", pa.int64()), ("boolean", pa.int8()), ("int", pa.bool_()), ("timestamp_ntz", pa.timestamp("us", "UTC")),
     ("bigint", pa.timestamp("us")), ("string", pa.binary()), ("struct<a:int>", pa.struct([("b", pa.int32())]))],
)  # fmt: skip
def test_what_means_something_else_is_refused_before_a_row_is_written(given: str, kind: pa.DataType) -> None:
    from pyspark.sql.types import DataType

    known: dict[str, DataType] = {
        field.dataType.simpleString(): field.dataType
        for field in spark_schema(
            pa.schema(
                [
                    ("a", pa.string()), ("b", pa.bool_()), ("c", pa.int32()), ("d", pa.int64()),
                    ("e", pa.timestamp("us")), ("f", pa.struct([("a", pa.int32())])),
                ]
            )
        )
    }  # fmt: skip
    with pytest.raises(TableSchemaValidationError, match=r"but the rows have .*; cast it"):
        check_writable(StructType([StructField("c", known[given])]), pa.schema([("c", kind)]))
