"""Descriptors of blobs are checked before anything is read where they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.blob import Blob, blob_array, blob_field
from lance_namespace.errors import InvalidInputError

from pennon.tables.blobs import open_blobs, scan_with_blobs

DESCRIPTOR = pa.struct(
    [
        ("kind", pa.uint8()),
        ("position", pa.uint64()),
        ("size", pa.uint64()),
        ("blob_id", pa.uint32()),
        ("blob_uri", pa.string()),
    ]
)
LABEL = {"lance-encoding:blob": "true"}


def labelled(folder: Path, kind: pa.DataType, value: Any, path: str, label: dict[str, str]) -> Any:
    """Return a dataset whose plain values were labelled as blobs after they were written."""
    field = pa.field("b", kind, metadata={"packed": "true"} if kind == DESCRIPTOR else None)
    rows = pa.table(
        {"id": [0, 1], "b": pa.array([None, value], kind)}, schema=pa.schema([pa.field("id", pa.int64()), field])
    )
    dataset = lance.write_dataset(rows, folder, data_storage_version="2.2", enable_stable_row_ids=True)
    dataset.update_field_metadata({path: label})
    return lance.dataset(folder)


def descriptor(**given: Any) -> dict[str, Any]:
    return {"kind": 0, "position": 0, "size": 1, "blob_id": 0, "blob_uri": "", **given}


@pytest.mark.parametrize(
    "given",
    [
        {"kind": 3, "blob_uri": "file:///etc/hostname"},
        {"kind": 3, "blob_uri": "s3://bucket/key"},
        {"kind": 3, "blob_uri": "other", "blob_id": 1},
        {"kind": 4, "blob_uri": "../../other/data/x.lance"},
        {"kind": 4, "blob_uri": "_blobs/../../x"},
        {"kind": 4, "blob_uri": "/etc/hostname"},
        {"kind": 200},
        {"size": 2**64 - 1},  # Lance would end the process
        {"size": 2**41},
        {"position": 2**64 - 1},
    ],
)
@pytest.mark.parametrize("label", [LABEL, {"lance-encoding:blob": "false"}])
def test_a_descriptor_that_leads_out_of_the_table_is_not_followed(
    tmp_path: Path, given: dict[str, Any], label: dict[str, str]
) -> None:
    dataset = labelled(tmp_path / "t", DESCRIPTOR, descriptor(**given), "b", label)
    with pytest.raises(InvalidInputError):
        open_blobs(dataset, "b", [1])
    for columns in (["b"], {"x": "b"}):
        with pytest.raises(InvalidInputError):
            scan_with_blobs(dataset, columns)
    with pytest.raises(InvalidInputError):
        scan_with_blobs(dataset, ["id"], filter="b IS NULL")
    assert scan_with_blobs(dataset, ["id"]).to_table().num_rows == 2
    assert open_blobs(dataset, "b", [0]) == [None]
    assert scan_with_blobs(dataset, ["b"], offset=0, limit=1).to_table().to_pylist() == [{"b": None}]


@pytest.mark.parametrize("inside", ["struct", "list"])
def test_nested_descriptors_are_looked_at(tmp_path: Path, inside: str) -> None:
    part = pa.field("item", DESCRIPTOR, metadata={"packed": "true"})
    row = descriptor(kind=3, blob_uri="file:///etc/hostname")
    kind, value = (pa.struct([part]), {"item": row}) if inside == "struct" else (pa.list_(part), [row])
    dataset = labelled(tmp_path / "t", kind, value, "b.item", LABEL)
    with pytest.raises(InvalidInputError):
        scan_with_blobs(dataset, ["b"])
    with pytest.raises(InvalidInputError):
        scan_with_blobs(dataset, ["b.item"])


def test_descriptors_inside_an_extension_type_are_looked_at(tmp_path: Path) -> None:
    """pyarrow shows no fields of the extension types that it knows, and Lance reads those inside all the same."""
    (tmp_path / "file").write_bytes(b"outside")
    inner = pa.StructArray.from_arrays(
        [blob_array([Blob.from_uri((tmp_path / "file").as_uri())])], fields=[blob_field("x")]
    )
    opaque = {
        "ARROW:extension:name": "arrow.opaque",
        "ARROW:extension:metadata": '{"type_name": "t", "vendor_name": "v"}',
    }
    dataset = lance.write_dataset(
        pa.table([inner], schema=pa.schema([pa.field("o", inner.type, metadata=opaque)])),
        tmp_path / "t",
        data_storage_version="2.2",
        allow_external_blob_outside_bases=True,
    )
    assert isinstance(lance.dataset(tmp_path / "t").schema.field("o").type, pa.BaseExtensionType)
    for columns in (["o"], {"y": "o"}):
        with pytest.raises(InvalidInputError, match="external"):
            scan_with_blobs(dataset, columns)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_of_the_table_are_read(tmp_path: Path, version: str) -> None:
    contents = [b"small", b"", b"x" * 100_000, None]
    label = pa.field("b", pa.large_binary(), metadata=LABEL)
    rows = pa.table({"b": pa.array(contents, pa.large_binary())}, schema=pa.schema([label]))
    dataset = lance.write_dataset(rows, tmp_path / "t", data_storage_version=version, enable_stable_row_ids=True)
    assert [file and file.readall() for file in open_blobs(dataset, "b", [0, 1, 2])] == contents[:3]
    assert scan_with_blobs(dataset, ["b"], offset=1, limit=2).to_table()["b"].to_pylist() == contents[1:3]


def test_large_blobs_of_the_table_are_read_from_their_own_files(tmp_path: Path) -> None:
    contents = [b"x" * 100_000, b"y" * 5_000_000, None, b""]
    inner = pa.StructArray.from_arrays([blob_array(contents)], fields=[blob_field("n")])
    schema = pa.schema([blob_field("b"), pa.field("s", inner.type)])
    dataset = lance.write_dataset(
        pa.table([blob_array(contents), inner], schema=schema),
        tmp_path / "t",
        data_storage_version="2.2",
        enable_stable_row_ids=True,
    )
    kinds = {row["kind"] for row in dataset.to_table()["b"].to_pylist() if row is not None}
    assert len(kinds) > 1
    assert [None if f is None else f.readall() for f in open_blobs(dataset, "b", range(4))] == contents
    read = scan_with_blobs(dataset, ["b", "s"], filter="b IS NOT NULL OR true").to_table()
    assert read["b"].to_pylist() == contents
    assert [row["n"] for row in read["s"].to_pylist()] == contents


def test_external_blobs_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"outside")
    rows = pa.table([blob_array([Blob.from_uri((tmp_path / "file").as_uri())])], schema=pa.schema([blob_field("b")]))
    dataset = lance.write_dataset(
        rows, tmp_path / "t", data_storage_version="2.2", allow_external_blob_outside_bases=True
    )
    with pytest.raises(InvalidInputError, match="external"):
        open_blobs(dataset, "b", [0])
    with pytest.raises(InvalidInputError, match="external"):
        scan_with_blobs(dataset, ["b"])
