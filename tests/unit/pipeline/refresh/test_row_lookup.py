"""Finding rows of a view by the rows of the source that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from pennon.pipeline.refresh import row_lookup
from pennon.pipeline.refresh.fragments import FragmentWriter, fragment_metadata
from pennon.pipeline.refresh.row_lookup import find_rows
from pennon.storage.local import LocalFileIO
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import SOURCE_ROW


@pytest.mark.parametrize("order", ["rising", "shuffled"])
@pytest.mark.parametrize("children", [1, 3])
@pytest.mark.parametrize("part", [0.7, 1.0])
def test_rows_are_found_whatever_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, children: int, part: float
) -> None:
    """Also beside deleted rows, in files of one row or that were merged, and of a source row's several rows or none."""
    random = np.random.default_rng(7)
    place = str(tmp_path / "view.lance")
    schema = pa.schema({SOURCE_ROW: pa.int64(), "value": pa.int64()})
    dataset = lance.write_dataset(schema.empty_table(), place, enable_stable_row_ids=True)
    sources = np.repeat(np.flatnonzero(random.random(4000) < part)[:2001], children)
    if order == "shuffled":
        random.shuffle(sources)
    writer = FragmentWriter(Snapshot(place, {}, "", dataset.version), schema.names, "refresh-test", 1000)
    writer.write(pa.record_batch({SOURCE_ROW: sources, "value": np.arange(len(sources))}))
    new = [fragment_metadata(piece) for piece in writer.close()]
    lance.LanceDataset.commit(place, lance.LanceOperation.Append(new), read_version=dataset.version)
    lance.dataset(place).delete("value % 7 = 3")
    dataset = lance.dataset(place)
    wanted = np.sort(random.choice(4100, 60, replace=False)).astype(np.int64)
    folder = LocalFileIO(place)
    scans: list[bool] = []
    plain = row_lookup.scan_rows

    def scan(*given: Any) -> Any:
        scans.append(True)
        return plain(*given)

    monkeypatch.setattr(row_lookup, "scan_rows", scan)

    def check() -> None:
        opened = lance.dataset(place)
        found = [
            ((fragment_id << 32) + int(offset), int(source))
            for fragment_id, offsets, ids in find_rows(opened, wanted, folder, {})
            for offset, source in zip(offsets, ids, strict=True)
        ]
        rows = opened.scanner(columns=[SOURCE_ROW], with_row_address=True).to_table().to_pylist()
        chosen = set(wanted.tolist())
        assert sorted(found) == sorted((row["_rowaddr"], row[SOURCE_ROW]) for row in rows if row[SOURCE_ROW] in chosen)

    check()
    assert bool(scans) == (order == "shuffled" or children > 1 or part < 1)
    lance.dataset(place).optimize.compact_files()
    check()
