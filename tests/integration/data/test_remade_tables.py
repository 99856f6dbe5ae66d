"""What was recorded of a column of a table that LanceDB drops on the folder does not hold for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from pennon.catalog import column_states
from pennon.catalog.column_states import ColumnStateRecord
from pennon.columns.feature_columns import ColumnOutput, FeatureColumn
from pennon.columns.file_signatures import signature
from pennon.columns.plan import summarize_column
from pennon.columns.row_states import RowStates, Segment
from pennon.namespace import PennonNamespace

OUTPUT = ColumnOutput("a", "key", pa.int64(), "", frozenset({1}))
COLUMN = FeatureColumn("a", (OUTPUT,), ("id",), frozenset({0}), "f", "f", "1")


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[PennonNamespace]:
    with closing(PennonNamespace(directory=tmp_path)) as opened:
        yield opened


def make(folder: Path) -> Any:
    """Create the table again, with two fragments in two versions."""
    db = lancedb.connect(folder)
    if "t" in db.list_tables().tables:
        db.drop_table("t")
    rows = pa.table({"id": range(5), "a": range(5)})
    table = db.create_table("t", rows, storage_options={"new_table_enable_stable_row_ids": "true"})
    table.add(rows)
    return table


def fill(namespace: PennonNamespace) -> None:
    """Record that the column was computed with the newest version."""
    services, table = namespace.services, namespace.find_table(("t",))
    dataset = services.datasets.at(table, "", None)
    tag = services.column_state_store.manifest_tag(table, "", dataset.version)
    for number, fragment in enumerate(dataset.get_fragments()):
        segment = Segment("f", 1, dataset.version, ((0, 5),))
        state = RowStates((segment,), ((5 * number, 5),), manifest=tag).encode()
        known = signature(fragment.metadata, COLUMN, OUTPUT)
        record = ColumnStateRecord(table.id, "key", known, "", fragment.fragment_id, dataset.version, state)
        services.database.write(lambda connection, record=record: column_states.save(connection, record))  # type: ignore[misc]


def computed(namespace: PennonNamespace) -> int:
    services, table = namespace.services, namespace.find_table(("t",))
    dataset = services.datasets.at(table, "", None)
    return summarize_column(dataset, services.column_state_store.read(dataset, table, "", COLUMN), COLUMN).computed


def test_records_hold_for_the_table_they_were_made_of(namespace: PennonNamespace, tmp_path: Path) -> None:
    table = make(tmp_path)
    fill(namespace)
    assert computed(namespace) == 10
    table.to_lance().optimize.compact_files()
    assert computed(namespace) == 10

    make(tmp_path)
    assert computed(namespace) == 0
