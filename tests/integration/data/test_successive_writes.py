"""A write starts from the newest version, although the server keeps the dataset of its own last one."""

from __future__ import annotations

import lance
import lance_namespace
import pytest

from tests.integration.data.tables import DataTable, error, rows

UPSERT = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}


def test_an_upsert_starts_from_a_version_that_a_client_committed(table: DataTable) -> None:
    table.put("merge_insert", rows(100, 110), **UPSERT)
    client = lance_namespace.connect("rest", {"uri": str(table.http.raw.base_url).rstrip("/")})
    lance.write_dataset(rows(110, 120), namespace_client=client, table_id=table.names, mode="append")
    merged = table.put("merge_insert", rows(115, 130), **UPSERT)
    assert (merged["num_updated_rows"], merged["num_inserted_rows"]) == (5, 10)
    assert sorted(table.ids()) == list(range(130))


def test_an_upsert_builds_on_appends_in_between(table: DataTable) -> None:
    for first in (100, 120, 140):
        table.put("merge_insert", rows(first, first + 10), **UPSERT)
        table.put("insert", rows(first + 10, first + 20))
    assert sorted(table.ids()) == list(range(160))


def test_an_upsert_succeeds_after_one_that_failed(table: DataTable) -> None:
    table.put("merge_insert", rows(100, 110), **UPSERT)
    assert error(table.send("merge_insert", rows(5), **{**UPSERT, "on": "nothing"})) == (404, 12)
    table.put("merge_insert", rows(110, 120), **UPSERT)
    assert sorted(table.ids()) == list(range(120))


def test_every_upsert_has_its_own_transaction(table: DataTable) -> None:
    ids = [table.put("merge_insert", rows(n, n + 1), **UPSERT)["transaction_id"] for n in range(100, 105)]
    assert len(set(ids)) == 5


@pytest.mark.parametrize("read_first", [False, True])
def test_a_branch_made_again_is_not_taken_for_its_predecessor(table: DataTable, *, read_first: bool) -> None:
    for start in (100, 200):
        table.do("branches/create", {"name": "dev"})
        if read_first:
            assert sorted(table.ids(branch="dev")) == list(range(100))
        table.put("merge_insert", rows(start, start + 10), branch="dev", **UPSERT)
        table.put("merge_insert", rows(start + 10, start + 20), branch="dev", **UPSERT)
        assert sorted(table.ids(branch="dev")) == [*range(100), *range(start, start + 20)]
        table.do("branches/delete", {"name": "dev"})
