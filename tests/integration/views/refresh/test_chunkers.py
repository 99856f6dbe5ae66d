"""Chunkers: views with several rows for each row of their source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

import pennon
from tests.integration.backfill.calls import CallLog, note
from tests.integration.views.refresh.refresh_harness import RefreshHarness


class Chunk(NamedTuple):
    text: str
    start: int


def texts(start: int, stop: int) -> pa.Table:
    """Rows whose text has as many words as the id says, modulo 4: every fourth has none."""
    return pa.table(
        {
            "id": pa.array(range(start, stop)),
            "text": [" ".join(f"w{i}" for _ in range(i % 4)) for i in range(start, stop)],
            "title": [f"t{i}" for i in range(start, stop)],
        }
    )


def expected(harness: RefreshHarness, source: str, version: int) -> list[tuple[str, int, str]]:
    return sorted(
        (row["title"], number, word)
        for row in harness.rows(source, version=version)
        for number, word in enumerate(row["text"].split())
    )


def shown(harness: RefreshHarness, view: str) -> list[tuple[str, int, str]]:
    rows = harness.rows(view, "title", "__child_index", "text")
    return sorted((row["title"], row["__child_index"], row["text"]) for row in rows)


def test_chunks_follow_their_parents(harness: RefreshHarness, log: CallLog) -> None:
    path = log.path

    @pennon.chunker
    def words(id: int, text: str) -> Iterator[Chunk]:  # noqa: A002
        note(path, id)
        for at, word in enumerate(text.split()):
            yield Chunk(word, at)

    harness.create("parents", texts(0, 20))
    harness.view("chunks", {"source": "parents", "columns": ["title"]}, words)
    first = harness.refresh("chunks").result
    assert (first["mode"], first["rows_written"]) == ("rebuild", 30)
    assert log.new() == list(range(20))
    assert shown(harness, "chunks") == expected(harness, "parents", first["source_version"])

    harness.append("parents", texts(20, 24))
    harness.change("parents", lambda dataset: dataset.update({"text": "'just these three'"}, where="id in (0, 3)"))
    harness.change("parents", lambda dataset: dataset.update({"text": "''"}, where="id = 7"))
    harness.change("parents", lambda dataset: dataset.delete("id in (1, 2)"))
    done = harness.refresh("chunks").result
    assert log.new() == [0, 3, 7, 20, 21, 22, 23]
    assert shown(harness, "chunks") == expected(harness, "parents", done["source_version"])
    assert (done["rows_added"], done["rows_updated"], done["rows_removed"]) == (9, 3, 6)

    assert harness.refresh("chunks").result["mode"] == "no_op"
    assert log.new() == []  # also not for those without children


def test_lists_classes_and_batches_make_the_same_chunks(harness: RefreshHarness) -> None:
    @pennon.chunker(output_schema=pa.schema({"text": pa.string(), "start": pa.int64()}))
    def listed(text: str) -> list[dict[str, object]]:
        return [{"text": word, "start": at} for at, word in enumerate(text.split())]

    @pennon.chunker
    class Splitter:
        def setup(self) -> None:
            self.separator = " "

        def __call__(self, text: str) -> list[Chunk]:
            return [Chunk(word, at) for at, word in enumerate(text.split(self.separator)) if word]

    @pennon.chunker(output_schema=pa.schema({"text": pa.string(), "start": pa.int64()}))
    def nested(text: pa.Array) -> list[list[tuple[str, int]]]:
        return [[(word, at) for at, word in enumerate(value.split())] for value in text.to_pylist()]

    @pennon.chunker(output_schema=pa.schema({"text": pa.string(), "start": pa.int64()}))
    def flat(text: pa.Array) -> pa.Table:
        rows = [
            (parent, word, at) for parent, value in enumerate(text.to_pylist()) for at, word in enumerate(value.split())
        ]
        return pa.table(
            {
                "parent_index": pa.array([row[0] for row in rows], pa.int64()),
                "text": pa.array([row[1] for row in rows], pa.string()),
                "start": pa.array([row[2] for row in rows], pa.int64()),
            }
        )

    harness.create("same", texts(0, 40))
    for name, function in {"listed": listed, "split": Splitter, "nested": nested, "flat": flat}.items():
        harness.view(f"same_{name}", {"source": "same", "columns": ["title"]}, function)
        sizes = {"source_task_size": 7, "max_rows_per_fragment": 10, "intra_applier_concurrency": 3}
        done = harness.refresh(f"same_{name}", **sizes).result
        assert shown(harness, f"same_{name}") == expected(harness, "same", done["source_version"])
        assert all(fragment.physical_rows <= 10 for fragment in harness.dataset(f"same_{name}").get_fragments())


def test_limit_cuts_the_rows_and_is_forgotten_without_it(harness: RefreshHarness) -> None:
    @pennon.chunker
    def letters(text: str) -> Iterator[str]:
        yield from text

    harness.create("limited", texts(0, 20))
    harness.view("letters_view", {"source": "limited", "columns": ["id"]}, letters)
    everything = harness.refresh("letters_view").result["rows_written"]
    cut = harness.refresh("letters_view", output_limit=17).result
    assert (cut["mode"], cut["rows_written"]) == ("rebuild", 17)
    assert harness.dataset("letters_view").count_rows() == 17
    assert harness.refresh("letters_view", output_limit=17).result["mode"] == "no_op"
    whole = harness.refresh("letters_view").result
    assert (whole["mode"], whole["rows_written"]) == ("rebuild", everything)
    assert harness.data_files("letters_view") == harness.named_files("letters_view")


def test_failure_leaves_the_content_and_marks_the_view(harness: RefreshHarness) -> None:
    @pennon.chunker
    def picky(text: str) -> Iterator[str]:
        for word in text.split():
            if word == "bad":
                raise ValueError("a bad word")
            yield word

    harness.create("risky", texts(0, 10))
    harness.view("picky_view", {"source": "risky", "columns": ["title"]}, picky)
    good = harness.refresh("picky_view").result
    before = harness.rows("picky_view")
    harness.change("risky", lambda dataset: dataset.update({"text": "'one bad'"}, where="id = 5"))
    failed = harness.refresh("picky_view")
    assert failed.failure["type"] == "ValueError"
    assert "row with id 5" in failed.failure["message"]
    assert harness.rows("picky_view") == before
    assert harness.version("picky_view") == good["version"]
    view = harness.catalogued("picky_view")
    assert (view.failed_job, "a bad word" in (view.stale_reason or "")) == (failed.job.id, True)
    assert harness.data_files("picky_view") == harness.named_files("picky_view")

    harness.change("risky", lambda dataset: dataset.update({"text": "'one good'"}, where="id = 5"))
    done = harness.refresh("picky_view").result
    assert done["mode"] == "incremental"
    assert harness.catalogued("picky_view").stale_reason is None


def test_skipped_parents_have_no_children_and_are_counted(harness: RefreshHarness) -> None:
    @pennon.chunker(error_policy=pennon.ErrorPolicy.skip())
    def picky(text: str) -> Iterator[str]:
        if "w5" in text:
            raise ValueError("not this one")
        yield from text.split()

    harness.create("skipping", texts(0, 8))
    harness.view("skipping_view", {"source": "skipping", "columns": ["id"]}, picky)
    done = harness.refresh("skipping_view").result
    assert done["rows_failed"] == 1
    assert 5 not in {row["id"] for row in harness.rows("skipping_view")}
    assert {1, 2, 3, 6, 7} == {row["id"] for row in harness.rows("skipping_view")}
