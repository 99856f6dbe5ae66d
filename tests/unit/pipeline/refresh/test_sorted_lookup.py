"""Finding rows of a view by the rows of the source that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.pipeline.refresh import sorted_lookup
from pennon.pipeline.refresh.fragments import FragmentWriter
from pennon.pipeline.refresh.sorted_lookup import locate, lower_bounds
from pennon.storage.local import LocalFileIO
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import SOURCE_ROW


@given(
    st.lists(st.integers(0, 10_000), min_size=2, max_size=200).map(sorted),
    st.lists(st.integers(-5, 10_005), max_size=50).map(sorted),
)
def test_places_are_those_of_a_search_by_halves(values: list[int], wanted: list[int]) -> None:
    array, numbers = np.array(values, dtype=np.int64), np.array(wanted, dtype=np.int64)
    found = lower_bounds(lambda places: array[places], len(array), numbers)
    assert found.tolist() == np.searchsorted(array, numbers, side="left").tolist()


@given(
    st.sets(st.integers(0, 300), min_size=1).map(sorted),
    st.lists(st.integers(-5, 305), max_size=50).map(sorted),
)
def test_places_of_distinct_values_are_the_same(values: list[int], wanted: list[int]) -> None:
    array, numbers = np.array(values, dtype=np.int64), np.array(wanted, dtype=np.int64)
    found = lower_bounds(lambda places: array[places], len(array), numbers, distinct=True)
    assert found.tolist() == np.searchsorted(array, numbers, side="left").tolist()


def test_distinct_values_without_a_gap_need_no_look() -> None:
    looks: list[int] = []
    array = np.concatenate([np.arange(1000), np.arange(1001, 2001)])

    def values_at(places: Any) -> Any:
        looks.extend(places.tolist())
        return array[places]

    wanted = np.array([0, 3, 999, 1000, 1001, 1500])
    assert lower_bounds(values_at, len(array), wanted, distinct=True).tolist() == [0, 3, 999, 1000, 1000, 1499]
    assert len(looks) < 30


def test_even_values_are_found_with_few_looks() -> None:
    looks = 0
    array = np.arange(0, 3_000_000, 3, dtype=np.int64)
    array = np.delete(array, slice(0, None, 997))

    def values_at(places: Any) -> Any:
        nonlocal looks
        looks += 1
        return array[places]

    wanted = np.sort(np.random.default_rng(1).choice(array, 500, replace=False))
    assert array[lower_bounds(values_at, len(array), wanted)].tolist() == wanted.tolist()
    assert looks < 20


@pytest.mark.parametrize("order", ["rising", "shuffled"])
@pytest.mark.parametrize("children", [1, 3])
@pytest.mark.parametrize(("part", "sparse"), [(0.7, 1), (0.7, 1024), (1.0, 1)])
def test_rows_are_found_whatever_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, children: int, part: float, sparse: int
) -> None:
    """Also beside deleted rows, in files of one row or that were merged, and of a source row's several rows or none."""
    monkeypatch.setattr(sorted_lookup, "_SPARSE", sparse)
    random = np.random.default_rng(7)
    place = str(tmp_path / "view.lance")
    schema = pa.schema({SOURCE_ROW: pa.int64(), "value": pa.int64()})
    dataset = lance.write_dataset(schema.empty_table(), place, enable_stable_row_ids=True)
    sources = np.repeat(np.flatnonzero(random.random(4000) < part)[:2001], children)
    if order == "shuffled":
        random.shuffle(sources)
    writer = FragmentWriter(Snapshot(place, {}, "", dataset.version), schema.names, "refresh-test", 1000)
    writer.write(pa.record_batch({SOURCE_ROW: sources, "value": np.arange(len(sources))}))
    new = [piece.metadata() for piece in writer.close()]
    lance.LanceDataset.commit(place, lance.LanceOperation.Append(new), read_version=dataset.version)
    lance.dataset(place).delete("value % 7 = 3")
    dataset = lance.dataset(place)
    wanted = np.sort(random.choice(4100, 60, replace=False)).astype(np.int64)
    folder = LocalFileIO(place)
    scans: list[bool] = []
    plain = sorted_lookup._scan

    def scan(*given: Any) -> Any:
        scans.append(True)
        return plain(*given)

    monkeypatch.setattr(sorted_lookup, "_scan", scan)

    def check() -> None:
        opened = lance.dataset(place)
        found = [
            ((fragment_id << 32) + int(offset), int(source))
            for fragment_id, offsets, ids in locate(opened, wanted, folder, {})
            for offset, source in zip(offsets, ids, strict=True)
        ]
        rows = opened.scanner(columns=[SOURCE_ROW], with_row_address=True).to_table().to_pylist()
        chosen = set(wanted.tolist())
        assert sorted(found) == sorted((row["_rowaddr"], row[SOURCE_ROW]) for row in rows if row[SOURCE_ROW] in chosen)

    check()
    assert bool(scans) == (order == "shuffled")
    lance.dataset(place).optimize.compact_files()
    check()
