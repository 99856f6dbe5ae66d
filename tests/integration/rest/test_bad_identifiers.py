"""Names that cannot be: refused by every operation, in the path and in the body, and nothing changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pennon.server.operations.model import Operation
from pennon.server.operations.table import OPERATIONS
from tests.integration.rest.everything import everything_in
from tests.integration.rest.samples import SAMPLES, Home, path_of, stream

if TYPE_CHECKING:
    from tests.integration.rest.wire import Answer
    from tests.support.server import PennonProcess

NAMED = [row for row in OPERATIONS if "{id}" in row.path]
OBJECTS = [row for row in NAMED if row.tag != "Transaction"]
BAD = [
    "",
    ".",
    "..",
    "%2E",
    "%2E%2E",
    "a%2Fb",
    "..%2F..%2Fetc",
    "a%5Cb",
    "a%00b",
    "%00",
    "a%0Ab",
    "a%0D%0Ab",
    "a%1Fb",
    "a%7Fb",
    "a%C2%85b",
    "x" * 300,
    "%C3%BC" * 101,
    "a%24",
    "%24a",
    "a%24%24b",
    "a$$b",
    "a%24.%24b",
    "a%24%2E%2E%24b",
    "%24".join(["y" * 200] * 11),
    "%24".join(["z"] * 3000),
]
NOT_UTF8 = ["%FF", "a%C3", "%ED%A0%80", "%C0%AF"]


@pytest.fixture(autouse=True, scope="class")
def nothing_changes(pennon_server: PennonProcess, shared_home: Home) -> Any:
    before, logged = everything_in(pennon_server.directory), len(pennon_server.stderr)
    yield
    assert everything_in(pennon_server.directory) == before
    assert "Traceback" not in pennon_server.stderr[logged:]


def send(home: Home, row: Operation, path: str, body: Any = None) -> Answer:
    if row.method == "GET":
        return home.wire.get(path)
    return home.wire.post(path, stream() if row.body == "arrow" else body)


def complete(row: Operation) -> Any:
    """Return a body that lacks nothing the operation needs before it looks at names."""
    return {
        "RegisterTable": {"location": "x"},
        "RenameTable": {"new_table_name": "x"},
        "CreateTableVersion": {"version": 1, "manifest_path": "x"},
        "BatchDeleteTableVersions": {"ranges": [{"start_version": 1, "end_version": 2}]},
        "AlterTransaction": {"actions": [{"unset_property_action": {"key": "x"}}]},
    }.get(row.id, SAMPLE_BODIES.get(row.id))


SAMPLE_BODIES: dict[str, Any] = {
    "FetchBlobs": {"column": "c", "row_ids": [1]},
    "CloneTable": {"source_location": "x"},
}


def body_for(home: Home, row: Operation) -> Any:
    if row.id in SAMPLES and complete(row) is None and row.body != "arrow" and row.method == "POST":
        return None if row.tag == "Extension" else _harmless(home, row)
    return complete(row)


def _harmless(home: Home, row: Operation) -> Any:
    """Return the body of a sample that does nothing by being made."""
    if row.id in {"DropTableIndex", "DescribeTableIndexStats"} or row.tag in {"Namespace", "Transaction"}:
        return {}
    if row.id in {"DropTable", "DeregisterTable", "DeclareTable", "CreateEmptyTable", "TableExists"}:
        return {}
    if row.tag == "MaterializedView":
        return {}
    return SAMPLES[row.id](home).body


@pytest.mark.parametrize("row", OBJECTS, ids=lambda row: row.id)
class TestInThePath:
    def test_what_cannot_be_a_name_is_refused(self, shared_home: Home, row: Operation) -> None:
        body = body_for(shared_home, row)
        for bad in BAD:
            answer = send(shared_home, row, path_of(row, bad), body)
            assert answer.outcome == (400, 13), (bad, answer)
            answer = send(shared_home, row, path_of(row, bad) + "?delimiter=%24", body)
            assert answer.outcome == (400, 13), (bad, answer)

    def test_invalid_utf8_is_refused(self, shared_home: Home, row: Operation) -> None:
        for bad in NOT_UTF8:
            assert send(shared_home, row, path_of(row, bad), body_for(shared_home, row)).outcome == (400, 13)

    def test_an_empty_delimiter_is_refused(self, shared_home: Home, row: Operation) -> None:
        for query in ("delimiter=", "delimiter"):
            answer = send(shared_home, row, path_of(row, "t", query=query), body_for(shared_home, row))
            assert answer.outcome == (400, 13)
            assert "delimiter" in answer.json["error"]

    def test_another_delimiter_splits_what_is_split_by_it(self, shared_home: Home, row: Operation) -> None:
        body = body_for(shared_home, row)
        for query, bad in (
            ("delimiter=.", "a..b"),
            ("delimiter=.", "a.%2E%2E.b"),
            ("delimiter=::", "a::"),
            ("delimiter=.", "a$b"),
        ):
            assert send(shared_home, row, path_of(row, bad, query=query), body).outcome == (400, 13)

    def test_a_query_that_is_not_utf8_is_refused(self, shared_home: Home, row: Operation) -> None:
        for query in ("delimiter=%FF", "x=%FF", "limit=%C3%28"):
            path = path_of(row, "t", query=query)
            assert send(shared_home, row, path, body_for(shared_home, row)).outcome == (400, 13)


@pytest.mark.parametrize(
    "row",
    [row for row in NAMED if row.method == "POST" and row.body != "arrow" and row.body_field is None],
    ids=lambda r: r.id,
)
class TestInTheBody:
    def test_a_body_that_names_another_object_is_refused(self, shared_home: Home, row: Operation) -> None:
        body = body_for(shared_home, row) or {}
        for stated in (["other"], "t", ["t", "t"], [["t"]], [1], {"t": 1}, 0):
            answer = send(shared_home, row, path_of(row, "t"), {**body, "id": stated})
            assert answer.outcome == (400, 13)
            assert "not the one in the path" in answer.json["error"]


@pytest.mark.parametrize("row", [row for row in NAMED if row.tag == "Transaction"], ids=lambda row: row.id)
class TestTransactions:
    def test_what_was_never_given_out_is_not_found(self, shared_home: Home, row: Operation) -> None:
        for bad in [*BAD[1:-1], "nope", "0" * 32]:
            answer = send(shared_home, row, path_of(row, bad), complete(row))
            assert answer.outcome == (404, 10), bad
        for bad in NOT_UTF8:
            assert send(shared_home, row, path_of(row, bad), complete(row)).outcome == (400, 13)


class TestBatches:
    BAD_LISTS: tuple[Any, ...] = (
        [""],
        ["."],
        [".."],
        ["a/b"],
        ["a\\b"],
        ["a$b"],
        ["nul\0"],
        ["a\nb"],
        ["x" * 300],
        ["a", ""],
        [],
        ["y" * 200] * 11,
    )

    def test_names_in_a_batch_are_checked_as_well(self, shared_home: Home) -> None:
        for bad in self.BAD_LISTS:
            entry = {"id": bad, "version": 1, "manifest_path": "x"}
            ranges = [{"start_version": 1, "end_version": 2}]
            for body in (
                {"entries": [entry]},
                {"operations": [{"declare_table": {"id": bad}}]},
                {"operations": [{"deregister_table": {"id": bad}}]},
                {"operations": [{"create_table_version": entry}]},
                {"operations": [{"delete_table_versions": {"id": bad, "ranges": ranges}}]},
            ):
                route = "version/batch-create" if "entries" in body else "batch-commit"
                assert shared_home.wire.post(f"/v1/table/{route}", body).outcome == (400, 13), bad

    def test_half_a_character_is_no_json(self, shared_home: Home) -> None:
        for text in ('"\\ud800"', '"a\\udfffb"'):
            for body in (
                '{"operations": [{"declare_table": {"id": [%s]}}]}',
                '{"operations": [{"declare_table": {"id": ["a"], "properties": {"a": %s}}}]}',
                '{"operations": [{"declare_table": {"id": ["a"], "location": %s}}]}',
            ):
                answer = shared_home.wire.post("/v1/table/batch-commit", (body % text).encode())
                assert answer.outcome == (400, 13)

    def test_a_name_in_a_rename_is_checked_as_well(self, shared_home: Home) -> None:
        path = f"/v1/table/{shared_home.name}%24t/rename"
        for bad in ("", ".", "..", "a/b", "a\\b", "a$b", "nul\0", "x" * 300):
            assert shared_home.wire.post(path, {"new_table_name": bad}).outcome == (400, 13)
            for field in ("new_namespace_id", "new_namespace"):
                answer = shared_home.wire.post(path, {"new_table_name": "u", field: [bad]})
                assert answer.outcome == (400, 13)
        assert json.loads(shared_home.wire.post(path, {"new_table_name": 7}).content)["code"] == 13
