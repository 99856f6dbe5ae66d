"""What is kept in memory of tables that were read: one session for all of them, within the limits of the settings."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import lance_namespace as ln
import pyarrow as pa

from pennon.namespace import PennonNamespace
from tests.integration.data.tables import rows, stream_of

LIMIT = 50_000


def kept_after_reading(directory: Path, **settings: Any) -> int:
    """Return how many bytes are kept once two tables were searched by their indices."""
    with closing(PennonNamespace(directory=directory, **settings)) as namespace:
        for name in ("one", "two"):
            namespace.create_table(ln.CreateTableRequest(id=[name]), stream_of(rows(20_000)))
            namespace.create_table_index(ln.CreateTableIndexRequest(id=[name], column="id", index_type="BTREE"))
            namespace.indices.prewarm_table_index(namespace.find_table((name,)), "id_idx")
            for number in range(0, 20_000, 2000):
                answer = namespace.queries.run_query((name,), {"k": 1, "filter": f"id = {number}"})
                assert pa.Table.from_batches(answer.reader)["id"].to_pylist() == [number]
        return int(namespace.services.datasets.session.size_bytes())


def test_what_is_kept_of_tables_stays_within_the_settings(tmp_path: Path) -> None:
    assert kept_after_reading(tmp_path / "as usual") > 4 * LIMIT
    assert kept_after_reading(tmp_path / "bounded", index_cache_bytes=LIMIT, metadata_cache_bytes=LIMIT) <= 2 * LIMIT
