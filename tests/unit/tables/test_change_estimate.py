"""How many rows changed, as far as manifests tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from pennon.tables.change_estimate import estimate_changed_rows


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    return lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "t.lance", enable_stable_row_ids=True)


def touched(dataset: Any, since: int) -> int:
    return estimate_changed_rows(lance.dataset(dataset.uri, version=since), lance.dataset(dataset.uri))


def test_rows_that_come_go_and_change_count(dataset: Any) -> None:
    lance.write_dataset(pa.table({"a": range(4)}), dataset.uri, mode="append")
    assert touched(dataset, 1) == 4
    lance.dataset(dataset.uri).delete("a = 9")
    assert touched(dataset, 2) == 1
    lance.dataset(dataset.uri).update({"a": "0"}, where="a = 8")
    assert touched(dataset, 3) == 2  # deleted here, written there
    assert touched(dataset, 1) == 7


def test_what_leaves_the_rows_alone_does_not_count(dataset: Any) -> None:
    dataset.create_scalar_index("a", "BTREE")
    dataset.update_config({"x": "y"})
    assert dataset.version > 1
    assert touched(dataset, 1) == 0


def test_other_files_count_whole(dataset: Any) -> None:
    dataset.add_columns({"b": "a + 1"})
    assert touched(dataset, 1) == 10
    lance.write_dataset(pa.table({"a": range(3)}), dataset.uri, mode="overwrite")
    assert touched(dataset, 2) == 10
