"""The decorator: kinds, inputs, outputs and options, and clear errors where they cannot be inferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Annotated, Any, NamedTuple, Optional, TypedDict

import numpy as np
import pyarrow as pa
import pytest

from pennon.functions import ErrorPolicy, Function, udf
from pennon.functions.envelope import read_envelope
from pennon.functions.loader import load


class Point(NamedTuple):
    x: float
    label: str | None


@dataclass
class Size:
    width: int
    tags: list[str]


class Place(TypedDict):
    city: str
    point: Point


_POINT: list[tuple[str, pa.DataType]] = [("x", pa.float64()), ("label", pa.string())]


def outputs(function: Function[..., Any]) -> list[tuple[str, pa.DataType]]:
    return [(output.struct_field, output.data_type) for output in function.outputs]


def test_a_plain_function_is_scalar_and_stays_callable() -> None:
    @udf
    def area(width: float, height: float) -> float:
        """Return the area."""
        return width * height

    assert (area.name, area.kind, area.inputs, area.stateful) == ("area", "scalar", ("width", "height"), False)
    assert outputs(area) == [("", pa.float64())]
    assert area(2, height=3) == 6
    assert (area.__name__, area.__doc__) == ("area", "Return the area.")


def test_arrow_hints_choose_the_kind() -> None:
    @udf(data_type=pa.int64())
    def by_array(x: pa.Array, y: pa.Int64Array) -> pa.Array:
        return x

    @udf(data_type=pa.int64(), input_columns=["a", "b.c"])
    def by_record_batch(batch: pa.RecordBatch) -> pa.Array:
        return batch.column(0)

    @udf(data_type=pa.int64(), kind="batch")
    def stated(x, y=None):  # type: ignore[no-untyped-def]
        return x

    assert [function.kind for function in (by_array, by_record_batch, stated)] == ["batch", "record_batch", "batch"]
    assert [f.inputs for f in (by_array, by_record_batch, stated)] == [("x", "y"), ("a", "b.c"), ("x", "y")]


def test_a_class_is_called_by_its_method() -> None:
    @udf(input_columns=["text.`a.b`"])
    class Count:
        def __init__(self, step: int = 1) -> None:
            self.step = step

        def __call__(self, text: str) -> int:
            return len(text) * self.step

    count: Any = Count  # for mypy, which does not believe a decorator that a class becomes something else
    assert (count.kind, count.stateful, count.inputs) == ("scalar", True, ("text.`a.b`",))
    assert outputs(count) == [("", pa.int64())]
    assert Count(step=2)("tea") == 6
    assert count.constructed_with(step=2).pack() != count.pack()


def test_whatever_can_be_called_becomes_a_function() -> None:
    class Scale:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __call__(self, x: int) -> int:
            return x * self.factor

        def twice(self, x: int) -> int:
            return 2 * x * self.factor

    def add(a: int, x: int) -> int:
        return a + x

    made: list[Function[..., Any]] = [udf(partial(add, 3)), udf(Scale(3)), udf(Scale(3).twice)]
    assert [function.name for function in made] == ["add", "Scale", "twice"]
    assert [function.inputs for function in made] == [("x",)] * 3
    assert [load(read_envelope(function.pack())).call(5) for function in made] == [8, 15, 30]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (bytes, pa.binary()),
        (bool, pa.bool_()),
        (datetime, pa.timestamp("us")),
        (date, pa.date32()),
        (np.float32, pa.float32()),
        (Optional[int], pa.int64()),  # noqa: UP045 - people write it
        (int | None, pa.int64()),
        (list[float], pa.list_(pa.float64())),
        (Sequence[str | None], pa.list_(pa.string())),
        (tuple[int, ...], pa.list_(pa.int64())),
        (list[Point], pa.list_(pa.struct(_POINT))),
        (Annotated[list[float], pa.list_(pa.float32(), 4)], pa.list_(pa.float32(), 4)),
    ],
)
def test_a_return_hint_gives_the_type(hint: Any, expected: pa.DataType) -> None:
    def plain(x: int) -> Any:
        return x

    plain.__annotations__["return"] = hint
    assert outputs(udf(plain)) == [("", expected)]


def test_records_give_one_output_a_field() -> None:
    @udf
    def named(x: int) -> Point:
        return Point(x, None)

    @udf
    def dataclassed(x: int) -> Size:
        return Size(x, [])

    @udf
    def typed(x: int) -> Place | None:
        return None

    @udf(data_type=pa.struct(_POINT))
    def stated(x):  # type: ignore[no-untyped-def]
        return {}

    assert outputs(named) == outputs(stated) == _POINT
    assert outputs(dataclassed) == [("width", pa.int64()), ("tags", pa.list_(pa.string()))]
    assert outputs(typed) == [("city", pa.string()), ("point", pa.struct(_POINT))]


def test_options_are_kept() -> None:
    policy = ErrorPolicy.skip(max_errors=3)
    manifest = {"pip": ["torch"], "env_vars": {"A": "b"}}
    function = udf(
        name="embed",
        version="v7",
        batch_size=64,
        batch_bytes=1 << 20,
        timeout=2.5,
        error_policy=policy,
        auto_backfill=True,
        num_cpus=2,
        memory=1 << 30,
        image="repo:1",
        manifest=manifest,
        data_type=pa.int8(),
    )(lambda x: x)
    options = function.options
    assert (function.name, function.version) == ("embed", "v7")
    assert (options.batch_size, options.batch_bytes, options.timeout) == (64, 1 << 20, 2.5)
    assert (options.error_policy, options.auto_backfill, options.manifest) == (policy, True, manifest)
    assert (options.num_cpus, options.memory, options.image) == (2, 1 << 30, "repo:1")


def no_hint(x):  # type: ignore[no-untyped-def]
    return x


def any_hint(x: int) -> Any:
    return x


def two_hints(x: int) -> int | str:
    return x


def dict_hint(x: int) -> dict[str, int]:
    return {}


def array_hint(x: pa.Array) -> pa.Array:
    return x


def mixed(x: pa.Array, y: int) -> int:
    return y


def record(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def endless(*values: int) -> int:
    return sum(values)


def keyword_only(x: int, *, y: int) -> int:
    return x + y


def lost_hint(x: int) -> Lost:  # type: ignore[name-defined]  # noqa: F821
    return x


async def asynchronous(x: int) -> int:
    return x


def yielding(x: int) -> Iterator[int]:
    yield x


class WithoutCall:
    pass


@pytest.mark.parametrize(
    ("plain", "options", "said"),
    [
        (no_hint, {}, "data_type="),
        (any_hint, {}, "data_type="),
        (two_hints, {}, "data_type="),
        (dict_hint, {}, "dict.*data_type="),
        (array_hint, {}, "data_type="),
        (mixed, {}, "all be Python values, all be Arrow arrays, or be one RecordBatch"),
        (record, {"data_type": pa.int8()}, "input_columns="),
        (endless, {}, "input_columns="),
        (keyword_only, {}, "default"),
        (lost_hint, {}, "Lost.*data_type="),
        (asynchronous, {}, "async"),
        (yielding, {}, "chunker"),
        (WithoutCall, {}, "__call__"),
        (no_hint, {"data_type": "int8"}, "Arrow type"),
        (no_hint, {"data_type": pa.int8(), "kind": "row"}, "kind must be one of"),
        (no_hint, {"data_type": pa.int8(), "input_columns": "x"}, "list"),
        (no_hint, {"data_type": pa.int8(), "input_columns": ["x", "y"]}, "2 values"),
        (no_hint, {"data_type": pa.int8(), "colour": "red"}, "colour"),
        (no_hint, {"data_type": pa.int8(), "error_policy": "skip"}, r"ErrorPolicy\.skip\(\), not 'skip'"),
    ],
)
def test_a_type_that_cannot_be_inferred_is_a_type_error_that_names_the_function(
    plain: Any, options: Any, said: str
) -> None:
    with pytest.raises(TypeError, match=rf"@udf on '{plain.__name__}'.*{said}"):
        udf(**options)(plain)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2**31}, "batch_size is 2147483648; it must be at most 2147483647"),
        ({"memory": 10**30}, "memory"),
        ({"num_cpus": 1e300}, "num_cpus"),
        ({"batch_size": 2.5}, "batch_size must be an integer greater than 0, not 2.5"),
        ({"batch_bytes": "1m"}, "batch_bytes must be an integer greater than 0, not '1m'"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("inf")}, "timeout must be a number greater than 0, not inf"),
        ({"manifest": {"conda": []}}, "conda"),
        ({"manifest": {"pip": "torch"}}, "pip"),
        ({"manifest": {"env_vars": {"A": 1}}}, "env_vars"),
    ],
)
def test_a_senseless_option_is_refused(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        udf(data_type=pa.int8(), **options)(no_hint)
