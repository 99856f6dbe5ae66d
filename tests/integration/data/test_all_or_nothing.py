"""Requests that are several changes, or that meet another change half-way: they happen whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.data.conftest import Stored, WriteBeside
from tests.integration.data.tables import DataTable, error, rows

OTHER = pa.table({"other": ["x", "y"]})


def state(table: DataTable) -> tuple[Any, ...]:
    return table.versions(), table.schema(), table.do("describe").get("properties"), table.query().to_pydict()


@pytest.fixture
def gappy(new: DataTable) -> DataTable:
    """A table with a null and a struct."""
    return new.create(pa.table({"id": pa.array([1, None]), "name": ["a", "b"], "s": [{"x": 1, "y": 2}] * 2}))


def upload(table: DataTable, **parts: tuple[pa.Table, str]) -> str:
    upload_id: str = table.do("multipart_write/create")["upload_id"]
    for part, (data, mode) in parts.items():
        table.put("insert", data, upload_id=upload_id, upload_part_id=part, mode=mode)
    return upload_id


def test_an_upload_to_a_table_that_was_overwritten_since_is_refused(table: DataTable) -> None:
    upload_id = upload(table, one=(rows(3), "append"))
    table.put("insert", OTHER, mode="overwrite")
    assert error(table.ask("multipart_write/complete", {"upload_id": upload_id})) == (409, 14)
    assert table.query().equals(OTHER)


def test_an_upload_is_not_affected_by_appends(table: DataTable) -> None:
    upload_id = upload(table, one=(rows(100, 103), "append"))
    table.put("insert", rows(200, 201))
    upload_id_of_other = upload(table, one=(rows(300, 301), "append"))
    for finished in (upload_id, upload_id_of_other):
        table.do("multipart_write/complete", {"upload_id": finished})
    assert sorted(table.ids())[100:] == [100, 101, 102, 200, 300]


def test_parts_that_replace_all_rows_must_agree_on_the_schema(table: DataTable) -> None:
    before = state(table)
    upload_id = upload(table, one=(rows(3), "overwrite"), two=(OTHER, "overwrite"))
    assert error(table.ask("multipart_write/complete", {"upload_id": upload_id})) == (400, 20)
    assert state(table) == before


def test_an_upload_to_a_branch_that_does_not_exist_does_not_begin(table: DataTable) -> None:
    assert error(table.ask("multipart_write/create", {"branch": "nope"})) == (404, 22)


@pytest.mark.parametrize("managed", [True, False])
def test_an_upload_that_is_completed_and_aborted_at_once_is_one_of_both(
    new: DataTable, write_beside: WriteBeside, stored: Stored, managed: bool
) -> None:
    if not managed:
        write_beside(new, rows(100))
    else:
        new.create(rows(100))
    for start in range(100, 150, 10):
        before, files = new.count(), stored(new)
        upload_id = upload(new, one=(rows(start, start + 3), "append"), two=(rows(start + 3, start + 4), "append"))
        late = {"upload_id": upload_id, "upload_part_id": "three"}
        with ThreadPoolExecutor(5) as threads:
            completed = [threads.submit(new.ask, "multipart_write/complete", {"upload_id": upload_id}) for _ in "ab"]
            given_up = threads.submit(new.ask, "multipart_write/abort", {"upload_id": upload_id})
            added = threads.submit(new.send, "insert", rows(start + 4, start + 5), **late)
        answers = [answer.result() for answer in (*completed, given_up, added)]
        assert {answer.status_code for answer in answers} <= {200, 404, 409}, [answer.text for answer in answers]
        done = [answer.json()["num_inserted_rows"] for answer in answers[:2] if answer.status_code == 200]
        assert done in ([], [4], [5])
        assert sorted(new.ids())[before:] == list(range(start, start + sum(done)))
        assert done or stored(new) == files


REFUSED: dict[str, tuple[Callable[[DataTable], Any], tuple[int, int]]] = {
    "a type, and no more nulls where there are some": (
        lambda t: t.ask(
            "alter_columns", {"alterations": [{"path": "id", "data_type": {"type": "int32"}, "nullable": False}]}
        ),
        (400, 20),
    ),
    "a column twice": (
        lambda t: t.ask(
            "alter_columns", {"alterations": [{"path": "id", "rename": "a"}, {"path": "id", "rename": "b"}]}
        ),
        (400, 13),
    ),
    "two columns to one name": (
        lambda t: t.ask(
            "alter_columns", {"alterations": [{"path": "id", "rename": "a"}, {"path": "name", "rename": "a"}]}
        ),
        (400, 13),
    ),
    "a field to the name of its neighbour": (
        lambda t: t.ask("alter_columns", {"alterations": [{"path": "s.x", "rename": "y"}]}),
        (400, 20),
    ),
    "properties with an update of nothing known": (
        lambda t: t.ask("update", {"updates": [["nope", "1"]], "properties": {"a": "b"}}),
        (404, 12),
    ),
    "one column to two values": (
        lambda t: t.ask("update", {"updates": [["id", "1"], ["id", "2"]]}),
        (400, 13),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_change_that_cannot_be_made_whole_changes_nothing(gappy: DataTable, what: str) -> None:
    before = state(gappy)
    attempt, outcome = REFUSED[what]
    assert error(attempt(gappy)) == outcome
    assert state(gappy) == before


def test_a_type_a_name_and_nullability_change_together(gappy: DataTable) -> None:
    wide = {"path": "id", "data_type": {"type": "int32"}, "rename": "number"}
    assert gappy.do("alter_columns", {"alterations": [wide, {"path": "s.x", "rename": "z"}]})["version"] == 2
    strict = {"path": "name", "data_type": {"type": "large_string"}, "rename": "title", "nullable": False}
    gappy.do("alter_columns", {"alterations": [strict]})
    fields = gappy.schema()
    assert list(fields) == ["number", "title", "s"]
    assert fields["title"]["nullable"] is False
    assert gappy.query().to_pydict() == {"number": [1, None], "title": ["a", "b"], "s": [{"z": 1, "y": 2}] * 2}


def test_a_column_of_any_name_may_lose_its_nulls_and_its_type(new: DataTable) -> None:
    table = new.create(pa.table({"My column": [1, 2], "S": [{"Of it": 1}, {"Of it": 2}]}))
    changes = [{"path": path, "data_type": {"type": "int32"}, "nullable": False} for path in ("My column", "S.Of it")]
    table.do("alter_columns", {"alterations": changes})
    fields = table.schema()
    assert (fields["My column"]["nullable"], fields["S"]["type"]["fields"][0]["nullable"]) == (False, False)


def test_fields_inside_of_others_are_changed_by_their_paths(new: DataTable) -> None:
    table = new.create(pa.table({"s": [{"d.e": 1, "b`t": 2, "x": 3}], "l": [[{"x": 4, "y": 5}]]}))
    renamed = [("s.`d.e`", "f"), ("s.`b``t`", "g"), ("l.item.x", "z")]
    table.do("alter_columns", {"alterations": [{"path": path, "rename": name} for path, name in renamed]})
    table.do("alter_columns", {"alterations": [{"path": "`s`.`f`", "data_type": {"type": "int32"}}]})
    noted = table.do("update_field_metadata", {"updates": [{"path": "l.item.z", "metadata": {"a": "b"}}]})
    assert noted["fields"] == {"l.item.z": {"a": "b"}}
    table.do("drop_columns", {"columns": ["s.`x`", "l.item.y"]})
    assert table.query().to_pylist() == [{"s": {"f": 1, "g": 2}, "l": [{"z": 4}]}]
    assert table.schema()["s"]["type"]["fields"][0]["type"] == {"type": "int32"}
    assert error(table.ask("drop_columns", {"columns": ["l.item.y"]})) == (404, 12)


def test_properties_change_with_the_rows(gappy: DataTable) -> None:
    gappy.do("update", {"updates": [["name", "'c'"]], "properties": {"a": "b"}})
    assert gappy.do("describe")["properties"] == {"a": "b"}


def test_the_metadata_of_several_fields_changes_in_one_version(gappy: DataTable) -> None:
    updates = [{"path": name, "metadata": {"of": name}} for name in ("id", "name")]
    changed = gappy.do("update_field_metadata", {"updates": updates})
    assert changed["version"] == 2
    assert changed["fields"] == {"id": {"of": "id"}, "name": {"of": "name"}}
