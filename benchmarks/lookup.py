"""Measure three ways to find the rows of a view by their source rows: by subtraction, by a scan, by a BTREE index.

A view of one row for each source row is written as a refresh writes it, and a hundredth of it is appended, as the next
refresh would do. Each way then finds the same rows, in turn, and the results are compared. What Lance needs to bring
the index up to date after the append is shown beside it. Ratios are those to the scan. Nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

from pennon.pipeline.refresh import row_lookup
from pennon.pipeline.refresh.fragments import FragmentWriter, fragment_metadata
from pennon.storage.local import LocalFileIO
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import SOURCE_ROW

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.views.refresh.changes import Ids

_SCHEMA = pa.schema({SOURCE_ROW: pa.int64(), "value": pa.float64()})
_FILE_ROWS = 1024 * 1024


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--lookups", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def append(path: str, start: int, stop: int) -> lance.LanceDataset:
    """Append one row for each source row of a range, as a refresh does."""
    dataset = lance.dataset(path)
    writer = FragmentWriter(Snapshot(path, {}, "", dataset.version), _SCHEMA.names, "refresh-benchmark", _FILE_ROWS)
    for first in range(start, stop, _FILE_ROWS):
        sources = np.arange(first, min(first + _FILE_ROWS, stop), dtype=np.int64)
        writer.write(pa.record_batch({SOURCE_ROW: sources, "value": np.sqrt(sources)}))
    operation = lance.LanceOperation.Append([fragment_metadata(piece) for piece in writer.close()])
    return lance.LanceDataset.commit(path, operation, read_version=dataset.version)


def ways(dataset: lance.LanceDataset, wanted: Ids, folder: LocalFileIO) -> dict[str, Callable[[], int]]:
    """Return the ways to find rows; each returns how many it found."""
    condition = f"{SOURCE_ROW} IN ({','.join(map(str, wanted.tolist()))})"
    return {
        "scan": lambda: sum(len(found[1]) for found in row_lookup.scan_rows(dataset, dataset.get_fragments(), wanted)),
        "subtraction": lambda: sum(len(found[1]) for found in row_lookup.find_rows(dataset, wanted, folder, {})),
        "btree": lambda: dataset.scanner(columns=[], filter=condition, with_row_address=True).to_table().num_rows,
    }


def main() -> None:
    """Measure and print a table."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="pennon-benchmark-") as root:
        path = str(Path(root) / "view.lance")
        lance.write_dataset(_SCHEMA.empty_table(), path)
        append(path, 0, given.rows).create_scalar_index(SOURCE_ROW, "BTREE")
        dataset = append(path, given.rows, given.rows + given.rows // 100)
        began = time.perf_counter()
        dataset.optimize.optimize_indices()
        upkeep = time.perf_counter() - began
        dataset = lance.dataset(path)
        wanted = np.sort(np.random.default_rng(0).choice(given.rows, given.lookups, replace=False)).astype(np.int64)
        seconds: dict[str, list[float]] = {}
        for _ in range(given.rounds):
            for name, find in ways(dataset, wanted, LocalFileIO(path)).items():
                began = time.perf_counter()
                found = find()
                seconds.setdefault(name, []).append(time.perf_counter() - began)
                if found != len(wanted):
                    raise SystemExit(f"{name} found {found} rows of {len(wanted)}")
    scan = median(seconds["scan"])
    for name, taken in seconds.items():
        extra = f", and {upkeep / scan:.1f} for its upkeep" if name == "btree" else ""
        print(f"{name:12} {median(taken) / scan:5.2f} of a scan{extra}")


if __name__ == "__main__":
    main()
