"""The first rows of a table: where they go, what the table is known by, and tables that were declared before."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.data.tables import DataTable, error, rows, stream_of
from tests.integration.data.test_concurrency import race

if TYPE_CHECKING:
    from tests.support.rest import RestClient

UPSERT = {"on": "id", "when_not_matched_insert_all": "true"}
FIRST_WRITES: dict[str, Callable[[DataTable, int], httpx.Response]] = {
    "append": lambda t, size: t.send("insert", rows(size)),
    "overwrite": lambda t, size: t.send("insert", rows(size), mode="overwrite"),
    "upsert": lambda t, size: t.send("merge_insert", rows(size), **UPSERT),
    "create": lambda t, size: t.send("create", rows(size)),
}


@pytest.fixture
def declared(http: RestClient) -> DataTable:
    """A table that has a name and properties, and no rows."""
    made = DataTable(http)
    made.do("declare", {"properties": {"owner": "me"}})
    return made


def described(table: DataTable) -> dict[str, Any]:
    found: dict[str, Any] = table.do("describe", {"check_declared": True})
    return found


@pytest.mark.parametrize("size", [3, 100_000])
@pytest.mark.parametrize("write", FIRST_WRITES)
def test_a_declared_table_is_made_of_the_first_rows_it_gets(declared: DataTable, write: str, size: int) -> None:
    answer = FIRST_WRITES[write](declared, size)
    assert answer.status_code == 200, answer.text
    assert answer.json()["version"] == 1
    assert answer.json().get("num_inserted_rows", size) == size
    assert declared.count() == size
    assert (described(declared)["is_only_declared"], described(declared)["properties"]) == (False, {"owner": "me"})


def test_rows_that_cannot_be_the_first_leave_a_table_declared(declared: DataTable) -> None:
    assert error(declared.send("insert", stream_of(rows(3))[:-9])) == (400, 13)
    assert error(declared.send("merge_insert", rows(3), **{**UPSERT, "on": "nope"})) == (404, 12)
    assert error(declared.send("insert", rows(3), branch="dev")) == (404, 22)
    assert described(declared)["is_only_declared"] is True
    assert declared.files("") == set()


def insert_two(table: DataTable, number: int) -> httpx.Response:
    return table.send("insert", rows(number * 10, number * 10 + 2))


def test_callers_who_write_the_first_rows_at_once_all_do(http: RestClient) -> None:
    for _ in range(3):
        table = DataTable(http)
        table.do("declare")
        answers = race(6, partial(insert_two, table))
        assert [answer.status_code for answer in answers] == [200] * 6, [answer.text for answer in answers]
        assert sorted(table.ids()) == sorted(number * 10 + n for number in range(6) for n in range(2))


def test_properties_that_come_with_rows_are_those_of_the_table(declared: DataTable) -> None:
    for mode, given in (("create", {"team": "us"}), ("overwrite", {"team": "them"})):
        created = declared.put("create", rows(3), mode=mode, properties=json.dumps(given))
        assert created["properties"] == described(declared)["properties"] == given
    declared.put("create", rows(4), mode="overwrite")
    assert described(declared)["properties"] == {"team": "them"}
    assert declared.put("create", rows(4), mode="exist_ok", properties='{"x": "y"}')["properties"] == {"team": "them"}


def test_properties_and_location_may_stand_in_headers(new: DataTable) -> None:
    place = f"elsewhere/{new.names[0]}.lance"
    headers = {"x-lance-table-properties": '{"team": "us"}', "x-lance-table-location": place}
    created = new.put("create", rows(3), headers=headers)
    assert created["location"].endswith(f"/{place}")
    assert created["location"] == new.do("describe")["location"]
    assert created["properties"] == {"team": "us"}
    assert new.ids() == [0, 1, 2]


@pytest.mark.parametrize(
    "headers",
    [
        {"x-lance-table-location": "/etc/table"},
        {"x-lance-table-location": "../table"},
        {"x-lance-table-properties": "[]"},
        {"x-lance-table-properties": '{"a": 1}'},
    ],
    ids=str,
)
def test_headers_that_cannot_be_are_refused(new: DataTable, headers: dict[str, str]) -> None:
    assert error(new.send("create", rows(3), headers=headers)) == (400, 13)
    assert error(new.ask("describe")) == (404, 4)


def test_a_table_that_has_its_place_is_given_no_other(table: DataTable, declared: DataTable) -> None:
    other = {"headers": {"x-lance-table-location": "elsewhere/other.lance"}}
    assert error(table.send("create", rows(3), mode="overwrite", **other)) == (400, 13)
    assert error(declared.send("create", rows(3), **other)) == (400, 13)
    same = {"headers": {"x-lance-table-location": table.do("describe")["location"]}}
    assert table.put("create", rows(3), mode="overwrite", **same)["version"] == 2
