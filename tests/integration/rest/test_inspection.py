"""What tells a person, or the console, about a table: differences, fragments, functions, and the caller itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pennon
from tests.integration.rest.samples import STREAM, rows, stream

if TYPE_CHECKING:
    from tests.integration.rest.samples import Home
    from tests.integration.rest.wire import Wire


@pytest.fixture
def filled(home: Home) -> Home:
    """A table of nine rows in three fragments; its versions are 1 to 3."""
    return home.fill()


def diff(home: Home, older: int, newer: int, **more: Any) -> Any:
    answer = home.wire.post(f"/v1/table/{home.table}/version/diff", {"from": older, "to": newer, **more})
    return answer.json


class TestVersionDiff:
    def test_rows_that_were_added(self, filled: Home) -> None:
        found = diff(filled, 1, 3)
        assert (found["rows_before"], found["rows_after"], found["exact"]) == (3, 9, True)
        assert (found["rows_added"], found["rows_removed"], found["rows_updated"]) == (6, 0, 0)

    def test_the_other_way_round_they_were_removed(self, filled: Home) -> None:
        found = diff(filled, 3, 1)
        assert (found["rows_added"], found["rows_removed"], found["rows_updated"]) == (0, 6, 0)

    def test_rows_that_were_updated_and_removed(self, filled: Home) -> None:
        filled.ask("table", filled.table, "update", {"updates": [["word", "'x'"]], "predicate": "id < 2"})
        filled.ask("table", filled.table, "delete", {"predicate": "id = 21"})
        found = diff(filled, 3, 5)
        assert (found["rows_added"], found["rows_removed"], found["rows_updated"]) == (0, 1, 2)

    def test_a_version_that_was_restored_has_its_rows_again(self, filled: Home) -> None:
        filled.ask("table", filled.table, "delete", {"predicate": "id < 100"})
        filled.ask("table", filled.table, "restore", {"version": 3})
        found = diff(filled, 4, 5)
        assert (found["rows_before"], found["rows_after"], found["rows_added"]) == (0, 9, 9)

    def test_columns_and_indexes(self, filled: Home) -> None:
        add = {"new_columns": [{"name": "twice", "expression": "id * 2"}]}
        filled.ask("table", filled.table, "add_columns", add)
        filled.ask("table", filled.table, "drop_columns", {"columns": ["word"]})
        found = diff(filled, 3, 5)
        assert [item["name"] for item in found["added_columns"]] == ["twice"]
        assert [item["name"] for item in found["removed_columns"]] == ["word"]
        assert (found["rows_added"], found["rows_removed"], found["rows_updated"]) == (0, 0, 0)

    @pytest.mark.parametrize(
        ("older", "newer", "outcome"), [(1, 99, (404, 11)), (0, 1, (400, 13)), (1, "x", (400, 13))]
    )
    def test_a_version_that_is_not_there(self, filled: Home, older: Any, newer: Any, outcome: tuple[int, int]) -> None:
        body = {"from": older, "to": newer}
        assert filled.wire.post(f"/v1/table/{filled.table}/version/diff", body).outcome == outcome

    def test_versions_of_a_branch(self, filled: Home) -> None:
        filled.wire.send("POST", f"/v1/table/{filled.table}/insert?branch=dev", stream(rows(2, 50)), STREAM)
        newest = filled.ask("table", filled.table, "version/list", {"branch": "dev", "descending": True})["versions"][0]
        found = diff(filled, 3, newest["version"], branch="dev")
        assert found["rows_added"] == 2


class TestFragments:
    def test_each_fragment_is_listed_with_its_rows_and_bytes(self, filled: Home) -> None:
        filled.ask("table", filled.table, "delete", {"predicate": "id = 21"})
        found = filled.ask("table", filled.table, "fragments")
        assert [(item["rows"], item["deleted_rows"]) for item in found["fragments"]] == [(3, 0), (3, 0), (2, 1)]
        assert all(item["bytes"] > 0 and item["files"] == 1 for item in found["fragments"])
        assert found["version"] == 4

    def test_page_by_page(self, filled: Home) -> None:
        first = filled.ask("table", filled.table, "fragments", {"limit": 2})
        last = filled.ask("table", filled.table, "fragments", {"limit": 2, "page_token": first["page_token"]})
        assert [item["id"] for item in first["fragments"] + last["fragments"]] == [0, 1, 2]
        assert "page_token" not in last


class TestFunctions:
    @pytest.fixture
    def table(self, filled: Home, pennon_server: Any) -> Any:
        return pennon.connect(pennon_server.url).open_table("t", namespace_path=[filled.name])

    def ask(self, home: Home, column: str) -> Any:
        return home.ask("table", home.table, "column_function", {"column": column})

    def test_a_function_is_described_with_its_source(self, filled: Home, table: Any) -> None:
        @pennon.udf(version="3", batch_size=10)
        def shout(word: str) -> str:
            return word.upper()  # louder

        table.add_columns({"loud": shout})
        found = self.ask(filled, "loud")
        assert found["source"].splitlines()[0] == '@pennon.udf(version="3", batch_size=10)'
        assert found["source"].endswith("return word.upper()  # louder")
        assert (found["name"], found["version"], found["kind"]) == ("shout", "3", "scalar")
        assert (found["inputs"], found["columns"]) == (["word"], ["loud"])
        assert found["options"]["batch_size"] == 10

    def test_an_expression_is_returned_unchanged(self, filled: Home, table: Any) -> None:
        table.add_columns({"next": pennon.computed("id + 1")})
        found = self.ask(filled, "next")
        assert (found["kind"], found["expression"], found["inputs"]) == ("expression", "id + 1", ["id"])

    def test_a_column_that_nothing_fills(self, filled: Home) -> None:
        path = f"/v1/table/{filled.table}/column_function"
        assert filled.wire.post(path, {"column": "id"}).outcome == (400, 13)
        assert filled.wire.post(path, {"column": "idd"}).outcome == (404, 12)


class TestViewFunctions:
    def ask(self, home: Home, view: str) -> Any:
        path = f"/v1/materialized_view/{home.other(view)}/functions"
        return home.wire.post(path, {}).json["functions"]

    def test_functions_of_views_are_described_with_their_source(self, filled: Home, pennon_server: Any) -> None:
        @pennon.udf(version="2")
        def shout(word: str) -> str:
            return word.upper()

        @pennon.chunker(output_schema=pa.schema([("letter", pa.string())]))
        def letters(word: str) -> Any:
            yield from ({"letter": letter} for letter in word)

        db, source = pennon.connect(pennon_server.url), pennon.query(f"{filled.name}.t")
        where: dict[str, Any] = {"namespace_path": [filled.name], "with_no_data": True}
        db.create_materialized_view("loud", source.select({"id": "id", "loud": shout}), **where)
        db.create_chunk_view("spelled", source, letters, columns=["id"], **where)
        db.create_materialized_view("plain", source.select("id"), **where)
        [loud], [spelled] = self.ask(filled, "loud"), self.ask(filled, "spelled")
        assert (loud["name"], loud["version"], loud["inputs"], loud["columns"]) == ("shout", "2", ["word"], ["loud"])
        assert loud["source"].endswith("return word.upper()")
        assert (spelled["kind"], spelled["inputs"], spelled["columns"]) == ("chunker", ["word"], ["letter"])
        assert spelled["source"].startswith("@pennon.chunker(")
        assert self.ask(filled, "plain") == []

    def test_a_table_is_no_view(self, filled: Home) -> None:
        path = f"/v1/materialized_view/{filled.table}/functions"
        assert filled.wire.post(path, {}).outcome == (400, 13)


def test_without_keys_everyone_may_do_everything(wire: Wire) -> None:
    found = wire.get("/v1/whoami").json
    assert (found["name"], found["authenticated"]) == ("anonymous", False)
    assert found["grants"] == [{"namespace": [], "role": "admin"}]
