"""Handles that are kept for many threads: whatever one of them calls, no other one finds its dataset borrowed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import lance_namespace as ln
import pyarrow as pa
import pytest

from pennon.namespace import PennonNamespace
from pennon.views.refresh.changes import changes_no_rows, compare
from pennon.views.refresh.freshness import is_unchanged
from tests.integration.data.tables import rows, stream_of

THREADS = 6
CALLS = 150
FIRST = 2


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonNamespace]:
    """A table with an index, a branch and some versions; none is open yet."""
    with closing(PennonNamespace(directory=tmp_path_factory.mktemp("shared"))) as opened:
        opened.create_table(ln.CreateTableRequest(id=["t"]), stream_of(rows(2000)))
        opened.create_table_index(ln.CreateTableIndexRequest(id=["t"], column="id", index_type="BTREE"))
        opened.create_table_branch(ln.CreateTableBranchRequest(id=["t"], name="dev"))
        for number in range(3):
            _update(opened, number)
        yield opened


def _update(namespace: PennonNamespace, number: int) -> None:
    update = ln.UpdateTableRequest(id=["t"], predicate=f"id = {number}", updates=[["id", "id"]])
    namespace.update_table(update)


def _reads(namespace: PennonNamespace, branch: str, version: int | None) -> dict[str, Callable[[], Any]]:
    """Return what Pennon calls on a dataset that it keeps open, and what pylance would have it borrow mutably."""
    datasets, table = namespace.services.datasets, namespace.find_table(("t",))

    def at() -> Any:
        return datasets.at(table, branch, version)

    def first_rows() -> pa.Table:
        return datasets.open(table, branch, version).first_rows.take(range(5), None)

    def first() -> Any:
        return datasets.at(table, branch, None if branch else FIRST)

    return {
        "first_rows": first_rows,
        "scan": lambda: at().scanner(columns=["id"], filter="id < 9").to_table(),
        "count": lambda: at().count_rows("id > 5"),
        "take": lambda: at().take([1, 2]),
        "take rows": lambda: at()._take_rows([1, 2]),
        "fragments": lambda: [(f.metadata, f.deletion_file(), f.num_deletions) for f in at().get_fragments()],
        "schema": lambda: (at().schema, at().lance_schema, at().metadata, at().has_stable_row_ids),
        "indices": lambda: at().describe_indices(),
        "statistics": lambda: at().stats.dataset_stats()["num_fragments"],
        "transaction": lambda: at().read_transaction(at().version),
        "transactions": lambda: at().get_transactions(2),
        "latest": lambda: at().checkout_latest(),
        "old": lambda: at().checkout_version(at().version).count_rows(),
        "branches": lambda: at().branches.list().get("dev"),
        "delta": lambda: branch or at().delta(compared_against=FIRST).get_deleted_row_ids(),
        "compare": lambda: compare(first(), at(), ["id"]),
        "kind": lambda: changes_no_rows(at(), at().version),
        "explain": lambda: at().scanner(filter="id = 1").explain_plan(),
    }


def _requests(namespace: PennonNamespace) -> dict[str, Callable[[], Any]]:
    datasets, table = namespace.services.datasets, namespace.find_table(("t",))
    newest = datasets.newest(table, "").version
    return {
        "update": lambda: _update(namespace, 7),
        "append": lambda: namespace.insert_into_table(ln.InsertIntoTableRequest(id=["t"]), stream_of(rows(2))),
        "query": lambda: list(namespace.queries.run_query(("t",), {"k": 3, "filter": "id < 5"}).reader),
        "describe": lambda: namespace.describe_table(ln.DescribeTableRequest(id=["t"], load_detailed_metadata=True)),
        "fresh": lambda: is_unchanged(
            lambda version: datasets.at(table, "", version), FIRST, newest, ["id"], follows_columns=True
        ),
    }


def _storm(calls: dict[str, Callable[[], Any]]) -> None:
    """Make calls on threads, each in an order of its own, all on the same kept handles."""

    def run(seed: int) -> None:
        order = random.Random(seed)  # noqa: S311 - the same every time
        names = sorted(calls)
        for _ in range(CALLS):
            name = order.choice(names)
            try:
                calls[name]()
            except RuntimeError as error:
                raise AssertionError(f"{name!r} in thread {seed}: {error}") from error

    with ThreadPoolExecutor(THREADS) as threads:
        for done in [threads.submit(run, seed) for seed in range(THREADS)]:
            done.result()


@pytest.mark.parametrize(("branch", "version"), [("", FIRST + 1), ("dev", None)])
def test_calls_on_a_kept_version_do_not_disturb_each_other(
    namespace: PennonNamespace, branch: str, version: int | None
) -> None:
    _storm(_reads(namespace, branch, version))


def test_concurrent_reads_and_writes_do_not_interfere(namespace: PennonNamespace) -> None:
    _storm(_reads(namespace, "", None) | _requests(namespace))
