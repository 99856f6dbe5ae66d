"""Columns: added by expressions, by fields or to be computed; altered, dropped, described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import new_name, rows


def column(table: Any, name: str, count: int = 3) -> list[Any]:
    return list(table.search().select([name]).limit(count).to_arrow()[name].to_pylist())


def test_columns_are_added_by_expressions(db: Any, table: Any) -> None:
    assert table.add_columns({"double": "id * 2", "loud": "upper(colour)"}).version == 2
    assert column(table, "double") == [0, 2, 4]
    assert column(table, "loud") == ["RED", "GREEN", "BLUE"]
    assert db.open_table(table.name).schema.names[-2:] == ["double", "loud"]


@pytest.mark.parametrize("many", [False, True])
def test_columns_are_added_empty_by_their_fields(db: Any, table: Any, many: bool) -> None:
    fields = [pa.field("a", pa.float32()), pa.field("b", pa.list_(pa.int32(), 4))]
    table.add_columns(pa.schema(fields) if many else fields[0])
    assert column(table, "a") == [None, None, None]
    schema = db.open_table(table.name).schema
    assert schema.field("a").type == pa.float32()
    if many:
        assert schema.field("b").type == pa.list_(pa.int32(), 4)


def test_a_computed_column_keeps_its_expression(db: Any, table: Any) -> None:
    table.add_columns(computed={"half": "id / 2"})
    field = db.open_table(table.name).schema.field("half")
    assert field.type == pa.int64()
    assert b"id / 2" in field.metadata.values()


def test_a_column_that_exists_is_not_added(table: Any) -> None:
    with pytest.raises(Exception, match="'colour' already exists"):
        table.add_columns({"colour": "'x'"})
    assert table.version == 1


def test_columns_are_renamed_widened_and_made_nullable(db: Any) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("x", pa.float32())])
    table = db.create_table(new_name(), pa.table({"id": [1, 2], "x": [0.5, 1.5]}, schema=schema))
    table.alter_columns({"path": "id", "rename": "key", "nullable": True}, {"path": "x", "data_type": pa.float64()})
    found = db.open_table(table.name).schema
    assert found.field("key").type == pa.int32()
    assert found.field("key").nullable
    assert found.field("x").type == pa.float64()
    assert column(table, "x", 2) == [0.5, 1.5]
    table.alter_columns({"path": "key", "data_type": pa.int64()})
    assert db.open_table(table.name).schema.field("key").type == pa.int64()


@pytest.mark.parametrize(
    ("before", "after", "value", "expected"),
    [
        (pa.int8(), pa.int16(), 5, 5),
        (pa.string(), pa.large_string(), "a", "a"),
        (pa.float32(), pa.float16(), 1.5, 1.5),
        (pa.list_(pa.float32(), 2), pa.list_(pa.float16(), 2), [1.0, 2.0], [1.0, 2.0]),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC"), 0, 0),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), 1, 1),
    ],
    ids=str,
)
def test_the_type_of_a_column_is_changed(
    db: Any, before: pa.DataType, after: pa.DataType, value: Any, expected: Any
) -> None:
    table = db.create_table(new_name(), pa.table({"x": pa.array([value, None], before)}))
    table.alter_columns({"path": "x", "data_type": after})
    assert db.open_table(table.name).schema.field("x").type == after
    assert table.search().to_arrow()["x"].combine_chunks() == pa.array([expected, None], after)


def test_columns_are_dropped(db: Any, table: Any) -> None:
    table.drop_columns(["colour", "tags"])
    assert db.open_table(table.name).schema.names == ["id", "text", "vector"]


def test_a_column_that_does_not_exist_is_named_with_the_nearest(table: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: table.drop_columns(["colur"]),
        lambda: table.alter_columns({"path": "colur", "rename": "x"}),
        lambda: table.search().select(["colur"]).to_arrow(),
        lambda: table.update(values={"colur": "x"}),
        lambda: table.search().where("colur = 'x'").to_arrow(),
        lambda: table.count_rows("colur = 'x'"),
        lambda: table.add_columns({"y": "colur || 'x'"}),
    ]
    for call in calls:
        with pytest.raises(Exception, match=r"(?i)colur") as caught:
            call()
        assert "was not found" not in str(caught.value)
    assert table.version == 1


def test_field_metadata_is_set_removed_and_replaced(db: Any, table: Any) -> None:
    def metadata() -> dict[bytes, bytes]:
        return dict(db.open_table(table.name).schema.field("colour").metadata or {})

    table.update_field_metadata({"path": "colour", "metadata": {"unit": "none", "note": "é"}})
    assert metadata() == {b"unit": b"none", b"note": "é".encode()}
    table.update_field_metadata({"path": "colour", "metadata": {"unit": None, "more": "1"}})
    assert metadata() == {b"note": "é".encode(), b"more": b"1"}
    table.update_field_metadata({"path": "colour", "metadata": {"only": "2"}, "replace": True})
    assert metadata() == {b"only": b"2"}


def test_the_asynchronous_client_changes_columns_too(run: Run) -> None:
    async def work(db: Any) -> None:
        table = await db.create_table(new_name(), rows(10))
        assert (await table.add_columns({"double": "id * 2"})).version == 2
        await table.add_columns(pa.field("empty", pa.int32()))
        assert (await table.alter_columns({"path": "double", "rename": "twice"})).version == 4
        assert (await table.drop_columns(["text"])).version == 5
        await table.update_field_metadata({"path": "twice", "metadata": {"a": "b"}})
        fresh = await db.open_table(table.name)
        schema = await fresh.schema()
        assert schema.names == ["id", "colour", "tags", "vector", "twice", "empty"]
        assert schema.field("twice").metadata == {b"a": b"b"}

    run(work)
