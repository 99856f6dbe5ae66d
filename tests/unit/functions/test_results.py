"""Results: every form a function may return becomes columns of the declared types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from pennon.functions.results import ResultColumn, ResultConverter, WrongLengthError, to_arrow


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Couple:
    a: Any
    b: Any


def results(*fields: tuple[str, pa.DataType]) -> ResultConverter:
    return ResultConverter(
        [ResultColumn(pa.field(*field), field[0], position) for position, field in enumerate(fields)]
    )


VECTORS = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.float32(), 2),
        pa.list_(pa.float16(), 2),
        pa.list_(pa.field("element", pa.float64(), nullable=False), 2),
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_(pa.int8(), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "values", [np.array(VECTORS), np.array(VECTORS, "f4"), np.array(VECTORS, "f4", order="F"), VECTORS], ids=repr
)
def test_rows_of_numbers_become_lists_of_the_declared_type(values: Any, data_type: pa.DataType) -> None:
    array = to_arrow(values, data_type)
    assert array.type == data_type
    assert array.to_pylist() == VECTORS
    array.validate(full=True)


def test_an_embedding_is_not_copied() -> None:
    embedding = np.random.default_rng(7).random((1000, 128), dtype=np.float32)
    array = to_arrow(embedding, pa.list_(pa.float32(), 128))
    assert array.values.buffers()[1].address == embedding.ctypes.data


def test_cubes_become_lists_of_lists() -> None:
    cube = np.arange(24).reshape(2, 3, 4)
    assert to_arrow(cube, pa.list_(pa.list_(pa.int64(), 4), 3)).to_pylist() == cube.tolist()
    assert to_arrow(cube[:, :0], pa.list_(pa.list_(pa.int64(), 4))).to_pylist() == [[], []]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None]),
        pa.chunked_array([[1], [None]]),
        pa.array(["1", None]),
        [1, None],
        (1, None),
        np.array([1, None], dtype=object),
        pd.Series([1, None]),
        pd.Series([1, None], dtype="Int64"),
    ],
    ids=lambda values: type(values).__name__,
)
def test_arrays_of_all_kinds_become_the_declared_type(values: Any) -> None:
    array = to_arrow(values, pa.int16())
    assert (array.type, array.to_pylist()) == (pa.int16(), [1, None])


def test_numbers_of_64_bits_need_no_sign() -> None:
    assert to_arrow([2**64 - 1, None, 0], pa.uint64()).to_pylist() == [2**64 - 1, None, 0]


@pytest.mark.parametrize("values", [[{"x": 1, "y": None}, None], [[("x", 1.0), ("y", None)], None]], ids=repr)
def test_mappings_and_pairs_become_maps(values: list[Any]) -> None:
    assert to_arrow(values, pa.map_(pa.string(), pa.int64())).to_pylist() == [[("x", 1), ("y", None)], None]


def test_floats_of_any_size_become_half_floats() -> None:
    assert to_arrow([np.float32(1.5), None, 2], pa.float16()).to_pylist() == [1.5, None, 2]
    vectors = [np.array([1.5, 2], "f4"), None]
    assert to_arrow(vectors, pa.list_(pa.float16(), 2)).to_pylist() == [[1.5, 2], None]


def test_vectors_of_single_rows_become_lists() -> None:
    rows: list[object] = [np.array([1.0, 2.0]), None, [3, 4]]
    values = ResultConverter([ResultColumn(pa.field("v", pa.list_(pa.float32(), 2)), "", 0)]).from_rows(rows)
    assert values["v"].to_pylist() == [[1, 2], None, [3, 4]]


@pytest.mark.parametrize(
    ("values", "data_type", "said"),
    [
        (np.zeros((2, 3)), pa.list_(pa.float32(), 4), "lists of 3 values"),
        (np.zeros((2, 3)), pa.float32(), "shape"),
        (np.float64(1), pa.float64(), "float64"),
        (None, pa.float64(), "None"),
        ("text", pa.string(), "str"),
        (7, pa.int64(), "int"),
        ([1.5], pa.int64(), "1.5"),
        ([1, None, 1.5], pa.int8(), "1.5"),
        ([[1], [1.5]], pa.list_(pa.int64()), "1.5"),
        ([np.array([1.5])], pa.list_(pa.int32(), 1), "1.5"),
        ([300], pa.int8(), "300"),
        ([2**64], pa.uint64(), "too large"),
        (["x"], pa.int64(), "x"),
        (pa.array(["x"]), pa.int64(), "x"),
        (np.array([1.5]), pa.int32(), "1.5"),
        (np.array([1.5, None], dtype=object), pa.int32(), "1.5"),
        ([{"a": 1.5}], pa.struct([("a", pa.int64())]), "1.5 where int64"),
        ([[Pair(np.float32(1.5), None)]], pa.list_(pa.struct([("a", pa.int8())])), "1.5 where int8"),
        ([{"x": 1.5}], pa.map_(pa.string(), pa.int64()), "1.5 where int64"),
        ([[("x", 1.5)]], pa.map_(pa.string(), pa.int64()), "1.5 where int64"),
    ],
)
def test_a_result_of_a_wrong_type_says_so(values: Any, data_type: pa.DataType, said: str) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, pa.ArrowException), match=said):
        to_arrow(values, data_type)


@pytest.mark.parametrize(
    "rows",
    [
        [Pair(1, "x"), None],
        [Couple(1, "x"), None],
        [{"a": 1, "b": "x"}, None],
        [(1, "x"), None],
        [Pair(1, "x"), {"a": None, "b": None}],
    ],
    ids=repr,
)
def test_the_fields_of_a_row_become_columns(rows: list[Any]) -> None:
    values = results(("a", pa.int8()), ("b", pa.large_string())).from_rows(rows)
    assert values.schema == pa.schema([pa.field("a", pa.int8()), pa.field("b", pa.large_string())])
    assert values.to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": None}]


@pytest.mark.parametrize(
    "result",
    [
        pa.RecordBatch.from_pydict({"b": ["x", None], "a": [1, 2]}),
        pa.table({"b": ["x", None], "a": [1, 2]}),
        pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        {"a": np.array([1, 2]), "b": ["x", None]},
        Pair(np.array([1, 2]), ["x", None]),
        Couple([1, 2], ["x", None]),
        (pa.array([1, 2]), ["x", None]),
        [Pair(1, "x"), Pair(2, None)],
        [(1, "x"), {"a": 2, "b": None}],
        np.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}], dtype=object),
        pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
    ],
    ids=lambda result: type(result).__name__,
)
def test_the_columns_of_a_batch_become_columns(result: Any) -> None:
    values = results(("a", pa.int32()), ("b", pa.string())).from_batch(result, 2)
    assert values.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_a_null_struct_is_null_in_every_column() -> None:
    struct = pa.StructArray.from_arrays([pa.array([1, 2])], ["a"], mask=pa.array([False, True]))
    assert results(("a", pa.int64())).from_batch(struct, 2)["a"].to_pylist() == [1, None]


def test_a_field_that_is_missing_is_an_error() -> None:
    for result in (pa.array([{"b": 1}]), {"b": [1]}, [{"b": 1}], pa.table({"b": [1]})):
        with pytest.raises(KeyError):
            results(("a", pa.int64())).from_batch(result, 1)


def test_records_within_values_become_structs() -> None:
    pairs = pa.list_(pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())]))
    values = ResultConverter([ResultColumn(pa.field("v", pairs), "", 0)]).from_rows(
        [[Pair(1, "x"), Couple(2, "y")], None]
    )
    assert values["v"].to_pylist() == [[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], None]


def test_a_wrong_number_of_values_is_named() -> None:
    with pytest.raises(WrongLengthError, match="returned 2 values for 3 rows"):
        ResultConverter([ResultColumn(pa.field("v", pa.int64()), "", 0)]).from_batch([1, 2], 3)
