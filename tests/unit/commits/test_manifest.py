"""Reading manifests: real ones are understood, and no bytes do harm."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.commits.manifest import READABLE_FLAGS, InvalidManifestError, parse_manifest, parse_operation
from pennon.storage.layout import manifest_name
from tests.support.manifest_edits import edit_manifest


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """A table to which many things were done; each version is one of them."""
    path = tmp_path_factory.mktemp("lake") / "t"
    dataset = lance.write_dataset(pa.table({"number": [1, 2, 3]}), path)
    dataset.insert(pa.table({"number": [4]}))
    dataset.delete("number = 2")
    dataset.update({"number": "number + 10"}, where="number = 3")
    dataset.add_columns({"twice": "number * 2"})
    dataset.create_scalar_index("number", "BTREE")
    dataset.update_config({"key": "value"})
    lance.write_dataset(pa.table({"other": ["x"]}), path, mode="overwrite")
    return dataset


def content_of(dataset: lance.LanceDataset, version: int) -> bytes:
    return Path(dataset.uri, "_versions", manifest_name(version, "V2")).read_bytes()


class TestRealManifests:
    def test_every_version_is_understood(self, dataset: lance.LanceDataset) -> None:
        for version in range(1, dataset.latest_version + 1):
            manifest = parse_manifest(content_of(dataset, version))
            opened = lance.dataset(dataset.uri, version=version)
            fragments = opened.get_fragments()
            assert manifest.version == version
            assert manifest.branch == ""
            assert manifest.fragment_ids == {fragment.fragment_id for fragment in fragments}
            files = {file.path: fragment.fragment_id for fragment in fragments for file in fragment.data_files()}
            assert manifest.data_files == files
            assert manifest.reader_flags & ~READABLE_FLAGS == 0
            timestamp = next(found["timestamp"] for found in opened.versions() if found["version"] == version)
            assert isinstance(timestamp, datetime)
            assert abs(manifest.timestamp_millis - timestamp.timestamp() * 1000) < 1000 * 60 * 60 * 24

    def test_the_operation_of_a_manifest_is_read(self, dataset: lance.LanceDataset) -> None:
        expected = ["overwrite", "append", "delete", "update", "merge", "create_index", "update_config", "overwrite"]
        operations = []
        for version in range(1, dataset.latest_version + 1):
            manifest = parse_manifest(content_of(dataset, version))
            operation = manifest.operation
            if operation is None:
                operation = parse_operation(Path(dataset.uri, "_transactions", manifest.transaction_file).read_bytes())
            operations.append(operation)
        assert operations == expected

    def test_a_branch_is_named(self, dataset: lance.LanceDataset) -> None:
        dataset.create_branch("dev/one", 2)
        path = Path(dataset.uri, "tree", "dev", "one", "_versions", manifest_name(2, "V2"))
        assert parse_manifest(path.read_bytes()).branch == "dev/one"


class TestDamage:
    def test_no_truncated_manifest_is_taken_for_one(self, dataset: lance.LanceDataset) -> None:
        content = content_of(dataset, 4)
        for length in range(len(content)):
            with pytest.raises(InvalidManifestError):
                parse_manifest(content[:length])

    def test_a_manifest_cut_at_the_front_is_an_error_or_another_manifest(self, dataset: lance.LanceDataset) -> None:
        content = content_of(dataset, 4)
        for length in range(1, len(content)):
            check(content[length:])

    @given(position=st.integers(0, 10_000), value=st.integers(0, 255))
    @settings(max_examples=500, deadline=None)
    def test_no_changed_byte_does_harm(self, dataset: lance.LanceDataset, position: int, value: int) -> None:
        content = bytearray(content_of(dataset, 3))
        content[position % len(content)] = value
        check(bytes(content))

    @given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
    def test_no_bytes_do_harm(self, content: bytes, position: int) -> None:
        check(content)
        check(content + struct.pack("<QHH4s", position, 0, 3, b"LANC"))
        check(struct.pack("<I", len(content)) + content + struct.pack("<QHH4s", 0, 0, 3, b"LANC"))

    @given(st.binary(max_size=200))
    def test_no_bytes_harm_the_reading_of_a_transaction(self, content: bytes) -> None:
        with suppress(InvalidManifestError):
            parse_operation(content)

    @pytest.mark.parametrize("content", [b"", b"\0", b"LANC", b"\0" * 19, b"x" * 1000])
    def test_the_error_says_what_is_wrong(self, content: bytes) -> None:
        with pytest.raises(InvalidManifestError, match=r"it has only|it does not end"):
            parse_manifest(content)

    def test_a_timestamp_out_of_range_is_refused(self, dataset: lance.LanceDataset) -> None:
        (position,) = struct.unpack("<Q", content_of(dataset, 1)[-16:-8])
        later = bytes([0x3A, 11, 0x08, *[0xFF] * 9, 0x01])  # its time again, in the last second that there is
        manifest = content_of(dataset, 1)[position + 4 : -16] + later
        content = struct.pack("<I", len(manifest)) + manifest + struct.pack("<QHH4s", 0, 0, 3, b"LANC")
        with pytest.raises(InvalidManifestError, match="timestamp is out of range"):
            parse_manifest(content)

    @pytest.mark.parametrize("section", ["index_section", "old_transaction_section", "transaction_section"])
    def test_a_section_that_is_cut_off_is_an_error(self, dataset: lance.LanceDataset, section: str) -> None:
        content = edit_manifest(content_of(dataset, 6), lambda manifest: setattr(manifest, section, 3))
        with pytest.raises(InvalidManifestError, match="is cut off"):
            parse_manifest(content)

    def test_the_transaction_inside_a_manifest_is_checked(self, dataset: lance.LanceDataset) -> None:
        content = bytearray(content_of(dataset, 1))
        assert parse_manifest(bytes(content)).operation == "overwrite"
        content[:4] = b"\xff\xff\xff\x7f"  # the length of the transaction, with which Lance would panic
        with pytest.raises(InvalidManifestError, match="transaction is cut off"):
            parse_manifest(bytes(content))

    def test_the_name_of_an_index_must_be_text(self, tmp_path: Path) -> None:
        dataset = lance.write_dataset(pa.table({"n": [1, 2, 3]}), tmp_path / "indexed")
        dataset.create_scalar_index("n", "BTREE", name="by_number")
        content = content_of(dataset, 2).replace(b"by_number", b"by_n\xffmber")
        with pytest.raises(InvalidManifestError, match="not valid UTF-8"):
            parse_manifest(content)

    def test_a_fragment_tree_is_refused(self, dataset: lance.LanceDataset) -> None:
        content = edit_manifest(content_of(dataset, 1), lambda manifest: setattr(manifest, "fragment_tree", b"x"))
        with pytest.raises(InvalidManifestError, match="fragment tree"):
            parse_manifest(content)

    def test_a_manifest_without_a_version_is_none(self) -> None:
        empty = struct.pack("<I", 0) + struct.pack("<QHH4s", 0, 0, 3, b"LANC")
        with pytest.raises(InvalidManifestError, match="has no version"):
            parse_manifest(empty)


def check(content: bytes) -> None:
    """Parse bytes, where nothing but a typed error may come of it."""
    with suppress(InvalidManifestError):
        parse_manifest(content)
