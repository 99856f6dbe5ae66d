"""Statistics of versions, compared with what Lance says of real tables."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from pennon.commits.fragment_bitmap import parse_fragment_bitmap
from pennon.commits.manifest import Manifest, parse_manifest
from pennon.commits.manifest_messages import Fragments, IndexMessage
from pennon.commits.statistics import measure_fragments, stale_since
from pennon.storage.layout import manifest_name


def rows(count: int, start: int = 0) -> pa.Table:
    values = np.random.default_rng(start).random((count, 8), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 8)
    return pa.table({"id": pa.array(range(start, start + count)), "v": vectors})


def manifest_of(path: Path, version: int) -> Manifest:
    return parse_manifest((path / "_versions" / manifest_name(version, "V2")).read_bytes())


def test_they_are_what_lance_says(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(600), path, enable_stable_row_ids=True)
    dataset = lance.write_dataset(rows(300, 600), path, mode="append")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.create_scalar_index("id", "BTREE")
    dataset = lance.write_dataset(rows(40, 900), path, mode="append")
    dataset.delete("id < 50 OR id >= 930")
    found = manifest_of(path, dataset.version).statistics
    fragments = dataset.get_fragments()
    assert (found.fragments, found.small_fragments, found.indices) == (3, 3, 2)
    assert (found.rows, found.deleted_rows) == (dataset.count_rows(), 60)
    stats = dataset.stats.index_stats("v_idx")
    assert found.unindexed_rows == stats["num_unindexed_rows"] == 30
    sizes = [Path(path / "data" / file.path).stat().st_size for one in fragments for file in one.data_files()]
    assert found.data_bytes == sum(sizes)
    dataset.optimize.optimize_indices()
    assert manifest_of(path, lance.dataset(path).version).statistics.unindexed_rows == 0


def test_lances_own_cleanup_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(3), path)
    dataset.update_config({"lance.auto_cleanup.interval": "2", "other": "x"})
    manifest = manifest_of(path, 2)
    assert manifest.statistics.has_auto_cleanup
    assert manifest.auto_cleanup == {"lance.auto_cleanup.interval": "2"}
    assert not manifest_of(path, 1).statistics.has_auto_cleanup


@pytest.mark.parametrize(("stable", "expected"), [(True, 5), (False, None)])
def test_a_compaction_that_leaves_stale_entries_is_found(tmp_path: Path, *, stable: bool, expected: int | None) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(600), path, enable_stable_row_ids=stable)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.delete("id < 300")
    dataset.optimize.compact_files()
    before, after = manifest_of(path, dataset.version - 1), manifest_of(path, dataset.version)
    assert stale_since(after, before, None, after.operation) == expected
    if not stable:
        return
    statistics = dataset.stats.index_stats("v_idx")
    entries = sum(part["size"] for index in statistics["indices"] for part in index["partitions"])
    assert entries > statistics["num_indexed_rows"]
    lance.write_dataset(rows(5, 900), path, mode="append")
    appended = manifest_of(path, dataset.version + 1)
    assert stale_since(appended, after, 5, appended.operation) == 5
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=1, index_names=["v_idx"])
    folded = manifest_of(path, dataset.version + 2)
    assert stale_since(folded, appended, 5, folded.operation) is None


def test_every_kind_of_container_is_read() -> None:
    plain = struct.pack("<IIHHHHIIHH", 12346, 2, 0, 1, 3, 0, 16, 20, 5, 9) + struct.pack("<H", 7)
    assert parse_fragment_bitmap(plain) == frozenset({5, 9, 3 * 65536 + 7})
    runs = struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 100, 9)
    assert parse_fragment_bitmap(runs) == frozenset(range(100, 110))
    words = bytearray(8192)
    for number in range(0, 65536, 8):
        words[number // 8] = 1
    dense = struct.pack("<IIHHI", 12346, 1, 0, 8191, 16) + bytes(words)
    assert parse_fragment_bitmap(dense) == frozenset(range(0, 65536, 8))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 20,
        struct.pack("<II", 12346, 5),
        struct.pack("<I", 12347 | 0xFFFF << 16) + b"\xff" * (8192 + 4 * 65536),
        struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 100, 60000),
    ],
)
def test_a_bitmap_that_is_invalid_or_too_large_is_unknown(content: bytes) -> None:
    assert parse_fragment_bitmap(content) is None


def full_bitmap(first: int) -> bytes:
    """Return a bitmap of 61 bytes with 2^18 fragments."""
    sizes = b"".join(struct.pack("<HH", first + number, 65535) for number in range(4))
    runs = struct.pack("<HHH", 1, 0, 65535) * 4
    return struct.pack("<IB", 12347 | 3 << 16, 15) + sizes + bytes(16) + runs


def index_of(name: str, bitmap: bytes) -> Any:
    section: Any = IndexMessage()
    index = section.indices.add(name=name)
    index.fragment_bitmap = bitmap
    return index


def test_bitmaps_take_bounded_memory() -> None:
    fragments = Fragments([2**31], [7], [[]], {})
    indices = [index_of(f"i{number}", full_bitmap(number)) for number in range(200)]
    assert measure_fragments(fragments, indices, {}).unindexed_rows == 7
    cache: Any = parse_fragment_bitmap.cache
    assert 0 < cache.currsize <= cache.maxsize
    assert cache.get(full_bitmap(100)) is None


def test_indices_and_fragments_are_compared_a_bounded_number_of_times() -> None:
    count = 5000
    fragments = Fragments(range(count), [1] * count, [[]] * count, {})
    one = [index_of("i", struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 3))]
    assert measure_fragments(fragments, one, {}).unindexed_rows == count - 1
    many = [index_of(f"i{number}", struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, number)) for number in range(count)]
    assert measure_fragments(fragments, many, {}).unindexed_rows == 0  # unknown
