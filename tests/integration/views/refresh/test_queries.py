"""Views of queries that work row by row: they follow what happens to their source."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

import pennon
from tests.integration.backfill.calls import CallLog, note
from tests.integration.views.refresh.lab import Lab


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop)), "name": [f"n{i}" for i in range(start, stop)]})


def expected(lab: Lab, source: str, version: int) -> list[dict[str, Any]]:
    rows = lab.rows(source, "id", "name", version=version)
    return sorted(({"double": row["id"] * 2, "name": row["name"]} for row in rows if row["id"] % 3), key=repr)


def make(lab: Lab, name: str, count: int = 60) -> str:
    lab.create(name, numbers(0, count))
    lab.view(f"{name}_view", {"source": name, "columns": {"double": "id * 2", "name": "name"}, "where": "id % 3 != 0"})
    return f"{name}_view"


def test_first_refresh_computes_the_view_and_a_second_one_does_nothing(lab: Lab) -> None:
    view = make(lab, "first")
    done = lab.refresh(view).result
    assert (done["mode"], done["rows_added"]) == ("rebuild", 40)
    assert lab.rows(view) == expected(lab, "first", done["source_version"])
    version = lab.version(view)
    again = lab.refresh(view).result
    assert again["mode"] == "no_op"
    assert lab.version(view) == version == again["version"]


def test_every_kind_of_change_is_followed(lab: Lab) -> None:
    view = make(lab, "followed")
    lab.refresh(view)
    lab.append("followed", numbers(60, 70))
    lab.change("followed", lambda dataset: dataset.update({"name": "'new'"}, where="id in (1, 2, 3)"))
    lab.change("followed", lambda dataset: dataset.delete("id in (4, 5, 6)"))
    done = lab.refresh(view).result
    assert done["mode"] == "incremental"
    assert (done["rows_added"], done["rows_updated"], done["rows_removed"]) == (6, 2, 2)
    assert lab.rows(view) == expected(lab, "followed", done["source_version"])
    assert lab.version(view) == 3


def test_what_geneva_asks_for_is_filled_and_follows_changes(lab: Lab) -> None:
    base = {"filter": "id % 2 = 0", "columns": {"id": "id", "loud": "upper(name)"}, "limit": None, "vector": None}
    query = {"base": base, "shuffle": False, "fragment_ids": None, "column_udfs": None, "source_table": "evens"}
    kinds = {"__source_row_id": pa.int64(), "__is_set": pa.bool_(), "id": pa.int64(), "loud": pa.string()}
    lab.create("evens", numbers(0, 6))
    lab.view("evens_view", {**query, "source_db_uri": "db://x"}, schema=pa.schema(kinds))
    lab.refresh("evens_view")
    lab.append("evens", numbers(6, 9))
    assert lab.refresh("evens_view").result["mode"] == "incremental"
    wanted = [{"__is_set": True, "id": i, "loud": f"N{i}"} for i in (0, 2, 4, 6, 8)]
    assert lab.rows("evens_view", "__is_set", "id", "loud") == wanted


def test_functions_are_called_for_changed_rows_alone(lab: Lab, log: CallLog) -> None:
    path = log.path

    @pennon.udf
    def shout(id: int, name: str) -> str:  # noqa: A002
        note(path, id)
        return name.upper()

    lab.create("called", numbers(0, 30))
    packed = base64.b64encode(shout.pack()).decode()
    lab.view(
        "called_view",
        {
            "source": "called",
            "columns": ["id"],
            "functions": [{"udf": packed, "inputs": ["id", "name"], "outputs": {"loud": ""}}],
        },
    )
    lab.refresh("called_view")
    assert log.new() == list(range(30))
    lab.append("called", numbers(30, 33))
    lab.change("called", lambda dataset: dataset.update({"name": "'x'"}, where="id = 7"))
    done = lab.refresh("called_view").result
    assert log.new() == [7, 30, 31, 32]
    assert (done["rows_added"], done["rows_updated"]) == (3, 1)
    assert {"id": 7, "loud": "X"} in lab.rows("called_view")
