"""Applying: calls, retries, bisecting, conversion, and what is never swallowed."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.functions import ErrorPolicy, Function, udf, udf_calls
from pennon.functions.udf_calls import Applied, FunctionFailedError, RowError
from tests.unit.functions.support import applier, batch

SKIP = ErrorPolicy.skip()


class Parts(NamedTuple):
    whole: int
    text: str


@udf
def product(x: int, y: int) -> int:
    return x * y


@udf
def inverse(x: int) -> float:
    return 1 / x


@udf(data_type=pa.float64())
def inverses(x: pa.Array) -> pa.Array:
    return pa.array([1 / value for value in x.to_pylist()])


@udf(data_type=pa.float64(), input_columns=["deep.`x`"])
def inverses_of_record_batch(rows: pa.RecordBatch) -> pa.Array:
    assert rows.schema.names == ["deep.`x`"]
    return pa.array([1 / value for value in rows.column(0).to_pylist()])


@udf
def parts(x: int) -> Parts | None:
    return None if x < 0 else Parts(x // (x != 13), str(x))


def failed_rows(applied: Applied) -> list[int]:
    return [error.row for error in applied.errors]


def test_a_scalar_function_is_called_for_each_row_with_python_values() -> None:
    applied = applier(product).apply(batch(x=[1, 2, 3], y=[4, 5, 6]))
    assert applied.values.to_pydict() == {"value": [4, 10, 18]}
    assert (applied.errors, applied.calls) == ([], 3)


def test_nulls_are_passed_as_none() -> None:
    @udf
    def is_null(x: int | None, y: str | None) -> str:
        return f"{x is None} {y is None}"

    applied = applier(is_null).apply(batch(x=[1, None], y=[None, "a"]))
    assert applied.values["value"].to_pylist() == ["False True", "True False"]


def test_columns_are_taken_by_their_position() -> None:
    assert applier(product).apply(batch(a=[2], b=[3])).values["value"].to_pylist() == [6]
    with pytest.raises(ValueError, match="3 columns for 2 inputs"):
        applier(product).apply(batch(a=[2], b=[3], c=[4]))


def test_a_function_without_inputs_is_called_for_each_row() -> None:
    @udf
    def always() -> int:
        return 7

    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert applier(always).apply(rows).values["value"].to_pylist() == [7, 7]


@pytest.mark.parametrize("function", [inverse, inverses, inverses_of_record_batch])
def test_no_rows_need_no_call(function: Function[..., Any]) -> None:
    applied = applier(function).apply(pa.RecordBatch.from_pydict({"x": pa.array([], pa.int64())}))
    assert (applied.values.num_rows, applied.calls) == (0, 0)


def test_several_outputs_are_several_columns() -> None:
    applied = applier(parts, policy=SKIP).apply(batch(x=[1, -1, 13]))
    assert applied.values.to_pydict() == {"whole": [1, None, None], "text": ["1", None, None]}
    assert failed_rows(applied) == [2]


def test_one_of_several_outputs_can_be_asked_for() -> None:
    from pennon.functions import read_envelope
    from pennon.functions.loader import load
    from pennon.functions.udf_calls import Applier

    one = Applier(load(read_envelope(parts.pack())), ["x"], pa.schema({"label": pa.large_string()}), ["text"])
    assert one.apply(batch(x=[5])).values.to_pydict() == {"label": ["5"]}


@given(
    function=st.sampled_from([inverse, inverses, inverses_of_record_batch]),
    values=st.lists(st.integers(-3, 3), max_size=200),
    batch_size=st.integers(1, 64) | st.none(),
)
@settings(deadline=None)
def test_exactly_the_rows_that_fail_are_null(
    function: Function[..., Any], values: list[int], batch_size: int | None
) -> None:
    declared = udf(data_type=pa.float64(), batch_size=batch_size, kind=function.kind, input_columns=function.inputs)(
        function.plain
    )
    applied = applier(declared, policy=SKIP).apply(batch(x=pa.array(values, pa.int64())))
    assert applied.values["value"].to_pylist() == [1 / value if value else None for value in values]
    assert failed_rows(applied) == [row for row, value in enumerate(values) if value == 0]
    assert {error.type for error in applied.errors} <= {"ZeroDivisionError"}


def test_seven_bad_rows_of_a_thousand_are_found() -> None:
    bad = {3, 127, 128, 500, 501, 998, 999}
    values = [0 if row in bad else row + 1 for row in range(1000)]
    rows = batch(x=values)
    many = applier(inverses, policy=SKIP)
    pieces = [many.apply(rows.slice(start, 128)) for start in range(0, 1000, 128)]
    assert sum(piece.values["value"].null_count for piece in pieces) == 7
    assert {128 * n + error.row for n, piece in enumerate(pieces) for error in piece.errors} == bad


@pytest.mark.parametrize("function", [inverse, inverses, inverses_of_record_batch])
def test_a_policy_to_fail_names_the_first_row_and_keeps_the_cause(function: Function[..., Any]) -> None:
    with pytest.raises(FunctionFailedError, match=r"row 37 of a batch: ZeroDivisionError: division by zero") as raised:
        applier(function).apply(batch(x=[0 if row in (37, 80) else 1 for row in range(100)]))
    assert raised.value.row == 37
    assert raised.value.error == RowError(37, "ZeroDivisionError", "division by zero")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_finding_the_first_row_takes_few_calls(tmp_path: Any) -> None:
    log = tmp_path / "calls"

    @udf(data_type=pa.int64())
    def logged(x: pa.Array) -> pa.Array:
        with log.open("a") as file:
            file.write("call\n")
        if 700 in x.to_pylist():
            raise ValueError("bad")
        return x

    with pytest.raises(FunctionFailedError) as raised:
        applier(logged).apply(batch(x=list(range(1024))))
    assert raised.value.row == 700
    assert len(log.read_text().split()) <= 2 * 10


def test_a_failure_that_needs_the_whole_batch_names_no_row() -> None:
    @udf(data_type=pa.int64())
    def picky(x: pa.Array) -> pa.Array:
        if len(x) > 3:
            raise ValueError("too many")
        return x

    with pytest.raises(FunctionFailedError, match="failed for a batch: ValueError: too many") as raised:
        applier(picky).apply(batch(x=list(range(10))))
    assert raised.value.row is None
    assert applier(picky, policy=SKIP).apply(batch(x=list(range(10)))).errors == []


class Flaky:
    """Fails the first times it is called with a value, as a service would."""

    def __init__(self, failures: int) -> None:
        self.left = {2: failures}

    def __call__(self, x: int) -> int:
        if self.left.get(x, 0):
            self.left[x] -= 1
            raise ConnectionError("try again")
        return x


class FlakyBatch(Flaky):
    def __call__(self, x: Any) -> Any:
        return [super(FlakyBatch, self).__call__(value) for value in x.to_pylist()]


@pytest.mark.parametrize(("plain", "kind"), [(Flaky, "scalar"), (FlakyBatch, "batch")])
def test_calls_are_made_again_after_growing_pauses(plain: Any, kind: Any) -> None:
    pauses: list[float] = []
    function = udf(kind=kind, data_type=pa.int64(), version="retried")(plain).constructed_with(failures=2)
    policy = ErrorPolicy.retry(OSError, message="again", attempts=3, backoff=1, factor=4)
    applied = applier(function, policy=policy, sleep=pauses.append).apply(batch(x=[1, 2, 3]))
    assert applied.values["value"].to_pylist() == [1, 2, 3]
    assert (applied.errors, pauses) == ([], [1, 4])
    assert applied.calls == {"scalar": 5, "batch": 3}[kind]


@pytest.mark.parametrize(("plain", "kind"), [(Flaky, "scalar"), (FlakyBatch, "batch")])
def test_a_row_that_never_succeeds_fails_with_its_last_attempt(plain: Any, kind: Any) -> None:
    pauses: list[float] = []
    function = udf(kind=kind, data_type=pa.int64(), version="hopeless")(plain).constructed_with(failures=1000)
    policy = SKIP.retry(ConnectionError, attempts=3, backoff=0.5)
    applied = applier(function, policy=policy, sleep=pauses.append).apply(batch(x=[1, 2, 3, 4]))
    assert applied.errors == [RowError(1, "ConnectionError", "try again", attempt=3)]
    assert applied.values["value"].to_pylist() == [1, None, 3, 4]
    assert len(pauses) == {"scalar": 2, "batch": 4}[kind]  # for the batch, and for the row once it was found


def test_other_errors_are_not_tried_again() -> None:
    pauses: list[float] = []
    applied = applier(inverse, policy=SKIP.retry(OSError), sleep=pauses.append).apply(batch(x=[0]))
    assert (pauses, applied.errors[0].attempt, applied.calls) == ([], 1, 1)


def test_results_of_a_wrong_type_fail_their_rows() -> None:
    @udf(data_type=pa.int64())
    def odd(x):  # type: ignore[no-untyped-def]
        return "three" if x == 3 else 1 / x if x in (0, 2) else x

    applied = applier(odd, policy=SKIP).apply(batch(x=[0, 1, 2, 3, 4]))
    assert applied.values["value"].to_pylist() == [None, 1, None, None, 4]
    assert [error.row for error in applied.errors] == [0, 2, 3]
    assert "0.5" in applied.errors[1].message
    with pytest.raises(FunctionFailedError, match="row 2 of a batch") as raised:
        applier(odd).apply(batch(x=[5, 1, 2, 3, 4]))
    assert raised.value.row == 2


def test_batches_of_a_wrong_length_fail_whole() -> None:
    @udf(data_type=pa.int64(), batch_size=4)
    def total(x: pa.Array) -> list[int]:
        return [sum(x.to_pylist())]

    applied = applier(total, policy=SKIP).apply(batch(x=[1, 2, 3, 4, 5]))
    assert failed_rows(applied) == [0, 1, 2, 3]  # the fifth row was a batch of its own
    assert applied.errors[0].message == "The function returned 1 values for 4 rows."
    with pytest.raises(FunctionFailedError, match="returned 1 values for 4 rows"):
        applier(total).apply(batch(x=[1, 2, 3, 4]))


def test_calls_get_no_more_rows_or_bytes_than_they_want() -> None:
    def sizes(x: Any) -> Any:
        return [len(x)] * len(x)

    by_rows = udf(data_type=pa.int64(), kind="batch", batch_size=4)(sizes)
    assert applier(by_rows).apply(batch(x=list(range(10)))).values["value"].to_pylist() == [4] * 8 + [2] * 2
    by_bytes = udf(data_type=pa.int64(), kind="batch", batch_bytes=3000)(sizes)
    assert set(applier(by_bytes).apply(batch(x=[b"." * 1000] * 9)).values["value"].to_pylist()) == {2, 1}
    uneven = [b"." * 2900] * 2 + [b"."] * 6
    assert applier(by_bytes).apply(batch(x=uneven)).values["value"].to_pylist() == [1, 1, 2, 2, 4, 4, 4, 4]
    tiny = udf(data_type=pa.int64(), kind="batch", batch_bytes=1)(sizes)
    assert applier(tiny).apply(batch(x=["text"] * 3)).values["value"].to_pylist() == [1, 1, 1]


def test_an_embedding_comes_through_as_it_is() -> None:
    @udf(data_type=pa.list_(pa.float32(), 128))
    def embed(x: pa.Array) -> Any:
        return np.outer(x.to_numpy(), np.ones(128)).astype("f4")

    applied = applier(embed).apply(batch(x=[1.0, 2.0]))
    assert applied.values.schema.types == [pa.list_(pa.float32(), 128)]
    assert applied.values["value"].to_pylist() == [[1.0] * 128, [2.0] * 128]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@udf
def nasty(x: int) -> int:
    if x == 1:
        sys.exit(3)
    if x == 2:
        raise StopIteration
    if x == 3:
        raise GeneratorExit
    if x == 4:
        raise MemoryError("no room")
    if x == 5:
        raise ValueError("\ud800\x00" + "long" * 5000)
    if x == 6:
        raise UnprintableError
    return x


def test_whatever_a_row_raises_fails_only_the_row() -> None:
    applied = applier(nasty, policy=SKIP).apply(batch(x=[0, 1, 2, 3, 4, 5, 6, 7]))
    assert applied.values["value"].to_pylist() == [0, None, None, None, None, None, None, 7]
    types = ["SystemExit", "StopIteration", "GeneratorExit", "MemoryError", "ValueError"]
    assert [error.type for error in applied.errors[:5]] == types
    assert applied.errors[5].type.endswith("UnprintableError")
    assert applied.errors[4].message.encode().startswith("?\ufffdlong".encode())
    assert len(applied.errors[4].message) == 4000


@pytest.mark.parametrize("kind", ["scalar", "batch"])
def test_an_interrupt_goes_through(kind: Any) -> None:
    @udf(data_type=pa.int64(), kind=kind, error_policy=SKIP)
    def interrupted(x):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        applier(interrupted).apply(batch(x=[1, 2]))


def test_errors_of_pennon_itself_are_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(pieces: Any, schema: pa.Schema) -> None:
        raise AssertionError("a bug of ours")

    monkeypatch.setattr(udf_calls, "concat_batches", broken)
    with pytest.raises(AssertionError, match="a bug of ours"):
        applier(inverses, policy=SKIP).apply(batch(x=[1, 0]))


def sleepy(x: int) -> int:
    if x < 0:
        time.sleep(60)
    return x


@pytest.mark.parametrize("kind", ["scalar", "batch"])
def test_rows_that_take_too_long_fail(kind: Any) -> None:
    def sleepy_batch(x: Any) -> Any:
        return [sleepy(value) for value in x.to_pylist()]

    plain = {"scalar": sleepy, "batch": sleepy_batch}[kind]
    function = udf(data_type=pa.int64(), kind=kind, timeout=1.5)(plain)
    applied = applier(function, policy=SKIP).apply(batch(x=[1, -1, 3, 4]))
    assert applied.values["value"].to_pylist() == [1, None, 3, 4]
    assert applied.errors == [RowError(1, "Timeout", "The call took longer than 1.5 s.")]


def test_a_timeout_can_be_tried_again() -> None:
    pauses: list[float] = []
    function = udf(data_type=pa.int64(), timeout=0.1)(sleepy)
    policy = SKIP.retry(TimeoutError, attempts=2, backoff=0.25)
    applied = applier(function, policy=policy, sleep=pauses.append).apply(batch(x=[-1]))
    assert (applied.errors[0].type, applied.errors[0].attempt, pauses) == ("Timeout", 2, [0.25])
