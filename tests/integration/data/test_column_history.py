"""What is known of columns that were written in place: by the records of the authority, or by the files of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest

from pennon.catalog import column_writes
from pennon.columns.plan import summarize_column
from pennon.commits.column_writes import ColumnWrite
from pennon.namespace import PennonNamespace
from tests.integration.data.tables import stream_of
from tests.integration.data.test_remade_tables import COLUMN, fill

ROWS = pa.table({"id": range(10), "a": range(10)})


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[PennonNamespace]:
    with closing(PennonNamespace(directory=tmp_path)) as opened:
        yield opened


def write_in_place(location: str) -> None:
    """Write a column of the first fragment; Lance marks no row and names no field."""
    dataset = lance.dataset(location)
    changed = pa.table({"id": [2], "a": [100]})
    metadata, _ = dataset.get_fragments()[0].update_columns(changed, left_on="id", right_on="id")
    operation = lance.LanceOperation.Update(updated_fragments=[metadata])
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def found(namespace: PennonNamespace, name: str, since: int, until: int) -> list[tuple[int, dict[int, Any], bool]]:
    table = namespace.find_table((name,))
    writes = namespace.services.history.column_writes(table, "", since, until)
    return [(write.version, dict(write.fields), write.is_unknown) for write in writes]


def make(namespace: PennonNamespace, folder: Path, *, managed: bool) -> str:
    """Make a table of two fragments, by the server or by a client on the folder."""
    if managed:
        namespace.create_table(ln.CreateTableRequest(id=["t"]), stream_of(ROWS))
    else:
        lance.write_dataset(ROWS, folder / "t.lance", enable_stable_row_ids=True)
    location = namespace.find_table(("t",)).location.removeprefix("file://")
    lance.write_dataset(ROWS, location, mode="append")
    return location


@pytest.mark.parametrize("managed", [True, False], ids=["managed", "discovered"])
def test_columns_that_a_client_wrote_on_the_folder_are_known(
    namespace: PennonNamespace, tmp_path: Path, managed: bool
) -> None:
    location = make(namespace, tmp_path, managed=managed)
    write_in_place(location)  # version 3
    lance.dataset(location).optimize.compact_files()
    newest = lance.dataset(location).version
    write_in_place(location)
    last = newest + 1
    assert namespace.services.datasets.newest(namespace.find_table(("t",)), "").version == last
    fragment = lance.dataset(location).get_fragments()[0].fragment_id
    both = [(3, {0: {1}}, False), (last, {fragment: {1}}, False)]
    assert found(namespace, "t", 2, last) == both
    assert found(namespace, "t", 2, newest) == both[:1]
    assert found(namespace, "t", 3, last) == both[1:]
    assert found(namespace, "t", last, last) == []


@pytest.mark.parametrize("managed", [True, False], ids=["managed", "discovered"])
def test_unrecorded_versions_count_as_writes_of_all_columns(
    namespace: PennonNamespace, tmp_path: Path, managed: bool
) -> None:
    location = make(namespace, tmp_path, managed=managed)
    table = namespace.find_table(("t",))
    assert namespace.services.datasets.newest(table, "").version == 2
    write_in_place(location)
    write_in_place(location)
    lance.dataset(location).cleanup_old_versions(timedelta(0), delete_unverified=False)
    assert namespace.services.datasets.newest(table, "").version == 4
    assert found(namespace, "t", 2, 4)[-1] == (4, {}, True)
    assert found(namespace, "t", 4, 4) == []


def test_what_was_written_before_the_oldest_record_is_not_known(namespace: PennonNamespace, tmp_path: Path) -> None:
    make(namespace, tmp_path, managed=True)
    table = namespace.find_table(("t",))
    state = ColumnWrite(0, marks_rows=False, fields={0: frozenset({1})}).encode()

    def save(connection: Any) -> None:
        for version in range(5, 5 + column_writes.MAX_RECORDS):
            column_writes.save(connection, table.id, "", version, state)

    namespace.services.database.write(save)
    assert found(namespace, "t", 2, 6) == [(5, {}, True), (5, {0: {1}}, False), (6, {0: {1}}, False)]
    assert found(namespace, "t", 2, 4) == [(5, {}, True)]  # as for a branch that began there
    assert found(namespace, "t", 5, 6) == [(6, {0: {1}}, False)]


def test_the_versions_of_a_discovered_table_that_are_compared_are_bounded(
    namespace: PennonNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_writes, "MAX_RECORDS", 2)
    location = make(namespace, tmp_path, managed=False)
    for _ in range(3):
        write_in_place(location)
    assert found(namespace, "t", 1, 5) == [(3, {}, True), (4, {0: {1}}, False), (5, {0: {1}}, False)]
    assert found(namespace, "t", 3, 5) == [(4, {0: {1}}, False), (5, {0: {1}}, False)]


@pytest.mark.parametrize("before", [2, 3], ids=["in two fragments", "after a compaction"])
def test_values_of_a_discovered_table_are_stale_after_their_input_was_written_in_place(
    namespace: PennonNamespace, tmp_path: Path, before: int
) -> None:
    """Also after a compaction has moved the rows, and replaced the files that showed it."""
    rows = pa.table({"a": range(5), "id": range(5)})  # the input is the first field of the two that COLUMN names
    lance.write_dataset(rows, tmp_path / "t.lance", enable_stable_row_ids=True)
    lance.write_dataset(rows, tmp_path / "t.lance", mode="append")
    fill(namespace)
    location = str(tmp_path / "t.lance")
    if before == 3:
        lance.dataset(location).optimize.compact_files()
    write_in_place(location)
    lance.write_dataset(rows, location, mode="append")
    lance.dataset(location).optimize.compact_files()
    services, table = namespace.services, namespace.find_table(("t",))
    dataset = services.datasets.at(table, "", None)
    found = summarize_column(dataset, services.column_state_store.read(dataset, table, "", COLUMN), COLUMN)
    assert (found.computed, found.stale, found.missing) == ((5, 5, 5) if before == 2 else (0, 10, 5))
