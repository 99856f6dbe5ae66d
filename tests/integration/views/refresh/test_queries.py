"""Views of queries that work row by row: they follow what happens to their source."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

import pennon
from tests.integration.backfill.calls import CallLog, note
from tests.integration.views.refresh.refresh_harness import RefreshHarness


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop)), "name": [f"n{i}" for i in range(start, stop)]})


def expected(harness: RefreshHarness, source: str, version: int) -> list[dict[str, Any]]:
    rows = harness.rows(source, "id", "name", version=version)
    return sorted(({"double": row["id"] * 2, "name": row["name"]} for row in rows if row["id"] % 3), key=repr)


def make(harness: RefreshHarness, name: str, count: int = 60) -> str:
    harness.create(name, numbers(0, count))
    harness.view(
        f"{name}_view", {"source": name, "columns": {"double": "id * 2", "name": "name"}, "where": "id % 3 != 0"}
    )
    return f"{name}_view"


def test_first_refresh_computes_the_view_and_a_second_one_does_nothing(harness: RefreshHarness) -> None:
    view = make(harness, "first")
    done = harness.refresh(view).result
    assert (done["mode"], done["rows_added"]) == ("rebuild", 40)
    assert harness.rows(view) == expected(harness, "first", done["source_version"])
    version = harness.version(view)
    again = harness.refresh(view).result
    assert again["mode"] == "no_op"
    assert harness.version(view) == version == again["version"]


def test_every_kind_of_change_is_followed(harness: RefreshHarness) -> None:
    view = make(harness, "followed")
    harness.refresh(view)
    harness.append("followed", numbers(60, 70))
    harness.change("followed", lambda dataset: dataset.update({"name": "'new'"}, where="id in (1, 2, 3)"))
    harness.change("followed", lambda dataset: dataset.delete("id in (4, 5, 6)"))
    done = harness.refresh(view).result
    assert done["mode"] == "incremental"
    assert (done["rows_added"], done["rows_updated"], done["rows_removed"]) == (6, 2, 2)
    assert harness.rows(view) == expected(harness, "followed", done["source_version"])
    assert harness.version(view) == 3


def test_what_geneva_asks_for_is_filled_and_follows_changes(harness: RefreshHarness) -> None:
    base = {"filter": "id % 2 = 0", "columns": {"id": "id", "loud": "upper(name)"}, "limit": None, "vector": None}
    query = {"base": base, "shuffle": False, "fragment_ids": None, "column_udfs": None, "source_table": "evens"}
    kinds = {"__source_row_id": pa.int64(), "__is_set": pa.bool_(), "id": pa.int64(), "loud": pa.string()}
    harness.create("evens", numbers(0, 6))
    harness.view("evens_view", {**query, "source_db_uri": "db://x"}, schema=pa.schema(kinds))
    harness.refresh("evens_view")
    harness.append("evens", numbers(6, 9))
    assert harness.refresh("evens_view").result["mode"] == "incremental"
    wanted = [{"__is_set": True, "id": i, "loud": f"N{i}"} for i in (0, 2, 4, 6, 8)]
    assert harness.rows("evens_view", "__is_set", "id", "loud") == wanted


def test_functions_are_called_only_for_changed_rows(harness: RefreshHarness, log: CallLog) -> None:
    path = log.path

    @pennon.udf
    def shout(id: int, name: str) -> str:  # noqa: A002
        note(path, id)
        return name.upper()

    harness.create("called", numbers(0, 30))
    packed = base64.b64encode(shout.pack()).decode()
    harness.view(
        "called_view",
        {
            "source": "called",
            "columns": ["id"],
            "functions": [{"udf": packed, "inputs": ["id", "name"], "outputs": {"loud": ""}}],
        },
    )
    harness.refresh("called_view")
    assert log.new() == list(range(30))
    harness.append("called", numbers(30, 33))
    harness.change("called", lambda dataset: dataset.update({"name": "'x'"}, where="id = 7"))
    done = harness.refresh("called_view").result
    assert log.new() == [7, 30, 31, 32]
    assert (done["rows_added"], done["rows_updated"]) == (3, 1)
    assert {"id": 7, "loud": "X"} in harness.rows("called_view")
