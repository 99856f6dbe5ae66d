"""Every Arrow type survives: created, inserted, queried, described, and while other columns change."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
import pytest

from tests.clients.remote.conftest import connect
from tests.integration.data.arrow_types import CHANGED, COLUMNS, EVERY, NAMES, RARE, name_of, table_of, wide_table
from tests.integration.data.conftest import Stored
from tests.integration.data.tables import DataTable, error, stream_of
from tests.support.server import PennonProcess


def column_of(table: pa.Table) -> pa.Array:
    return table["column"].combine_chunks()


def same(found: pa.Array, expected: pa.Array) -> bool:
    """Compare values and types; a dictionary may have its entries in another order."""
    if pa.types.is_dictionary(expected.type):
        return bool(found.type == expected.type and found.to_pylist() == expected.to_pylist())
    return bool(found.type == expected.type and found.equals(expected))


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    return bool(found.schema.equals(expected.schema) and found.to_pylist() == expected.to_pylist())


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_values_survive_over_http(new: DataTable, kind: str, compression: str | None) -> None:
    column = COLUMNS[kind]
    data = table_of(column)
    new.put("create", stream_of(data, compression))
    assert same(column_of(new.query()), column)
    new.put("insert", stream_of(data, compression))
    new.do("alter_columns", {"alterations": [{"path": "other", "data_type": {"type": "int64"}}]})
    new.do("add_columns", {"new_columns": [{"name": "more", "expression": "id + 1"}]})
    new.do("delete", {"predicate": "id = 0"})
    new.do("drop_columns", {"columns": ["other"]})
    found = column_of(new.query(filter="id > 0"))
    assert same(found, pa.concat_arrays([column[1:], column[1:]]))
    assert column_of(new.query(version=1, columns={"column_names": ["column"]})).type == column.type


@pytest.mark.parametrize("kind", COLUMNS)
def test_values_survive_through_the_remote_client(pennon_server: PennonProcess, new: DataTable, kind: str) -> None:
    column = COLUMNS[kind]
    table = connect(pennon_server.url).create_table(new.names[0], table_of(column))
    assert same(column_of(table.search().to_arrow()), column)
    table.add(table_of(column))
    assert table.count_rows() == 2 * len(column)
    assert same(column_of(table.search().limit(len(column)).to_arrow()), column)


def dataset_of(table: DataTable) -> Any:
    described = table.do("describe")
    return lance.dataset(described["location"], storage_options=described.get("storage_options"))


@pytest.mark.parametrize("kind", COLUMNS)
def test_values_are_those_that_lance_reads_from_storage(new: DataTable, kind: str) -> None:
    column = COLUMNS[kind]
    new.create(table_of(column))
    assert same(column_of(dataset_of(new).to_table()), column)


@pytest.mark.parametrize("kind", CHANGED)
def test_views_come_back_as_what_they_are_views_of(new: DataTable, kind: str) -> None:
    column, expected = CHANGED[kind]
    new.create(table_of(column))
    new.put("insert", table_of(column))
    found = column_of(new.query())
    assert found.to_pylist() == column.to_pylist() * 2
    assert found.type in {expected, column.type}


@pytest.mark.parametrize(
    ("viewed", "expected", "value"),
    [
        (pa.list_(pa.string_view()), pa.list_(pa.string()), ["a", None]),
        (pa.large_list(pa.binary_view()), pa.large_list(pa.binary()), [b"a", None]),
        (pa.list_(pa.struct([("a", pa.string_view())]), 1), pa.list_(pa.struct([("a", pa.string())]), 1), [{"a": "b"}]),
        (pa.map_(pa.string_view(), pa.binary_view()), pa.map_(pa.string(), pa.binary()), [("a", b"b")]),
        (pa.dictionary(pa.int8(), pa.string_view()), pa.dictionary(pa.int8(), pa.string()), "a"),
    ],
    ids=str,
)
def test_views_inside_of_other_types_come_back_as_what_they_are_views_of(
    new: DataTable, viewed: pa.DataType, expected: pa.DataType, value: Any
) -> None:
    # Beside a type that Arrow cannot cast to itself.
    data = table_of(pa.array([value, None], expected).cast(viewed)).append_column(
        "struct", COLUMNS["struct of structs"]
    )
    new.create(data)
    new.put("insert", data)
    found = new.query()
    assert found["column"].type == expected
    assert found.drop_columns("column").equals(pa.concat_tables([data.drop_columns("column")] * 2))
    assert found["column"].to_pylist() == data["column"].to_pylist() * 2


@pytest.mark.parametrize("kind", NAMES)
def test_types_are_described_in_the_words_of_lance(new: DataTable, kind: str) -> None:
    new.create(table_of(COLUMNS[kind]))
    assert new.schema()["column"]["type"]["type"] == NAMES[kind]


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_remote_client_reads_the_description_of_every_type(
    pennon_server: PennonProcess, new: DataTable, kind: str
) -> None:
    new.create(table_of(COLUMNS[kind]))
    schema = connect(pennon_server.url).open_table(new.names[0]).schema
    assert schema.field("column").type == COLUMNS[kind].type


def test_nested_nullability_survives(new: DataTable) -> None:
    inner = pa.field("item", pa.struct([pa.field("a", pa.int32(), nullable=False)]), nullable=False)
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("column", pa.list_(inner), nullable=False)]
    )
    data = pa.table({"id": [1], "column": [[{"a": 1}]]}, schema=schema)
    new.create(data)
    assert new.query().schema.equals(schema)
    described = new.schema()["column"]
    assert described["nullable"] is False
    assert described["type"]["fields"][0]["nullable"] is False
    assert described["type"]["fields"][0]["type"]["fields"][0]["nullable"] is False


@pytest.mark.parametrize("kind", RARE)
def test_types_that_not_every_client_knows_survive(new: DataTable, kind: str) -> None:
    column = RARE[kind]
    new.create(table_of(column))
    new.put("insert", table_of(column))
    new.do("alter_columns", {"alterations": [{"path": "other", "rename": "another"}]})
    assert new.schema()["column"]["type"]["type"]
    found = column_of(new.query())
    assert found.type == column.type
    assert found.to_pylist() == column.to_pylist() * 2


def stored(data: pa.Table) -> pa.Table:
    """Return a wide table of every kind in the types in which it comes back."""
    for kind, (_, expected) in CHANGED.items():
        data = data.set_column(
            data.schema.get_field_index(name_of(kind)), name_of(kind), data[name_of(kind)].cast(expected)
        )
    return data


def test_types_can_be_stated_for_columns_that_have_them(new: DataTable) -> None:
    data = wide_table(EVERY)
    new.create(data)
    described = {name: field["type"] for name, field in new.schema().items()}
    new.do("alter_columns", {"alterations": [{"path": name, "data_type": described[name]} for name in described]})
    assert same_rows(new.query(), stored(data))
    assert new.versions() == [1]


def test_values_survive_updates_upserts_and_cherry_picks(new: DataTable) -> None:
    data = wide_table(EVERY)
    new.create(data)
    new.do("update", {"updates": [[name, name] for name in data.column_names], "predicate": "id = 0"})
    upsert = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}
    new.put("merge_insert", data.slice(1), **upsert)
    new.do("delete", {"predicate": "id = 2"})
    new.put("merge_insert", data.slice(2), **upsert)
    new.do("delete", {"predicate": "id = 3"})
    new.do("branches/create", {"name": "dev"})
    new.put("insert", data.slice(3), branch="dev")
    assert new.do("branches/cherry_pick", {"from_branch": "dev"})["status"] == "cherryPicked"
    assert same_rows(new.query(order_by=[{"column_name": "id"}]), stored(data))


UNKNOWN: dict[str, pa.Array] = {
    "interval": pa.array([pa.MonthDayNano([1, 2, 3])]),
    "list_view": pa.array([[1]], pa.list_view(pa.int8())),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([5])),
    "decimal32": pa.array([1], pa.decimal32(5, 2)),
    "views of an extension": pa.ExtensionArray.from_storage(
        pa.json_(pa.string_view()), pa.array(["1"], pa.string_view())
    ),
    "list_view of views": pa.array([["a"]], pa.list_view(pa.string_view())),
    # Lance's encoders and decoders panic at these.
    "fixed_size_list of strings": pa.array([["a"]], pa.list_(pa.string(), 1)),
    "fixed_size_list of structs of lists": pa.array(
        [[{"a": [1]}]], pa.list_(pa.struct([("a", pa.list_(pa.int8()))]), 1)
    ),
    "list of fixed_size_lists of structs": pa.array(
        [[[{"a": 1}]]], pa.list_(pa.list_(pa.struct([("a", pa.int8())]), 1))
    ),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_types_that_lance_does_not_know_are_refused(new: DataTable, kind: str) -> None:
    answer = new.send("create", table_of(UNKNOWN[kind]))
    assert error(answer) == (400, 20)
    assert "type" in answer.json()["error"] or "views" in answer.json()["error"]
    assert error(new.ask("describe")) == (404, 4)
    new.create(table_of(COLUMNS["int32"]))
    assert error(new.send("insert", table_of(UNKNOWN[kind]))) == (400, 20)
    assert new.versions() == [1]


def test_a_column_does_not_become_what_lance_cannot_store(new: DataTable) -> None:
    new.create(pa.table({"id": [1], "list": [["a"]]}))
    fixed = {"type": "fixed_size_list", "length": 1, "fields": [{"name": "item", "type": {"type": "string"}}]}
    assert error(new.ask("alter_columns", {"alterations": [{"path": "list", "data_type": fixed}]})) == (400, 20)
    added = {"name": "more", "expression": "arrow_cast(['a'], 'FixedSizeList(1, Utf8)')"}
    assert error(new.ask("add_columns", {"new_columns": [added]})) == (400, 20)
    assert new.query().to_pylist() == [{"id": 1, "list": ["a"]}]


#: In the data file, in a file with others, and in one of its own.
CONTENTS = [b"\x00\xff", b"a" * 100_000, b"b" * 5_000_000, b"", None]


def blobs() -> pa.Table:
    blob = pa.field("column", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob, pa.field("other", pa.int32())])
    return pa.table({"id": range(5), "column": CONTENTS, "other": [1] * 5}, schema=schema)


def contents_of(table: DataTable, column: str) -> list[bytes | None]:
    dataset = dataset_of(table)
    files = dataset.take_blobs(column, indices=list(range(dataset.count_rows())))
    return [None if file is None else file.readall() for file in files]


def test_blobs_survive_beside_other_columns(new: DataTable) -> None:
    new.create(blobs())
    new.put("insert", blobs())
    assert contents_of(new, "column") == CONTENTS * 2
    new.do("add_columns", {"new_columns": [{"name": "more", "expression": "id + 1"}]})
    new.do("alter_columns", {"alterations": [{"path": "column", "rename": "renamed"}]})
    assert new.ids(columns={"column_names": ["id", "renamed"]}, filter="id = 2") == [2, 2]
    assert contents_of(new, "renamed") == CONTENTS * 2
    new.put("insert", blobs(), mode="overwrite")
    assert contents_of(new, "column") == CONTENTS


def test_blobs_of_parts_that_are_replaced_or_given_up_leave_nothing(new: DataTable, stored: Stored) -> None:
    new.create(blobs())
    files = stored(new)
    upload = {"upload_id": new.do("multipart_write/create")["upload_id"]}
    for _ in range(2):
        new.put("insert", blobs(), **upload, upload_part_id="a")
    assert len(stored(new) - files) == len(files)
    new.do("multipart_write/abort", **upload)
    assert stored(new) == files
