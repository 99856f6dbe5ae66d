"""What goes wrong has the specification's status and code, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest

from tests.integration.data.conftest import Stored
from tests.integration.data.tables import DataTable, error, rows, vector

Call = Callable[[DataTable], httpx.Response]


def nested(levels: int) -> pa.DataType:
    """Return the type of lists of lists, and so on."""
    return pa.list_(nested(levels - 1)) if levels else pa.int8()


#: Enough operators to overflow the stack of a thread.
DEEP = "id = " + "+".join(["1"] * 2000)
UNKNOWN_COLUMN: dict[str, Call] = {
    "query of a column": lambda t: t.ask("query", {"k": 1, "columns": {"column_names": ["wrod"]}}),
    "query with a filter": lambda t: t.ask("query", {"k": 1, "filter": "wrod = 'x'"}),
    "query of an expression": lambda t: t.ask("query", {"k": 1, "columns": {"column_aliases": {"a": "wrod || 'x'"}}}),
    "query ordered": lambda t: t.ask("query", {"k": 1, "order_by": [{"column_name": "wrod"}]}),
    "search of a column": lambda t: t.ask("query", {"k": 1, "vector": vector(1), "vector_column": "wrod"}),
    "count": lambda t: t.ask("count_rows", {"predicate": "wrod = 'x'"}),
    "update of a column": lambda t: t.ask("update", {"updates": [["wrod", "'x'"]]}),
    "update where": lambda t: t.ask("update", {"updates": [["word", "'x'"]], "predicate": "wrod = 'x'"}),
    "delete": lambda t: t.ask("delete", {"predicate": "wrod = 'x'"}),
    "merge": lambda t: t.send("merge_insert", rows(1), on="wrod", when_not_matched_insert_all="true"),
    "add": lambda t: t.ask("add_columns", {"new_columns": [{"name": "x", "expression": "upper(wrod)"}]}),
    "alter": lambda t: t.ask("alter_columns", {"alterations": [{"path": "wrod", "rename": "x"}]}),
    "drop": lambda t: t.ask("drop_columns", {"columns": ["wrod"]}),
    "metadata": lambda t: t.ask("update_field_metadata", {"updates": [{"path": "wrod", "metadata": {}}]}),
    "index": lambda t: t.ask("create_index", {"column": "wrod", "index_type": "BTREE"}),
    "explain": lambda t: t.ask("explain_plan", {"query": {"k": 1, "vector": {}, "filter": "wrod = 'x'"}}),
    "analyze": lambda t: t.ask("analyze_plan", {"k": 1, "vector": {}, "filter": "wrod = 'x'"}),
}
BAD_SQL: dict[str, Call] = {
    "query": lambda t: t.ask("query", {"k": 1, "filter": "id >>> 3"}),
    "query of an expression": lambda t: t.ask("query", {"k": 1, "columns": {"column_aliases": {"a": "id +"}}}),
    "query with an unknown function": lambda t: t.ask("query", {"k": 1, "filter": "nothing(id) = 1"}),
    "query with what is no condition": lambda t: t.ask("query", {"k": 1, "filter": "id + 1"}),
    "count": lambda t: t.ask("count_rows", {"predicate": "id >"}),
    "update": lambda t: t.ask("update", {"updates": [["word", "((("]]}),
    "update where": lambda t: t.ask("update", {"updates": [["word", "'x'"]], "predicate": "id = = 1"}),
    "delete": lambda t: t.ask("delete", {"predicate": "id = = 1"}),
    "delete of nothing": lambda t: t.ask("delete", {"predicate": " "}),
    "add": lambda t: t.ask("add_columns", {"new_columns": [{"name": "x", "expression": "id +"}]}),
    "merge": lambda t: t.send(
        "merge_insert", rows(1), on="id", when_matched_update_all="true", when_matched_update_all_filt="target.id >"
    ),
    "update with a division by zero": lambda t: t.ask("update", {"updates": [["id", "id / 0"]]}),
    "delete with a division by zero": lambda t: t.ask("delete", {"predicate": "id / 0 = 1"}),
    "count with a division by zero": lambda t: t.ask("count_rows", {"predicate": "id / 0 = 1"}),
    "count with an aggregate": lambda t: t.ask("count_rows", {"predicate": "sum(id) = 1"}),
    "count of what is in no struct": lambda t: t.ask("count_rows", {"predicate": "vector.x = 1"}),
    "count of what is too long": lambda t: t.ask("count_rows", {"predicate": "length(repeat('x', 9999999999)) = 1"}),
    "add of what has no common type": lambda t: t.ask(
        "add_columns", {"new_columns": [{"name": "x", "expression": "id BETWEEN 1 AND 2 BETWEEN 1 AND 2"}]}
    ),
    "query with a placeholder": lambda t: t.ask("query", {"k": 1, "filter": "id = $1"}),
    "count with a placeholder": lambda t: t.ask("count_rows", {"predicate": "id = ?"}),
    "delete with a placeholder": lambda t: t.ask("delete", {"predicate": "id = :id"}),
    "query too deep": lambda t: t.ask("query", {"k": 1, "filter": DEEP}),
    "query of an expression too deep": lambda t: t.ask("query", {"k": 1, "columns": {"column_aliases": {"a": DEEP}}}),
    "count too deep": lambda t: t.ask("count_rows", {"predicate": DEEP}),
    "update too deep": lambda t: t.ask("update", {"updates": [["id", DEEP.removeprefix("id = ")]]}),
    "update where it is too deep": lambda t: t.ask("update", {"updates": [["word", "'x'"]], "predicate": DEEP}),
    "delete too deep": lambda t: t.ask("delete", {"predicate": DEEP}),
    "add too deep": lambda t: t.ask("add_columns", {"new_columns": [{"name": "x", "expression": DEEP}]}),
    "computed too deep": lambda t: t.ask("add_columns", {"new_columns": [{"name": "x", "computed": DEEP}]}),
    "merge too deep": lambda t: t.send(
        "merge_insert", rows(1), on="id", when_matched_update_all="true", when_matched_update_all_filt=f"target.{DEEP}"
    ),
    "explain too deep": lambda t: t.ask("explain_plan", {"query": {"k": 1, "vector": {}, "filter": DEEP}}),
    "a view too deep": lambda t: t.http.raw.post(
        f"/v1/materialized_view/{t.names[0]}_view/create", json={"query": f"SELECT id FROM {t.names[0]} WHERE {DEEP}"}
    ),
    "analyze too deep": lambda t: t.ask("analyze_plan", {"k": 1, "vector": {}, "filter": DEEP}),
    "add with an aggregate": lambda t: t.ask("add_columns", {"new_columns": [{"name": "x", "expression": "sum(id)"}]}),
    "add with a division by zero": lambda t: t.ask(
        "add_columns", {"new_columns": [{"name": "x", "expression": "id / 0"}]}
    ),
    "explain": lambda t: t.ask("explain_plan", {"query": {"k": 1, "vector": {}, "filter": "id >"}}),
    "analyze": lambda t: t.ask("analyze_plan", {"k": 1, "vector": {}, "filter": "id >"}),
}
WRONG_SCHEMA: dict[str, Call] = {
    "an unknown column": lambda t: t.send("insert", pa.table({"other": [1]})),
    "one column too many": lambda t: t.send("insert", rows(1).append_column("more", pa.array([1]))),
    "another type": lambda t: t.send("insert", rows(1).set_column(0, "id", pa.array(["x"]))),
    "another width": lambda t: t.send(
        "insert", rows(1).set_column(2, "vector", pa.array([[1.0]], pa.list_(pa.float32(), 1)))
    ),
    "a merge with another type": lambda t: t.send(
        "merge_insert", rows(1).set_column(1, "word", pa.array([5])), on="id", when_matched_update_all="true"
    ),
    "a rename to a column that exists": lambda t: t.ask(
        "alter_columns", {"alterations": [{"path": "id", "rename": "word"}]}
    ),
    "two columns of one name": lambda t: t.send(
        "insert", pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), mode="overwrite"
    ),
    "a type nested too deep": lambda t: t.send("insert", pa.table({"x": pa.array([], nested(80))}), mode="overwrite"),
    "a new type nested too deep": lambda t: t.send("add_columns", pa.table({"x": pa.array([], nested(80))})),
    "a column that exists": lambda t: t.ask("add_columns", {"new_columns": [{"name": "word", "expression": "'x'"}]}),
}
BAD_NAME: dict[str, Call] = {
    f"{verb} {name!r}": call
    for name in ("", "a.b", "a`b", "_rowid", "_rowoffset")
    for verb, call in {
        "add": lambda t, n=name: t.ask("add_columns", {"new_columns": [{"name": n, "expression": "id"}]}),
        "rename to": lambda t, n=name: t.ask("alter_columns", {"alterations": [{"path": "id", "rename": n}]}),
        "create": lambda t, n=name: DataTable(t.http).send("create", pa.table({"id": [1], n: [2]})),
        "overwrite with": lambda t, n=name: t.send("insert", pa.table({n: [2]}), mode="overwrite"),
    }.items()
}
UNKNOWN_VERSION: dict[str, Call] = {
    "query": lambda t: t.ask("query", {"k": 1, "version": 99}),
    "count": lambda t: t.ask("count_rows", {"version": 99}),
    "describe": lambda t: t.ask("describe", {"version": 99}),
    "describe in detail": lambda t: t.ask("describe", {"version": 99, "load_detailed_metadata": True}),
    "exists": lambda t: t.ask("exists", {"version": 99}),
    "restore": lambda t: t.ask("restore", {"version": 99}),
    "tag": lambda t: t.ask("tags/create", {"tag": "x", "version": 99}),
    "branch": lambda t: t.ask("branches/create", {"name": "x", "from_version": 99}),
    "indices": lambda t: t.ask("index/list", {"version": 99}),
}
UNKNOWN_BRANCH: dict[str, Call] = {
    "query": lambda t: t.ask("query", {"k": 1, "branch": "nope"}),
    "count": lambda t: t.ask("count_rows", {"branch": "nope"}),
    "describe": lambda t: t.ask("describe", {"branch": "nope"}),
    "insert": lambda t: t.send("insert", rows(1), branch="nope"),
    "overwrite": lambda t: t.send("insert", rows(1), branch="nope", mode="overwrite"),
    "merge": lambda t: t.send("merge_insert", rows(1), on="id", when_matched_update_all="true", branch="nope"),
    "update": lambda t: t.ask("update", {"updates": [["word", "'x'"]], "branch": "nope"}),
    "delete": lambda t: t.ask("delete", {"predicate": "true", "branch": "nope"}),
    "stats": lambda t: t.ask("stats", {"branch": "nope"}),
    "versions": lambda t: t.ask("version/list", branch="nope"),
    "restore": lambda t: t.ask("restore", {"version": 1, "branch": "nope"}),
    "delete the branch": lambda t: t.ask("branches/delete", {"name": "nope"}),
    "branch from it": lambda t: t.ask("branches/create", {"name": "x", "from_branch": "nope"}),
    "drop columns": lambda t: t.ask("drop_columns", {"columns": ["word"], "branch": "nope"}),
    "index": lambda t: t.ask("create_index", {"column": "id", "index_type": "BTREE", "branch": "nope"}),
}
WRONG_REQUEST: dict[str, Call] = {
    "no Arrow at all": lambda t: t.send("insert", b"this is not Arrow"),
    "an empty body": lambda t: t.send("insert", b""),
    "an unknown mode": lambda t: t.send("insert", rows(1), mode="sideways"),
    "a merge without keys": lambda t: t.send("merge_insert", rows(1), when_matched_update_all="true"),
    "a merge that does nothing": lambda t: t.send("merge_insert", rows(1), on="id"),
    "an update of nothing": lambda t: t.ask("update", {"updates": []}),
    "an unknown index type": lambda t: t.ask("create_index", {"column": "id", "index_type": "BTREEE"}),
    "a vector index on words": lambda t: t.ask("create_index", {"column": "word", "index_type": "IVF_PQ"}),
    "a negative k": lambda t: t.ask("query", {"k": -1}),
    "a negative offset": lambda t: t.ask("query", {"k": 1, "offset": -1}),
    "an offset beyond all numbers": lambda t: t.ask("query", {"k": 1, "offset": 2**70}),
    "a version beyond all numbers": lambda t: t.ask("query", {"k": 1, "version": 2**63}),
    "a fuzziness below zero": lambda t: t.ask(
        "query",
        {"k": 1, "full_text_query": {"query": {"match": {"terms": "x", "column": "word", "fuzziness": -5}}}},
    ),
    "a flag that is a text": lambda t: t.ask("query", {"k": 1, "with_row_id": "false"}),
    "one vector and several": lambda t: t.ask(
        "query", {"k": 1, "vector": {**vector(1), "multi_vector": [[1.0, 1.0, 1.0, 1.0]]}}
    ),
    "two full-text queries": lambda t: t.ask(
        "query",
        {
            "k": 1,
            "full_text_query": {
                "string_query": {"query": "red"},
                "structured_query": {"query": {"match": {"terms": "red"}}},
            },
        },
    ),
    "a number for columns to search": lambda t: t.ask(
        "query", {"k": 1, "full_text_query": {"string_query": {"query": "red", "columns": 5}}}
    ),
    "a text for columns to search": lambda t: t.ask(
        "query", {"k": 1, "full_text_query": {"string_query": {"query": "red", "columns": "word"}}}
    ),
    "a merge with a time that is none": lambda t: t.send(
        "merge_insert", rows(1), on="id", when_matched_update_all="true", timeout="soon"
    ),
    "a merge that has no time": lambda t: t.send(
        "merge_insert", rows(1), on="id", when_matched_update_all="true", timeout="0s"
    ),
    "an unknown tokenizer": lambda t: t.ask(
        "create_index", {"column": "word", "index_type": "FTS", "base_tokenizer": "nope"}
    ),
    "JSON without values": lambda t: t.ask(
        "create_index", {"column": "word", "index_type": "FTS", "lance_tokenizer": "json"}
    ),
    "a narrow vector": lambda t: t.ask("query", {"k": 1, "vector": {"single_vector": [1.0]}}),
    "words for a vector": lambda t: t.ask("query", {"k": 1, "vector": {"single_vector": ["a", "b", "c", "d"]}}),
    "full text without an index": lambda t: t.ask(
        "query", {"k": 1, "full_text_query": {"string_query": {"query": "red"}}}
    ),
    "a tag with a bad name": lambda t: t.ask("tags/create", {"tag": "../up", "version": 1}),
    "a branch with a bad name": lambda t: t.ask("branches/create", {"name": "../up"}),
    "a branch called main": lambda t: t.ask("branches/create", {"name": "main"}),
    "no columns to drop": lambda t: t.ask("drop_columns", {"columns": []}),
    "an unknown data type": lambda t: t.ask(
        "alter_columns", {"alterations": [{"path": "id", "data_type": {"type": "floaty"}}]}
    ),
    "a distance that is not one": lambda t: t.ask("query", {"k": 1, "vector": vector(1), "distance_type": "miles"}),
    "a body that is not JSON": lambda t: t.http.raw.post(f"{t.path}/update", content=b"{"),
    "the id of another table": lambda t: t.ask("update", {"id": ["other"], "updates": [["word", "'x'"]]}),
}


def parameters() -> list[tuple[int, int, str, Call]]:
    groups: list[tuple[int, int, str, dict[str, Call]]] = [
        (404, 12, "unknown column", UNKNOWN_COLUMN),
        (400, 13, "bad SQL", BAD_SQL),
        (400, 20, "wrong schema", WRONG_SCHEMA),
        (400, 20, "bad name", BAD_NAME),
        (404, 11, "unknown version", UNKNOWN_VERSION),
        (404, 22, "unknown branch", UNKNOWN_BRANCH),
        (400, 13, "wrong request", WRONG_REQUEST),
    ]
    return [
        (status, code, f"{group}: {name}", call)
        for status, code, group, calls in groups
        for name, call in calls.items()
    ]


@pytest.mark.parametrize(
    ("status", "code", "call"),
    [pytest.param(status, code, call, id=name) for status, code, name, call in parameters()],
)
def test_a_mistake_has_its_status_and_code_and_changes_nothing(
    table: DataTable, stored: Stored, status: int, code: int, call: Call
) -> None:
    files = stored(table)
    answer = call(table)
    assert error(answer) == (status, code), answer.text
    assert table.versions() == [1]
    assert table.count() == 100
    assert stored(table) == files
    assert ".rs:" not in answer.text
    assert table.do("describe")["location"] not in answer.text


def test_an_unknown_column_is_named_with_the_nearest_one(table: DataTable) -> None:
    for name, call in UNKNOWN_COLUMN.items():
        assert call(table).json()["error"] == "There is no column 'wrod'. Did you mean 'word'?", name


def test_an_unknown_version_or_branch_is_named(table: DataTable) -> None:
    for name, call in UNKNOWN_VERSION.items():
        assert call(table).json()["error"] == f"Table {table.names[0]!r} has no version 99.", name
    for name, call in UNKNOWN_BRANCH.items():
        assert call(table).json()["error"] == "The table has no branch 'nope'.", name


def test_errors_suggest_similar_names_of_tables_tags_branches_and_indexes(table: DataTable) -> None:
    table.do("tags/create", {"tag": "release", "version": 1})
    table.do("branches/create", {"name": "develop"})
    table.do("create_index", {"column": "id", "index_type": "BTREE", "name": "by_id"})
    table.wait_for_index("by_id")
    other = DataTable(table.http, table.names[0][:-1])
    for answer, nearest in (
        (other.ask("count_rows"), table.names[0]),
        (table.ask("tags/version", {"tag": "relaese"}), "release"),
        (table.ask("branches/delete", {"name": "devlop"}), "develop"),
        (table.ask("count_rows", {"branch": "devlop"}), "develop"),
        (table.ask("index/by_di/drop"), "by_id"),
    ):
        assert f"Did you mean '{nearest}'?" in answer.json()["error"]


def test_indices_tags_and_branches_that_exist_or_do_not(table: DataTable) -> None:
    table.do("create_index", {"column": "id", "index_type": "BTREE", "name": "ids"})
    table.wait_for_index("ids")
    table.do("tags/create", {"tag": "first", "version": 1})
    table.do("branches/create", {"name": "dev"})
    expected = [
        (table.ask("index/nope/stats"), (404, 6)),
        (table.ask("index/nope/drop"), (404, 6)),
        (table.ask("create_index", {"column": "id", "index_type": "BTREE", "name": "ids"}), (409, 7)),
        (table.ask("tags/version", {"tag": "nope"}), (404, 8)),
        (table.ask("tags/delete", {"tag": "nope"}), (404, 8)),
        (table.ask("tags/update", {"tag": "nope", "version": 1}), (404, 8)),
        (table.ask("describe", {"tag": "nope"}), (404, 8)),
        (table.ask("tags/create", {"tag": "first", "version": 1}), (409, 9)),
        (table.ask("branches/create", {"name": "dev"}), (409, 23)),
    ]
    assert [error(answer) for answer, _ in expected] == [wanted for _, wanted in expected]


def test_a_table_or_namespace_that_does_not_exist(new: DataTable) -> None:
    for verb in ("query", "count_rows", "update", "stats", "index/list", "tags/list", "branches/list"):
        body = {"k": 1, "updates": [["a", "1"]]}
        assert error(new.ask(verb, body)) == (404, 4), verb
    assert error(new.send("insert", rows(1))) == (404, 4)
    assert error(new.send("merge_insert", rows(1), on="id", when_matched_update_all="true")) == (404, 4)
    nowhere = DataTable(new.http, "no_namespace", "table")
    assert error(nowhere.send("create", rows(1))) == (404, 1)


def test_creating_what_exists(table: DataTable) -> None:
    assert error(table.send("create", rows(3))) == (409, 5)
    assert table.put("create", rows(3), mode="exist_ok")["version"] == 1
    assert table.count() == 100
    assert table.put("create", pa.table({"x": [1]}), mode="overwrite")["version"] == 2
    assert list(table.schema()) == ["x"]


def test_nulls_where_none_may_be_are_a_wrong_schema(new: DataTable) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    new.create(pa.table({"id": pa.array([1], pa.int64())}, schema=schema))
    assert error(new.send("insert", pa.table({"id": pa.array([None], pa.int64())}))) == (400, 20)
    assert new.versions() == [1]


def test_a_table_that_is_only_declared_has_no_data(new: DataTable) -> None:
    new.do("declare")
    assert error(new.ask("count_rows")) == (404, 4)
    assert error(new.ask("query", {"k": 1})) == (404, 4)
    new.put("create", rows(3))
    assert new.count() == 3


def test_a_key_with_bad_numbers_is_bad_json(table: DataTable) -> None:
    body = json.dumps({"k": 1, "vector": {"single_vector": [float("nan")] * 4}})
    answer = table.http.raw.post(f"{table.path}/query", content=body.encode())
    assert error(answer) == (400, 13)


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("fetch_blobs", {"column": "word", "row_ids": [0], "version": "1"}),
        ("fetch_blobs", {"column": "word", "row_ids": [0], "version": 1.5}),
        ("clone", {"source_location": "anywhere", "source_version": []}),
        ("clone", {"source_location": "anywhere", "source_tag": 5}),
        ("multipart_write/create", {"branch": 5}),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused_beyond_the_specification_too(
    table: DataTable, verb: str, body: dict[str, object]
) -> None:
    assert error(table.ask(verb, body)) == (400, 13)


@pytest.mark.parametrize("row_id", ["²", "-1", "x", "1.0", "9" * 5000])
def test_what_is_no_row_id_is_refused(table: DataTable, row_id: str) -> None:
    assert error(table.http.raw.get(f"{table.path}/blob/word/{row_id}/bytes")) == (400, 13)


@pytest.mark.parametrize("span", ["bytes=5-2", "bytes=-2", "bytes=0-1,3-4", "items=0-1", f"bytes={'9' * 5000}-"])
def test_what_is_no_range_of_bytes_is_refused(table: DataTable, span: str) -> None:
    assert error(table.http.raw.get(f"{table.path}/blob/word/0/bytes", headers={"range": span})) == (400, 13)


@pytest.mark.parametrize("queries", [5, [5], [None], [{}], [{"terms": 5}]])
def test_a_full_text_query_of_anything_but_queries_is_refused(table: DataTable, queries: object) -> None:
    query = {"structured_query": {"query": {"multi_match": {"match_queries": queries}}}}
    assert error(table.ask("query", {"k": 1, "full_text_query": query})) == (400, 13)


def test_an_index_that_a_column_cannot_have_is_refused_in_a_sentence(table: DataTable) -> None:
    answer = table.ask("create_index", {"column": "vector", "index_type": "BTREE"})
    assert error(answer) == (400, 13)
    assert answer.json()["error"].startswith("BTREE/BITMAP index column vector must be int, float")


@pytest.mark.parametrize("verb", ["create", "insert", "merge_insert?on=id"])
def test_a_body_without_data_is_said_to_be_missing(table: DataTable, verb: str) -> None:
    path = "/v1/table/nothing_here" if verb == "create" else table.path
    answer = table.http.raw.post(f"{path}/{verb}", content=b"")
    assert error(answer) == (400, 13)
    assert "The body is empty, but an Arrow stream is required" in answer.json()["error"]
