"""The sandbox: what kills or hangs its process costs only its rows."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.functions import ErrorPolicy, Function, chunker, udf, udtf
from pennon.functions.loader import EnvironmentMismatchError, LoadingFailedError
from pennon.functions.sandbox.calls import SandboxedApplier, SandboxedExpander
from pennon.functions.sandbox.udtf_calls import SandboxedTableFunction
from pennon.functions.udf_calls import FunctionFailedError
from pennon.functions.udtf_calls import PartitionFailedError
from tests.support.waiting import wait_until
from tests.unit.functions.support import batch

SKIP = ErrorPolicy.skip()


@udf
def deadly(x: int) -> int:
    print("functions may print")
    if x == -1:
        os._exit(7)
    if x == -2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if x == -3:
        raise ValueError("merely bad")
    if x == -4:
        time.sleep(600)
    if x == -5:
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    if x == -6:
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    return x


@udf(data_type=pa.int64())
def deadly_batch(x: pa.Array) -> list[int]:
    return [deadly.plain(value) for value in x.to_pylist()]


def sandboxed(function: Function[..., Any], **options: Any) -> SandboxedApplier:
    return SandboxedApplier(function.pack(), function.inputs, pa.schema({"value": pa.int64()}), **options)


@pytest.mark.parametrize("function", [deadly, deadly_batch])
def test_rows_that_kill_their_process_fail_and_the_others_do_not(function: Function[..., Any]) -> None:
    with sandboxed(function, policy=SKIP) as applier:
        applied = applier.apply(batch(x=[0, 1, -1, 3, -2, 5, -3, 7]))
        again = applier.apply(batch(x=[8, 9]))
    assert applied.values["value"].to_pylist() == [0, 1, None, 3, None, 5, None, 7]
    assert [(error.row, error.type, error.message) for error in applied.errors] == [
        (2, "ProcessDied", "The function's process ended with exit code 7."),
        (4, "ProcessDied", "The function's process ended by signal SIGSEGV."),
        (6, "ValueError", "merely bad"),
    ]
    assert again.values["value"].to_pylist() == [8, 9]


def test_rows_that_hang_fail_by_their_timeout() -> None:
    with sandboxed(deadly, policy=SKIP, timeout=1.5, grace=0.3) as applier:
        applied = applier.apply(batch(x=[1, -4, -5, -6]))
    assert applied.values["value"].to_pylist() == [1, None, None, None]
    assert [(error.row, error.type) for error in applied.errors] == [(1, "Timeout"), (2, "Timeout"), (3, "Timeout")]


@given(st.lists(st.sampled_from([1, 2, 3, -1, -3]), max_size=8))
@settings(max_examples=5, deadline=None)
def test_exactly_the_bad_rows_fail(values: list[int]) -> None:
    with sandboxed(deadly_batch, policy=SKIP) as applier:
        applied = applier.apply(batch(x=pa.array(values, pa.int64())))
    assert applied.values["value"].to_pylist() == [value if value > 0 else None for value in values]
    assert [error.row for error in applied.errors] == [row for row, value in enumerate(values) if value < 0]


@pytest.mark.parametrize(("bad", "type_"), [(-1, "ProcessDied"), (-3, "ValueError")])
def test_a_policy_to_fail_names_the_row(bad: int, type_: str) -> None:
    with sandboxed(deadly) as applier, pytest.raises(FunctionFailedError) as raised:
        applier.apply(batch(x=[1, 2, 3, 4, 5, bad, 7]))
    assert (raised.value.row, raised.value.error.type) == (5, type_)


def test_loading_errors_are_those_without_a_sandbox() -> None:
    @udf
    class Broken:
        def setup(self) -> None:
            raise RuntimeError("no model")

        def __call__(self, x: int) -> int:
            return x

    @udf
    class Dying(Broken.plain):  # type: ignore[name-defined,misc]
        def setup(self) -> None:
            os._exit(9)

    @udf
    def lazy(x: int) -> int:
        import not_there  # type: ignore[import-not-found]

        return int(not_there.f(x))

    function: Any
    for function, kind, said in [
        (Broken, LoadingFailedError, "no model"),
        (Dying, LoadingFailedError, "exit code 9"),
        (lazy, EnvironmentMismatchError, "not_there"),
    ]:
        with sandboxed(function, policy=SKIP) as applier, pytest.raises(kind, match=said):
            applier.apply(batch(x=[1]))


@chunker
def deadly_words(text: str) -> Iterator[str]:
    for word in text.split():
        if word == "exit":
            os._exit(7)
        if word == "raise":
            raise ValueError("merely bad")
        yield word


def test_rows_of_a_chunker_that_kill_their_process_have_no_children() -> None:
    texts = ["a b", "exit", "", "c", "d raise", "e f g"]
    outputs = pa.schema({"word": pa.string()})
    with SandboxedExpander(deadly_words.pack(), ["text"], outputs, policy=SKIP) as expander:
        pieces, errors = expander.expand(batch(text=texts))
        empty, _ = expander.expand(batch(text=[""]))
    made = [
        (int(parent), int(child), value.as_py())
        for piece in pieces
        for parent, child, value in zip(piece.parent_rows, piece.child_indexes, piece.values["word"], strict=True)
    ]
    assert made == [(0, 0, "a"), (0, 1, "b"), (3, 0, "c"), (5, 0, "e"), (5, 1, "f"), (5, 2, "g")]
    assert [(error.row, error.type) for error in errors] == [(1, "ProcessDied"), (4, "ValueError")]
    assert sum(piece.values.num_rows for piece in empty) == 0


COUNTS = pa.schema({"n": pa.int64()})


@udtf(output_schema=COUNTS, timeout=1.5, error_policy=SKIP.retry(ConnectionError, attempts=3))
def deadly_counts(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, list[int]]]:
    for rows in batches:
        for value in rows.column("x").to_pylist():
            if value == -7:
                raise ConnectionError("busy")
            deadly.plain(value)
        yield {"n": [rows.num_rows]}


def counted(function: SandboxedTableFunction, *partition: list[int]) -> list[int]:
    batches = (batch(x=values) for values in partition)
    return [row["n"] for made in function.run(XS, batches) for row in made.to_pylist()]


XS = pa.schema({"x": pa.int64()})


@pytest.mark.parametrize(
    ("bad", "type_", "attempts"),
    [(-1, "ProcessDied", None), (-3, "ValueError", None), (-5, "Timeout", None), (-7, "ConnectionError", 3)],
)
def test_a_partition_that_kills_its_process_fails_alone(bad: int, type_: str, attempts: int | None) -> None:
    with SandboxedTableFunction(deadly_counts.pack(), XS, COUNTS, grace=0.3) as function:
        assert counted(function, [1, 2], [3]) == [2, 1]
        with pytest.raises(PartitionFailedError) as raised:
            counted(function, [1], [bad])
        assert counted(function) == []
        assert counted(function, [4]) == [1]
    assert raised.value.type == type_
    assert (raised.value.rule.attempts if raised.value.rule else None) == attempts


def test_an_error_of_reading_is_not_the_functions() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(x=[1])
        raise OSError("gone")

    with SandboxedTableFunction(deadly_counts.pack(), XS, COUNTS) as function:
        with pytest.raises(OSError, match="gone"):
            list(function.run(XS, broken()))
        assert counted(function, [1]) == [1]


PARENT_INDEX = """
import os, sys, time
import pyarrow as pa
from pennon.functions import udf
from pennon.functions.sandbox.calls import SandboxedApplier

@udf
def note_and_sleep(path: str) -> int:
    import os, time
    open(path + ".new", "w").write(str(os.getpid()))
    os.rename(path + ".new", path)
    time.sleep(600)
    return 0

applier = SandboxedApplier(note_and_sleep.pack(), ["path"], pa.schema({"v": pa.int64()}))
applier.apply(pa.RecordBatch.from_pydict({"path": [sys.argv[1]]}))
"""


def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", PARENT_INDEX, str(noted)])
    try:
        wait_until(noted.exists)
        child = int(noted.read_text())
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not _runs(child))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
