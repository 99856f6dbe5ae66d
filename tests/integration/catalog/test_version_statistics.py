"""What is recorded with each version, whoever committed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

from pennon.catalog import versions
from tests.integration.catalog.cleanups import table_of
from tests.integration.catalog.lakes import rows

if TYPE_CHECKING:
    from pennon.catalog.versions import Statistics
    from tests.integration.catalog.lakes import Lake


def vectors(count: int, start: int = 0) -> pa.Table:
    values = np.random.default_rng(start).random((count, 8), dtype=np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 8)
    return pa.table({"number": pa.array(range(start, start + count)), "v": column})


def statistics(lake: Lake, name: str = "t", branch: str = "") -> Statistics:
    """Return what is recorded of the newest version."""
    database, table_id = lake.ns.services.database, table_of(lake, name).id
    newest = database.read(lambda connection: versions.latest(connection, table_id, branch))
    assert newest is not None
    assert newest.statistics is not None
    return newest.statistics


def test_a_clients_compaction_is_noticed_until_the_index_is_repaired(lake: Lake) -> None:
    dataset = lake.write("t", vectors(600), enable_stable_row_ids=True)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.delete("number < 300")
    found = statistics(lake)
    assert (found.rows, found.deleted_rows, found.indices, found.stale_since) == (300, 300, 1, None)
    dataset.optimize.compact_files()
    compacted = lake.latest("t")
    assert statistics(lake).stale_since == compacted
    lake.write("t", vectors(5, 900), "append")
    found = statistics(lake)
    assert (found.stale_since, found.unindexed_rows, found.small_fragments) == (compacted, 5, 2)
    lake.open("t").optimize.optimize_indices(num_indices_to_merge=1, index_names=["v_idx"])
    found = statistics(lake)
    assert (found.stale_since, found.unindexed_rows) == (None, 0)


def test_versions_of_other_writers_have_them_too(lake: Lake) -> None:
    lake.write("t", rows(3))
    lance.write_dataset(rows(4), lake.folder("t"), mode="append")
    assert lake.latest("t") == 2
    assert (statistics(lake).fragments, statistics(lake).rows) == (2, 7)
