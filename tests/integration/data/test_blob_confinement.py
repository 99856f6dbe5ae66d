"""Blobs whose descriptors lead out of their table: no way of making or reading one shows a file of the server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.blob import Blob, blob_array, blob_field

from tests.integration.data.tables import DataTable, error

SECRET = b"what only the server may read"
DESCRIPTOR = pa.struct(
    [
        ("kind", pa.uint8()),
        ("position", pa.uint64()),
        ("size", pa.uint64()),
        ("blob_id", pa.uint32()),
        ("blob_uri", pa.string()),
    ]
)
BLOB = {"lance-encoding:blob": "true"}
V2 = {"ARROW:extension:name": "lance.blob.v2"}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file beside the server's own."""
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


def descriptors(*rows: dict[str, Any] | None, metadata: dict[str, str] | None = None) -> pa.Table:
    """Return plain rows of the layout that descriptors of blobs have."""
    label = pa.field("b", DESCRIPTOR, metadata={"packed": "true", **(metadata or {})})
    schema = pa.schema([pa.field("id", pa.int64()), label])
    return pa.table({"id": range(len(rows)), "b": pa.array(rows, DESCRIPTOR)}, schema=schema)


def outside(path: Path) -> dict[str, Any]:
    return {"kind": 3, "position": 0, "size": len(SECRET), "blob_id": 0, "blob_uri": path.as_uri()}


def reads(table: DataTable, column: str = "b") -> list[Any]:
    """Return the answers of all routes that read blobs, and those of queries."""
    (row_id, *_) = table.query(with_row_id=True, columns={"column_names": ["id"]})["_rowid"].to_pylist()
    return [
        table.http.raw.get(f"{table.path}/blob/{column}/{row_id}/bytes"),
        table.ask("fetch_blobs", {"column": column, "row_ids": [row_id]}),
        table.ask("query", {"k": 10}),
    ]


@pytest.mark.parametrize("change", [BLOB, {"lance-encoding:blob": "false"}, V2, {"packed": None}])
@pytest.mark.parametrize("replace", [False, True])
def test_what_says_how_values_are_stored_cannot_be_changed(
    new: DataTable, secret: Path, change: dict[str, Any], replace: bool
) -> None:
    table = new.create(descriptors(outside(secret)))
    entry = {"path": "b", "metadata": {"note": "mine", **change}, "replace": replace}
    answer = table.ask("update_field_metadata", {"updates": [entry]})
    assert error(answer) == (400, 13)
    assert "cannot be set, changed or removed" in answer.json()["error"]
    assert [error(answer) for answer in reads(table)[:2]] == [(400, 13)] * 2
    assert table.schema()["b"]["metadata"] == {"packed": "true"}


def test_other_metadata_of_a_field_is_free(new: DataTable) -> None:
    table = new.create(descriptors(None))
    for metadata, replace in (({"a": "1"}, False), ({"packed": "true", "b": "2"}, True)):
        table.do("update_field_metadata", {"updates": [{"path": "b", "metadata": metadata, "replace": replace}]})
    assert table.schema()["b"]["metadata"] == {"packed": "true", "b": "2"}


@pytest.mark.parametrize("label", [BLOB, V2])
def test_plain_data_is_not_written_as_blobs(new: DataTable, secret: Path, label: dict[str, str]) -> None:
    rows = descriptors(outside(secret), metadata=label)
    assert error(new.send("create", rows)) == (400, 20)
    table = new.create(descriptors(None))
    assert error(table.send("insert", rows, mode="overwrite")) == (400, 20)
    upload = table.do("multipart_write/create")["upload_id"]
    part = {"upload_id": upload, "upload_part_id": "a", "mode": "overwrite"}
    assert error(table.send("insert", rows, **part)) == (400, 20)
    assert error(table.send("add_columns", rows.rename_columns(["x", "y"]).schema.empty_table())) == (400, 20)
    inner = pa.schema([pa.field("id", pa.int64()), pa.field("s", pa.struct([rows.schema.field("b")]))])
    assert error(DataTable(new.http).send("create", inner.empty_table())) == (400, 20)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_are_not_followed_out_of_a_table_that_others_wrote(
    new: DataTable, write_beside: Any, secret: Path, version: str
) -> None:
    """A client with access to storage writes what it likes, and Pennon finds it there."""
    if version == "2.1":
        write_beside(new, descriptors(outside(secret)))
        lance.dataset(new.do("describe")["location"]).update_field_metadata({"b": BLOB})
    else:
        rows = pa.table(
            [pa.array([1]), blob_array([Blob.from_uri(secret.as_uri())])],
            schema=pa.schema([pa.field("id", pa.int64()), blob_field("b")]),
        )
        write_beside(new, rows, data_storage_version=version, allow_external_blob_outside_bases=True)
    for answer in [
        new.ask("fetch_blobs", {"column": "b", "row_ids": [0]}),
        new.http.raw.get(f"{new.path}/blob/b/0/bytes"),
    ]:
        assert error(answer) == (400, 13)
        assert SECRET not in answer.content


@pytest.mark.parametrize("inside", ["", "struct", "list"])
@pytest.mark.parametrize("is_labelled", [True, False])
def test_no_write_stores_the_address_of_a_blob(new: DataTable, secret: Path, inside: str, is_labelled: bool) -> None:
    def rows(number: int, values: pa.Array, field: pa.Field) -> pa.Table:
        if inside == "struct":
            values = pa.StructArray.from_arrays([values], fields=[field])
            field = pa.field("b", values.type)
        elif inside == "list":
            field = pa.field("b", pa.list_(field.with_name("item")))
            values = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), values, type=field.type)
        return pa.table([pa.array([number]), values], schema=pa.schema([pa.field("id", pa.int64()), field]))

    table = new.create(rows(0, blob_array([b"bytes"]), blob_field("b")))
    values, field = blob_array([Blob.from_uri(secret.as_uri(), position=0, size=9)]), blob_field("b")
    if not is_labelled:
        values, field = values.storage, pa.field("b", values.storage.type)
    outside = rows(0, values, field)
    upsert = {"on": "id", "when_matched_update_all": True, "when_not_matched_insert_all": True}
    upload = table.do("multipart_write/create")["upload_id"]
    for verb, options in (
        ("insert", {}),
        ("insert", {"upload_id": upload, "upload_part_id": "a"}),
        ("merge_insert", upsert),
    ):
        answer = table.send(verb, outside, **options)
        assert error(answer) == (400, 13), answer.text
        assert "external blob" in answer.json()["error"].lower()
    assert SECRET not in table.ask("query", {"k": 10}).content
    assert table.count() == 1


def test_only_one_module_reads_the_bytes_of_blobs() -> None:
    source = Path(__file__).parents[3] / "src" / "pennon"
    ways = re.compile(r"\.(take_blobs|read_blobs|read_blob_ranges)\w*\(|all_binary|blob_mode")
    found = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if ways.search(path.read_text())}
    assert found == {"tables/blobs.py"}
