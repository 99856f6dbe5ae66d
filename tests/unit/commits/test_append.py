"""The manifests of appends that Pennon builds itself: the same as Lance's, or left to Lance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata, write_fragments

from pennon.commits.append import append_fragments
from pennon.commits.manifest import TRAILER, Manifest, parse_manifest, parse_message, section
from pennon.commits.manifest_messages import AppendableMessage
from pennon.storage.layout import manifest_name

ROWS = pa.table({"id": range(5), "nested": [{"x": 1, "y": "a"}] * 5})


def create(path: Path, **options: Any) -> lance.LanceDataset:
    created: lance.LanceDataset = lance.write_dataset(ROWS, path, enable_v2_manifest_paths=True, **options)
    return created


def newest(dataset: lance.LanceDataset) -> bytes:
    return Path(dataset.uri, "_versions", manifest_name(dataset.latest_version, "V2")).read_bytes()


def parts(content: bytes) -> tuple[object, ...]:
    """Return all parts of a manifest file, without what differs between any two commits."""
    position, *ending = TRAILER.unpack_from(content, len(content) - TRAILER.size)
    parsed: Any = parse_message(section(content, position, "manifest"), AppendableMessage, "manifest")
    uuid = parsed.transaction_file.partition("-")[2].removesuffix(".txn")
    transaction = section(content, parsed.transaction_section, "transaction").replace(uuid.encode(), b"")
    indices = section(content, parsed.index_section, "indices") if parsed.HasField("index_section") else None
    parsed.transaction_file = parsed.transaction_file.replace(uuid, "")
    parsed.ClearField("timestamp")
    return parsed.SerializeToString(), transaction, indices, ending


def timeless(manifest: Manifest) -> Manifest:
    return replace(manifest, timestamp_millis=0, transaction_file="")


def append_twice(dataset: lance.LanceDataset, *tables: pa.Table) -> lance.LanceDataset:
    """Append rows by Pennon and, to the same version, by Lance; compare the two, and return what Lance has made."""
    before = newest(dataset)
    fragments: list[FragmentMetadata] = []
    for rows in tables:
        fragments += write_fragments(rows, dataset, mode="append")
    made = append_fragments(before, parse_manifest(before), fragments)
    assert made is not None
    appended = lance.LanceDataset.commit(
        dataset, lance.LanceOperation.Append(fragments), read_version=dataset.latest_version
    )
    assert parts(made.content) == parts(newest(appended))
    assert timeless(made.manifest) == timeless(parse_manifest(newest(appended)))
    stored = Path(dataset.uri, "_transactions", parse_manifest(newest(appended)).transaction_file).read_bytes()
    assert len(stored) == len(made.transaction)
    return appended


CHANGES: dict[str, Callable[[lance.LanceDataset], object]] = {
    "nothing": lambda _: None,
    "rows deleted": lambda dataset: dataset.delete("id = 1"),
    "rows updated": lambda dataset: dataset.update({"id": "id + 10"}, where="id = 2"),
    "an index": lambda dataset: dataset.create_scalar_index("id", "BTREE"),
    "configuration": lambda dataset: dataset.update_config({"key": "value"}),
    "compacted": lambda dataset: dataset.optimize.compact_files(),
}


@pytest.mark.parametrize("options", [{"enable_stable_row_ids": True}, {}, {"data_storage_version": "2.1"}], ids=str)
def test_an_append_has_the_same_manifest_as_one_by_lance(tmp_path: Path, options: dict[str, Any]) -> None:
    dataset = append_twice(create(tmp_path / "t.lance", **options), ROWS)
    for change in CHANGES.values():
        change(dataset)
        dataset = append_twice(lance.dataset(dataset.uri), ROWS, ROWS.select(["id"]))


def test_appends_to_unusual_manifests_are_left_to_lance(tmp_path: Path) -> None:
    dataset = create(tmp_path / "t.lance", enable_stable_row_ids=True)
    fragments = write_fragments(ROWS, dataset, mode="append")
    content = newest(dataset)

    def is_left(content: bytes) -> bool:
        return append_fragments(content, parse_manifest(content), fragments) is None

    assert not is_left(content)
    by_another_lance = content.replace(lance.__version__.encode(), b"0" * len(lance.__version__))
    assert is_left(by_another_lance)
    dataset.update_config({"lance.auto_cleanup.interval": "10"})
    assert is_left(newest(dataset))
    emptied = create(tmp_path / "emptied.lance")
    emptied.delete("true")
    assert is_left(newest(emptied))
    cloned = dataset.shallow_clone(tmp_path / "clone.lance", reference=1)
    assert is_left(newest(cloned))
