"""Declaring chunkers and table functions, and what they make of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import pennon
from pennon.functions.chunker_calls import Expander
from pennon.functions.decorators.chunker import PARENT_INDEX
from pennon.functions.envelope import read_envelope
from pennon.functions.error_policy import ErrorPolicy, effective_policy
from pennon.functions.failures import FunctionFailedError
from pennon.functions.loader import load
from pennon.functions.udtf_calls import PartitionFailedError, TableFunction


class Word(NamedTuple):
    text: str
    length: int


@dataclass
class Point:
    x: float
    y: float | None


WORDS = pa.schema([pa.field("text", pa.string()), pa.field("length", pa.int64())])
TEXTS = pa.RecordBatch.from_pydict({"text": ["one two", "", "three", None]})


def expander(function: Any, outputs: pa.Schema, inputs: tuple[str, ...] = ("text",)) -> Expander:
    return Expander(load(read_envelope(function.pack())), inputs, outputs)


def expanded(function: Any, outputs: pa.Schema = WORDS, batch: pa.RecordBatch = TEXTS) -> list[tuple[Any, ...]]:
    pieces, _ = expander(function, outputs).expand(batch)
    return [
        (int(parent), int(child), *row.values())
        for piece in pieces
        for parent, child, row in zip(piece.parent_rows, piece.child_indexes, piece.values.to_pylist(), strict=True)
    ]


FOUND = [(0, 0, "one", 3), (0, 1, "two", 3), (2, 0, "three", 5)]


@pennon.chunker
def generating(text: str | None) -> Iterator[Word]:
    for word in (text or "").split():
        yield Word(word, len(word))


@pennon.chunker(output_schema=WORDS)
def listing(text: str | None) -> list[dict[str, Any]] | None:
    return [{"text": word, "length": len(word)} for word in text.split()] if text else None


@pennon.chunker(output_schema=WORDS)
class Stateful:
    def setup(self) -> None:
        self.length = len

    def __call__(self, text: str | None) -> Iterator[tuple[str, int]]:
        for word in (text or "").split():
            yield word, self.length(word)


@pennon.chunker(output_schema=WORDS)
def batched(text: pa.Array) -> list[list[Word]]:
    return [[Word(word, len(word)) for word in (value or "").split()] for value in text.to_pylist()]


@pennon.chunker(output_schema=WORDS, batched=True)
def tabular(text):  # type: ignore[no-untyped-def]
    rows = [(at, word) for at, value in enumerate(text.to_pylist()) for word in (value or "").split()]
    columns = {PARENT_INDEX: [at for at, _ in rows], "text": [word for _, word in rows]}
    return pa.table({**columns, "length": [len(word) for _, word in rows]})


@pytest.mark.parametrize("function", [generating, listing, Stateful, batched, tabular], ids=lambda f: f.name)
def test_all_forms_make_the_same_rows(function: Any) -> None:
    assert expanded(function) == FOUND
    assert read_envelope(function.pack()).kind == function.kind


def test_rows_of_a_table_go_to_their_parents_whatever_their_order() -> None:
    @pennon.chunker(output_schema=WORDS)
    def backwards(text: pa.Array) -> pa.Table:
        return pa.table({PARENT_INDEX: [2, 0, 2], "text": ["c", "a", "d"], "length": [1, 2, 3]})

    assert expanded(backwards) == [(0, 0, "a", 2), (2, 0, "c", 1), (2, 1, "d", 3)]


def test_plain_values_make_one_column_called_like_the_function() -> None:
    @pennon.chunker
    def word(text: str) -> Iterator[str]:
        yield from (text or "").split()

    assert [(output.struct_field, output.data_type) for output in word.outputs] == [("word", pa.string())]
    assert expanded(word, pa.schema({"word": pa.string()})) == [(0, 0, "one"), (0, 1, "two"), (2, 0, "three")]


def test_outputs_follow_from_hints() -> None:
    @pennon.chunker
    def points(text: str) -> list[Point]:
        return []

    @pennon.chunker
    def nested(text: pa.Array) -> list[list[Word]]:
        return []

    assert [output.struct_field for output in points.outputs] == ["x", "y"]
    assert [output.struct_field for output in nested.outputs] == ["text", "length"]
    assert (points.kind, nested.kind) == ("chunker", "batched_chunker")


def test_failing_row_fails_or_has_no_children() -> None:
    def picky(text: str | None) -> Iterator[Word]:
        for word in (text or "").split():
            if word == "two":
                raise ValueError("not two")
            yield Word(word, len(word))

    with pytest.raises(FunctionFailedError, match="row 0 of a batch: ValueError: not two"):
        expanded(pennon.chunker(picky))
    skipping = pennon.chunker(error_policy=ErrorPolicy.skip())(picky)
    pieces, errors = expander(skipping, WORDS).expand(TEXTS)
    assert [row["text"] for piece in pieces for row in piece.values.to_pylist()] == ["three"]
    assert [(error.row, error.type) for error in errors] == [(0, "ValueError")]


def test_wrong_values_fail_only_their_row() -> None:
    @pennon.chunker(output_schema=WORDS, error_policy=ErrorPolicy.skip())
    def odd(text: str | None) -> list[tuple[str, Any]]:
        return [(word, "long" if word == "three" else 1) for word in (text or "").split()]

    pieces, errors = expander(odd, WORDS).expand(TEXTS)
    assert [row["text"] for piece in pieces for row in piece.values.to_pylist()] == ["one", "two"]
    assert [error.row for error in errors] == [2]


def test_batched_failures_are_found_by_dividing() -> None:
    @pennon.chunker(output_schema=WORDS, error_policy=ErrorPolicy.skip())
    def fragile(text: pa.Array) -> list[list[Word]]:
        if "three" in text.to_pylist():
            raise ValueError("three is too much")
        return [[Word(word, 1) for word in (value or "").split()] for value in text.to_pylist()]

    pieces, errors = expander(fragile, WORDS).expand(TEXTS)
    assert [row["text"] for piece in pieces for row in piece.values.to_pylist()] == ["one", "two"]
    assert [error.row for error in errors] == [2]


def test_batched_chunker_must_answer_for_every_row() -> None:
    @pennon.chunker(output_schema=WORDS, error_policy=ErrorPolicy.skip())
    def short(text: pa.Array) -> list[list[Word]]:
        return [[]]

    _, errors = expander(short, WORDS).expand(TEXTS)
    assert "1 lists for 4 rows" in errors[0].message
    assert len(errors) == 4


@pytest.mark.parametrize(
    ("plain", "options", "message"),
    [
        (lambda text: [], {}, "output columns are unknown"),
        (lambda text: [], {"output_schema": "text string"}, "output_schema must be an Arrow schema"),
        (lambda text: [], {"output_schema": pa.schema([])}, "at least one column"),
        (lambda *texts: [], {"output_schema": WORDS}, "do not name the columns"),
    ],
)
def test_chunkers_that_cannot_be_declared_say_why(plain: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pennon.chunker(**options)(plain)


def test_table_functions_keep_what_they_were_declared_with() -> None:
    @pennon.udtf(output_schema=WORDS, partition_by="k", num_gpus=0.5, version="7", error_policy=ErrorPolicy.skip())
    def streaming(batches: Iterator[pa.RecordBatch]) -> None: ...

    class Whole:
        def __call__(self, table: pa.Table) -> None: ...

    envelope = read_envelope(streaming.pack())
    assert (envelope.kind, envelope.version, envelope.options.partition_by) == ("udtf", "7", "k")
    assert (envelope.options.num_gpus, envelope.options.whole) == (0.5, False)
    whole = pennon.udtf(output_schema=WORDS, partition_by_indexed_column="v")(Whole)
    assert read_envelope(whole.pack()).options.whole
    with pytest.raises(TypeError, match="one argument"):
        pennon.udtf(output_schema=WORDS)(lambda a, b: None)
    with pytest.raises(TypeError, match="output_schema"):
        pennon.udtf(lambda batches: None)
    with pytest.raises(ValueError, match="not both"):
        pennon.udtf(output_schema=WORDS, partition_by="a", partition_by_indexed_column="b")(lambda batches: None)


def rows_of(function: Any) -> list[dict[str, Any]]:
    made = TableFunction(load(read_envelope(function.pack())), WORDS).run(TEXTS.schema, iter([TEXTS]))
    return [row for batch in made for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "made",
    [
        {"text": ["a"], "length": [1]},
        [{"text": "a", "length": 1}],
        pa.table({"length": pa.array([1], pa.int8()), "text": ["a"]}),
        pa.RecordBatch.from_pydict({"text": ["a"], "length": [1]}),
    ],
    ids=["columns", "rows", "table", "batch"],
)
def test_table_functions_return_rows_in_any_form(made: Any) -> None:
    assert rows_of(pennon.udtf(output_schema=WORDS)(lambda batches: made)) == [{"text": "a", "length": 1}]
    assert rows_of(pennon.udtf(output_schema=WORDS)(lambda batches: iter([made, made]))) == [
        {"text": "a", "length": 1},
        {"text": "a", "length": 1},
    ]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"text": ["a"]}, "ValueError: .* without 'length'"),
        ({"text": ["a"], "length": [1], "more": [2]}, "ValueError: .* with 'more'"),
        (7, "TypeError: .* returned a int"),
    ],
)
def test_table_functions_that_return_something_else_fail(made: Any, message: str) -> None:
    with pytest.raises(PartitionFailedError, match=message):
        rows_of(pennon.udtf(output_schema=WORDS)(lambda batches: made))


def test_error_handling_has_a_short_form() -> None:
    stated = ErrorPolicy.skip(max_errors=3)
    assert effective_policy(None, stated) is stated
    assert effective_policy({"on_error": "skip"}, ErrorPolicy()).on_error == "skip"
    retrying = effective_policy({"on_error": "retry", "attempts": 4}, ErrorPolicy())
    assert (retrying.on_error, retrying.retries[0].attempts) == ("fail", 4)
    with pytest.raises(ValueError, match="unknown keys"):
        effective_policy({"mode": "skip"}, ErrorPolicy())
