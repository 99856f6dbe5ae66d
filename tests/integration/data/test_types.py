"""Every Arrow type survives: created, inserted, queried, described, and while other columns change."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from tests.clients.remote.conftest import connect
from tests.integration.data.arrow_types import CHANGED, COLUMNS, NAMES, table_of
from tests.integration.data.tables import DataTable, error, stream_of
from tests.support.server import PennonProcess


def column_of(table: pa.Table) -> pa.Array:
    return table["column"].combine_chunks()


def same(found: pa.Array, expected: pa.Array) -> bool:
    """Compare values and types; a dictionary may have its entries in another order."""
    if pa.types.is_dictionary(expected.type):
        return bool(found.type == expected.type and found.to_pylist() == expected.to_pylist())
    return bool(found.type == expected.type and found.equals(expected))


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


@pytest.mark.parametrize("kind", COLUMNS)
def test_values_are_those_that_lance_reads_from_storage(new: DataTable, kind: str) -> None:
    column = COLUMNS[kind]
    new.create(table_of(column))
    stored = lance.dataset(new.do("describe")["location"])
    assert same(column_of(stored.to_table()), column)


@pytest.mark.parametrize("kind", CHANGED)
def test_views_come_back_as_what_they_are_views_of(new: DataTable, kind: str) -> None:
    column, expected = CHANGED[kind]
    new.create(table_of(column))
    new.put("insert", table_of(column))
    found = column_of(new.query())
    assert found.to_pylist() == column.to_pylist() * 2
    assert found.type in {expected, column.type}


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


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int32())),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
        # Stored as parsed, so the spaces between its parts are not kept.
        pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a":1}', None], pa.string())),
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())),
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.array([[1.0, 2.0, 3.0, 4.0]], pa.list_(pa.float32(), 4))
        ),
    ],
    ids=["map", "uuid", "json", "bool8", "tensor"],
)
def test_types_that_not_every_client_knows_survive(new: DataTable, column: pa.Array) -> None:
    new.create(table_of(column))
    new.put("insert", table_of(column))
    new.do("alter_columns", {"alterations": [{"path": "other", "rename": "another"}]})
    assert new.schema()["column"]["type"]["type"]
    found = column_of(new.query())
    assert found.type == column.type
    assert found.to_pylist() == column.to_pylist() * 2


UNKNOWN: dict[str, pa.Array] = {
    "interval": pa.array([pa.MonthDayNano([1, 2, 3])]),
    "list_view": pa.array([[1]], pa.list_view(pa.int8())),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([5])),
    "decimal32": pa.array([1], pa.decimal32(5, 2)),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_types_that_lance_does_not_know_are_refused(new: DataTable, kind: str) -> None:
    answer = new.send("create", table_of(UNKNOWN[kind]))
    assert error(answer) == (400, 20)
    assert "data type" in answer.json()["error"]
    assert error(new.ask("describe")) == (404, 4)
    new.create(table_of(COLUMNS["int32"]))
    assert error(new.send("insert", table_of(UNKNOWN[kind]))) == (400, 20)
    assert new.versions() == [1]


def test_blobs_are_stored_apart_and_read_as_descriptions_or_bytes(new: DataTable) -> None:
    blob = pa.field("column", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    contents = [b"a" * 100_000, b"", b"\x00\xff"]
    data = pa.table({"id": [0, 1, 2], "column": contents}, schema=schema)
    new.create(data)
    new.put("insert", data)
    assert new.count() == 6
    new.do("add_columns", {"new_columns": [{"name": "more", "expression": "id + 1"}]})
    assert new.ids(columns={"column_names": ["id"]}, filter="id = 2") == [2, 2]
    dataset = lance.dataset(new.do("describe")["location"])
    files = dataset.take_blobs("column", indices=[0, 1, 2, 3, 4, 5])
    assert [file.readall() for file in files] == contents * 2
