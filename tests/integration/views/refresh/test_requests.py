"""What a refresh is asked for beside the view: how many calls at once, how large the pieces are, which packages."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pennon
from tests.integration.backfill.calls import CallLog, note
from tests.integration.views.refresh.refresh_harness import RefreshHarness
from tests.support.wheels import make_wheel

if TYPE_CHECKING:
    from pathlib import Path


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


@pytest.mark.parametrize("kind", ["column", "chunker"])
def test_calls_overlap_within_a_task(harness: RefreshHarness, log: CallLog, kind: str) -> None:
    def meet(id: int) -> int:  # noqa: A002
        note(log.path, id)
        until = time.monotonic() + 60
        while 0 < sum(log.counts().values()) < 4:  # none is counted while the function is only tried
            assert time.monotonic() < until, "the calls come one after the other"
            time.sleep(0.01)
        return id

    @pennon.chunker
    def met(id: int) -> Iterator[int]:  # noqa: A002
        yield meet(id)

    source, view = f"meeting_{kind}", f"meeting_{kind}_view"
    harness.create(source, numbers(0, 40))
    query: dict[str, Any] = {"source": source, "columns": []}
    if kind == "chunker":
        harness.view(view, query, met)
    else:
        packed = base64.b64encode(pennon.udf(meet).pack()).decode()
        harness.view(view, query | {"functions": [{"udf": packed, "inputs": ["id"], "outputs": {"met": ""}}]})
    harness.refresh(view, concurrency=1, intra_applier_concurrency=4)
    assert sorted(row["met"] for row in harness.rows(view, "met")) == list(range(40))


def test_pieces_are_as_large_as_asked_for(harness: RefreshHarness) -> None:
    @pennon.udtf(output_schema=pa.schema({"id": pa.int64()}))
    def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    harness.create("pieces", numbers(0, 45))
    harness.view("pieces_query", {"source": "pieces"})
    harness.view("pieces_udtf", {"source": "pieces"}, copied)
    harness.view("pieces_spark", "SELECT max(id) AS id FROM pieces GROUP BY id")
    for name in ("pieces_query", "pieces_udtf", "pieces_spark"):
        harness.refresh(name, concurrency=1, max_rows_per_fragment=10)
        sizes = [fragment.physical_rows for fragment in harness.dataset(name).get_fragments()]
        assert (sum(sizes), max(sizes)) == (45, 10)


def test_packages_of_a_refresh_come_in_place_of_those_of_the_function(harness: RefreshHarness, tmp_path: Path) -> None:
    def manifest(version: str) -> str:
        wheel = make_wheel(tmp_path, "pennon_test_cup", version)
        content = base64.b64encode(wheel.read_bytes()).decode()
        return json.dumps({"py_modules": [{"name": wheel.name, "content": content}]})

    @pennon.chunker
    def cup(id: int) -> Iterator[str]:  # noqa: A002
        import importlib

        yield f"{id} in {importlib.import_module('pennon_test_cup').VERSION}"

    harness.create("poured", numbers(0, 2))
    harness.view("poured_view", {"source": "poured", "columns": []}, cup, manifest=manifest("1.0"))
    harness.refresh("poured_view")
    assert [row["cup"] for row in harness.rows("poured_view", "cup")] == ["0 in 1.0", "1 in 1.0"]
    harness.append("poured", numbers(2, 3))
    harness.refresh("poured_view", manifest=manifest("2.0"))
    assert [row["cup"] for row in harness.rows("poured_view", "cup")] == ["0 in 1.0", "1 in 1.0", "2 in 2.0"]
