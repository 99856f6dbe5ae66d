"""A table that LanceDB drops on the folder and makes again under its name is another one, whatever its versions."""

from __future__ import annotations

import itertools
from typing import Any

import lance
import lance_namespace as ln
import lancedb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pennon.namespace.models.views import DescribeViewRequest
from tests.integration.views.refresh.model import EXPECTED, batch
from tests.integration.views.refresh.refresh_harness import RefreshHarness

_names = itertools.count()
STABLE = {"new_table_enable_stable_row_ids": "true"}
TOTAL = "SELECT k, sum(a) AS total FROM {} GROUP BY k"


def make(harness: RefreshHarness, name: str, seed: int, *, appends: int) -> None:
    """Make a table on the folder as LanceDB does, in place of the one that may be there."""
    db = lancedb.connect(harness.services.storage_root.root_location)
    if name in db.list_tables().tables:
        db.drop_table(name)
    table = db.create_table(name, batch(0, 20, seed), storage_options=STABLE)
    for number in range(appends):
        table.add(batch(20 + number, 1, seed))


def check(harness: RefreshHarness, name: str) -> None:
    rows = harness.rows(name)
    assert harness.rows(f"{name}_query") == sorted(EXPECTED["query"](rows), key=repr)
    totals: dict[int, int] = {}
    for row in rows:
        totals[row["k"]] = totals.get(row["k"], 0) + row["a"]
    assert harness.rows(f"{name}_spark") == sorted(({"k": k, "total": n} for k, n in totals.items()), key=repr)


def state_of(harness: RefreshHarness, view: str) -> Any:
    return harness.namespace.describe_materialized_view(DescribeViewRequest(id=[view]))


def read(harness: RefreshHarness, name: str) -> tuple[pa.Table, Any]:
    """Return the first rows of a table and its details, as requests get them from what is kept of it."""
    head = harness.namespace.queries.run_query((name,), {"k": 3, "vector": []}).reader
    described = harness.namespace.describe_table(ln.DescribeTableRequest(id=[name], load_detailed_metadata=True))
    return pa.Table.from_batches(list(head)), described


@pytest.mark.parametrize("appends", [0, 2, 4], ids=["fewer versions", "as many versions", "more versions"])
def test_views_follow_a_table_that_was_made_again(harness: RefreshHarness, appends: int) -> None:
    name = f"remade{next(_names)}"
    make(harness, name, 0, appends=2)
    harness.namespace.find_table((name,))
    harness.view(
        f"{name}_query", {"source": name, "columns": {"id": "id", "b": "a * 2", "k": "k"}, "where": "a % 3 != 0"}
    )
    harness.view(f"{name}_spark", TOTAL.format(name))
    for kind in ("query", "spark"):
        harness.refresh(f"{name}_{kind}")
    check(harness, name)
    assert read(harness, name)[0]["a"].to_pylist() == batch(0, 3, 0)["a"].to_pylist()
    assert harness.refresh(f"{name}_query").result["mode"] == "no_op"

    make(harness, name, 5, appends=appends)
    found, described = read(harness, name)
    assert (found["a"].to_pylist(), described.version) == (batch(0, 3, 5)["a"].to_pylist(), 1 + appends)
    for kind in ("query", "spark"):
        assert state_of(harness, f"{name}_{kind}").state == "stale"
        assert harness.refresh(f"{name}_{kind}").result["mode"] == "rebuild"
        assert state_of(harness, f"{name}_{kind}").state == "fresh"
    check(harness, name)
    harness.append(name, batch(40, 2, 1))
    assert harness.refresh(f"{name}_query").result["mode"] == "incremental"


def test_views_follow_a_column_that_was_written_in_place_after_a_compaction(harness: RefreshHarness) -> None:
    """Of a table that Pennon does not manage, nothing is recorded, and the operation does not name the column."""
    name = f"found{next(_names)}"
    make(harness, name, 0, appends=2)
    location = harness.namespace.find_table((name,)).location
    harness.view(
        f"{name}_query", {"source": name, "columns": {"id": "id", "b": "a * 2", "k": "k"}, "where": "a % 3 != 0"}
    )
    harness.view(f"{name}_spark", TOTAL.format(name))
    for kind in ("query", "spark"):
        harness.refresh(f"{name}_{kind}")
    lance.dataset(location).optimize.compact_files()
    dataset = lance.dataset(location)
    (fragment,) = dataset.get_fragments()
    rows = fragment.to_table(columns=["id", "a"])
    changed = rows.set_column(1, "a", pc.add(rows["a"], 1))
    metadata, _ = fragment.update_columns(changed, left_on="id", right_on="id")
    operation = lance.LanceOperation.Update(updated_fragments=[metadata])
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    for kind in ("query", "spark"):
        assert state_of(harness, f"{name}_{kind}").state == "stale"
        harness.refresh(f"{name}_{kind}")
    check(harness, name)
