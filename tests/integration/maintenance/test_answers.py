"""Every version of a table under maintenance, beside other writers: all rows, and searches equal to exact search."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

from pennon.core.job_model import JobKind
from pennon.core.process import omit_centroids
from pennon.maintenance import compaction, index_upkeep
from tests.integration.maintenance.maintenance_harness import DIMENSIONS, MaintenanceHarness, rows

SCALAR: dict[str, tuple[str, Any]] = {
    "id": ("btree", "BTREE"),
    "kind": ("bitmap", "BITMAP"),
    "tags": ("labels", "LABEL_LIST"),
    "grams": ("ngram", "NGRAM"),
    "words": ("text", "INVERTED"),
    "zone": ("zonemap", "ZONEMAP"),
    "bloom": ("bloom", "BLOOMFILTER"),
    "fm": ("fm", IndexConfig("fm", {})),
}
FILTERS = (
    *("id between 100 and 140", "id = 7", "kind = 2", "array_has_any(tags, ['t1', 't9'])", "contains(grams, 'n12')"),
    *("zone between 100 and 140", "bloom = 7", "contains(fm, 'n12')"),
)


def wide_rows(start: int, stop: int, seed: int = 0) -> pa.Table:
    """Return rows with a column for each index type."""
    table = rows(start, stop, seed)
    tags = [[f"t{number % 11}", f"s{seed % 3}"] for number in range(start, stop)]
    for name, values in (
        ("tags", pa.array(tags)),
        ("grams", table["words"]),
        ("zone", table["id"]),
        ("bloom", table["id"]),
        ("fm", table["words"]),
    ):
        table = table.append_column(name, values)
    return table


def distances(dataset: Any, query: Any, k: int, **options: Any) -> list[float]:
    nearest = {"column": "v", "q": query, "k": k, **options}
    found = dataset.to_table(nearest=nearest, columns=["id", "_distance"])
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a row was found twice"
    return sorted(found["_distance"].to_pylist())


def check_answers(dataset: Any, ids: set[int] | None = None, *, exact: bool = True) -> None:
    """Insist on all rows, and on the answers of every index."""
    found = dataset.to_table(columns=["id", "words"])
    stored = found["id"].to_pylist()
    assert len(set(stored)) == len(stored)
    assert ids is None or set(stored) == ids
    for where in FILTERS:
        indexed = dataset.to_table(columns=["id"], filter=where)["id"].to_pylist()
        scanned = dataset.to_table(columns=["id"], filter=where, use_scalar_index=False)["id"].to_pylist()
        assert sorted(indexed) == sorted(scanned), where
    for word in ("w3", "n12", "s1"):
        matched = dataset.to_table(columns=["id"], full_text_query=word)["id"].to_pylist()
        expected = [n for n, words in zip(stored, found["words"].to_pylist(), strict=True) if word in words.split()]
        assert sorted(matched) == sorted(expected), word
    chance = np.random.default_rng(1)
    for k in (5, 40):
        query = chance.random(DIMENSIONS, dtype=np.float32)
        wanted = distances(dataset, query, k, use_index=False)
        got = distances(dataset, query, k, nprobes=1000)
        assert len(got) == len(wanted) == min(k, len(stored))
        if exact:
            assert np.allclose(got, wanted, atol=1e-4)


class Writer:
    """Changes a table at random, and knows which rows it has."""

    def __init__(self, harness: MaintenanceHarness, name: str, seed: int) -> None:
        self.harness = harness
        self.name = name
        self.chance = random.Random(seed)  # noqa: S311 (a test that can be repeated)
        self.ids: set[int] = set(self.harness.dataset(name).to_table(columns=["id"])["id"].to_pylist())
        self.next_id = max(self.ids) + 1
        self.seed = 0
        #: The rows that each version has; versions between these have the rows of the one before.
        self.history: dict[int, set[int]] = {}

    def write(self) -> None:
        """Make one change."""
        self.chance.choice([self.append, self.append, self.delete, self.update, self.upsert])()
        self.history[self.harness.dataset(self.name).version] = set(self.ids)

    def append(self) -> None:
        stop = self.next_id + self.chance.choice([1, 1, 1, 5, 30])
        self.harness.append(self.name, wide_rows(self.next_id, stop))
        self.ids |= set(range(self.next_id, stop))
        self.next_id = stop

    def delete(self) -> None:
        gone = set(self.chance.sample(sorted(self.ids), min(self.chance.choice([1, 1, 10, 60]), len(self.ids) // 2)))
        self.harness.delete(self.name, f"id in ({', '.join(map(str, gone))})")
        self.ids -= gone

    def update(self) -> None:
        some = ", ".join(map(str, self.chance.sample(sorted(self.ids), min(5, len(self.ids)))))
        self.harness.change(
            self.name, lambda dataset: dataset.update({"kind": "kind + 1", "zone": "zone + 1"}, f"id in ({some})")
        )

    def upsert(self) -> None:
        start = self.chance.choice(sorted(self.ids))
        self.seed += 1
        self.harness.upsert(self.name, wide_rows(start, start + self.chance.choice([1, 8, 40]), self.seed))
        self.ids = set(self.harness.dataset(self.name).to_table(columns=["id"])["id"].to_pylist())
        self.next_id = max(self.next_id, *self.ids) + 1


@contextmanager
def racing(write: Callable[[], None], chance: random.Random) -> Iterator[None]:
    """Write between the steps of a maintenance job: after each rewritten group, and during each index task."""
    execute, run = compaction.execute, index_upkeep.run

    def execute_and_write(task: str, dataset: Any) -> str:
        result = execute(task, dataset)
        if chance.random() < 0.7:
            write()
        return result

    def write_and_run(dataset: Any, tasks: Any) -> bool:
        if chance.random() < 0.5:
            write()
        done = run(dataset, tasks)
        if chance.random() < 0.3:
            write()
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "execute", execute_and_write)
        patch.setattr(index_upkeep, "run", write_and_run)
        yield


def create_indexed(harness: MaintenanceHarness, name: str, *, stable: bool, kind: str) -> None:
    harness.create(name, wide_rows(0, 300), stable=stable)
    for start in range(300, 330):
        harness.append(name, wide_rows(start, start + 1))
    options: dict[str, Any] = {"num_sub_vectors": 4} if "PQ" in kind else {}
    harness.change(name, lambda dataset: dataset.create_index("v", kind, num_partitions=2, **options))
    for column, (index, index_type) in SCALAR.items():
        harness.change(name, lambda d, c=column, i=index, t=index_type: d.create_scalar_index(c, t, name=i))


@pytest.mark.parametrize(
    ("stable", "kind", "seed"),
    [(True, "IVF_FLAT", 1), (True, "IVF_FLAT", 3), (False, "IVF_FLAT", 4), (True, "IVF_PQ", 5)],
)
def test_every_version_answers_as_an_exact_search(
    harness: MaintenanceHarness, stable: bool, kind: str, seed: int
) -> None:
    maintain_and_check(harness, stable, kind, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 30))
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ", "IVF_RQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ"])
def test_every_version_answers_as_an_exact_search_for_long(
    harness: MaintenanceHarness, stable: bool, kind: str, seed: int
) -> None:
    maintain_and_check(harness, stable, kind, seed)


def maintain_and_check(harness: MaintenanceHarness, stable: bool, kind: str, seed: int) -> None:
    """Maintain a table beside a writer, and check each of its versions."""
    name = f"table_{kind}_{stable}_{seed}".lower()
    create_indexed(harness, name, stable=stable, kind=kind)
    writer = Writer(harness, name, seed)
    first = harness.dataset(name).version
    writer.history[first] = set(writer.ids)
    for _ in range(5):
        for _ in range(writer.chance.choice([1, 4, 8])):
            writer.write()
        with racing(writer.write, writer.chance):
            harness.run(name, writer.chance.choice([JobKind.MAINTAIN, JobKind.MAINTAIN, JobKind.COMPACT]))
    for _ in range(2):  # what the first run leaves may reach a tier that is full
        result = harness.run(name)
        assert result["groups_lost"] == 0
    assert harness.data_files(name) == harness.named_files(name)
    ids = writer.history[first]
    for version in range(first, harness.dataset(name).version + 1):
        ids = writer.history.get(version, ids)
        check_answers(harness.dataset(name, version=version), ids, exact=kind == "IVF_FLAT")
    health = harness.health(name)
    assert health.due == ()
    assert all(index.rows_unindexed == 0 and index.stale_entries == 0 for index in health.indices)


@pytest.mark.parametrize(("seed", "is_retrained"), [(1, False), (8, True)])
def test_an_index_is_trained_again_when_new_vectors_are_elsewhere(
    harness: MaintenanceHarness, seed: int, is_retrained: bool
) -> None:
    name, (first, new) = f"drift{seed}", (rows(0, 4000), rows(4000, 6000))
    if is_retrained:
        shifted = pa.array(new["v"].combine_chunks().flatten().to_numpy() + np.float32(seed))
        new = new.set_column(1, "v", pa.FixedSizeListArray.from_arrays(shifted, DIMENSIONS))
    harness.create(name, first)
    harness.change(name, lambda dataset: dataset.create_index("v", "IVF_PQ", num_partitions=8, num_sub_vectors=4))
    harness.append(name, new)
    assert harness.run(name, JobKind.OPTIMIZE_INDICES)["indices_retrained"] == int(is_retrained)
    harness.append(name, rows(6000, 6700))
    assert harness.run(name, JobKind.OPTIMIZE_INDICES)["indices_retrained"] == 0


def test_null_vectors_do_not_hide_the_stale_entries_of_a_clients_compaction(harness: MaintenanceHarness) -> None:
    """Null vectors have no entries, so the statistics of the index do not tell that it has too many."""
    first, missing = wide_rows(0, 1200), wide_rows(2000, 2400)
    nulls = pa.nulls(400, missing.schema.field("v").type)
    harness.create("nulls", pa.concat_tables([first, missing.set_column(1, "v", nulls)]))
    harness.change("nulls", lambda dataset: dataset.create_index("v", "IVF_FLAT", num_partitions=2))
    nearest = {"column": "v", "q": first["v"][0].values.to_numpy(), "k": 30, "nprobes": 1000}
    close = harness.dataset("nulls").to_table(nearest=nearest, columns=["id"])["id"].to_pylist()
    harness.delete("nulls", f"id in ({', '.join(map(str, close))})")
    by_client = lance.dataset(namespace_client=harness.namespace, table_id=["nulls"])
    by_client.optimize.compact_files(target_rows_per_fragment=2**30, materialize_deletions_threshold=0.0)
    assert harness.dataset("nulls").to_table(nearest=nearest).num_rows < 30
    assert harness.health("nulls").indices[0].stale_entries == 0
    harness.run("nulls", JobKind.OPTIMIZE_INDICES)
    repaired = harness.dataset("nulls").to_table(nearest=nearest, columns=["id"])
    exact = harness.dataset("nulls").to_table(nearest={**nearest, "use_index": False}, columns=["id"])
    assert repaired["id"].to_pylist() == exact["id"].to_pylist()


def test_a_compaction_without_folding_would_answer_wrong(harness: MaintenanceHarness) -> None:
    """The guard is needed: Lance's own compaction makes a search return too few rows."""
    harness.create("unguarded", wide_rows(0, 1200))
    harness.change("unguarded", lambda dataset: dataset.create_index("v", "IVF_FLAT", num_partitions=2))
    query = harness.dataset("unguarded").to_table(columns=["v"], limit=1)["v"][0].values.to_numpy()
    nearest = {"column": "v", "q": query, "k": 30, "nprobes": 1000}
    close = harness.dataset("unguarded").to_table(nearest=nearest, columns=["id"])["id"].to_pylist()
    harness.delete("unguarded", f"id in ({', '.join(map(str, close))})")
    options = {"target_rows_per_fragment": 2**30, "materialize_deletions_threshold": 0.0}
    harness.change("unguarded", lambda dataset: dataset.optimize.compact_files(**options))
    nearest["k"] = 20
    short = harness.dataset("unguarded").to_table(nearest=nearest, columns=["id"])
    assert short.num_rows < 20
    (reason,) = (due.reason for due in harness.health("unguarded").due)
    assert "entries of deleted rows" in reason
    harness.run("unguarded")
    repaired = harness.dataset("unguarded").to_table(nearest=nearest, columns=["id"])
    exact = harness.dataset("unguarded").to_table(nearest={**nearest, "use_index": False}, columns=["id"])
    assert repaired["id"].to_pylist() == exact["id"].to_pylist()


def test_the_statistics_of_an_index_have_no_centroids(
    harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for in each process at each run, and centroids make them large."""
    monkeypatch.setenv("LANCE_INCLUDE_VECTOR_CENTROIDS", "")
    monkeypatch.delenv("LANCE_INCLUDE_VECTOR_CENTROIDS")
    omit_centroids()
    harness.create("centroids", rows(0, 300))
    harness.change("centroids", lambda dataset: dataset.create_index("v", "IVF_FLAT", num_partitions=2))
    (found,) = harness.dataset("centroids").stats.index_stats("v_idx")["indices"]
    assert "centroids" not in found
    assert len(found["partitions"]) == 2
