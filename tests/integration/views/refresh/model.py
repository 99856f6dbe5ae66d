"""A source, what may happen to it, and views of every kind over it with what they should hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace import RestoreTableRequest
from lance_namespace.errors import TableVersionNotFoundError

import pennon
from tests.integration.views.refresh.faults import Killed, death_at
from tests.integration.views.refresh.refresh_harness import RefreshHarness

Rows = list[dict[str, Any]]


class Piece(NamedTuple):
    piece: str


@pennon.chunker
def pieces(id: int, a: int) -> Iterator[Piece]:  # noqa: A002
    for number in range(a % 4):
        yield Piece(f"{id}-{a}-{number}")


@pennon.udtf(output_schema=pa.schema({"k": pa.int64(), "total": pa.int64(), "rows": pa.int64()}), partition_by="k")
def totals(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches)
    total = pc.sum(table.column("a")).as_py()
    return pa.RecordBatch.from_pydict({"k": [table.column("k")[0].as_py()], "total": [total], "rows": [len(table)]})


@pennon.udtf(output_schema=pa.schema({"id": pa.int64(), "pieces": pa.int64()}), partition_by="id")
def sizes(rows: pa.Table) -> dict[str, list[Any]]:
    return {"id": [rows.column("id")[0].as_py()], "pieces": [len(rows)]}


def batch(start: int, count: int, seed: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "a": pa.array([(i * 7 + seed) % 23 for i in ids], pa.int64()),
            "k": pa.array([i % 3 for i in ids], pa.int64()),
        }
    )


class World:
    """One source and its views, by names of their own."""

    KINDS = ("query", "over", "chunks", "sizes", "totals", "spark")
    #: Views over views.
    ABOVE: ClassVar = {"over": "query", "sizes": "chunks"}

    def __init__(self, harness: RefreshHarness, name: str) -> None:
        self.harness = harness
        self.name = name
        self.next_id = 20
        self.deaths = 0
        harness.create(name, batch(0, 20, 0))
        harness.view(
            self.view("query"),
            {"source": name, "columns": {"id": "id", "b": "a * 2", "k": "k"}, "where": "a % 3 != 0"},
        )
        harness.view(
            self.view("over"),
            {"source": self.view("query"), "columns": {"id": "id", "c": "b + 1"}, "where": "b > 10"},
        )
        harness.view(self.view("chunks"), {"source": name, "columns": ["id"], "where": "a > 2"}, pieces)
        harness.view(self.view("sizes"), {"source": self.view("chunks")}, sizes)
        harness.view(self.view("totals"), {"source": name, "columns": ["k", "a"]}, totals)
        harness.view(self.view("spark"), f"SELECT id, a * 2 AS b, k FROM {name} WHERE a % 3 <> 0")

    def view(self, kind: str) -> str:
        return f"{self.name}_{kind}"

    # What may happen to the source.

    def happen(self, what: str, number: int) -> None:
        getattr(self, f"_{what}")(number)

    EVENTS = (
        "append",
        "update",
        "update_many",
        "delete",
        "delete_fragment",
        "upsert",
        "compact",
        "restore",
        "overwrite",
        "add_column",
        "drop_column",
        "remake_column",
        "index",
        "compact_view",
        "cleanup",
        "update_columns",
        "update_unnamed_columns",
    )

    def _append(self, number: int) -> None:
        count = 1 + number % 7
        self.harness.append(self.name, self._fitting(batch(self.next_id, count, number)))
        self.next_id += count

    def _update(self, number: int) -> None:
        self._change(lambda dataset: dataset.update({"a": f"a + {1 + number % 5}"}, where=f"id % 11 = {number % 11}"))

    def _update_many(self, number: int) -> None:
        self._change(lambda dataset: dataset.update({"a": "a + 1"}, where=f"id % 2 = {number % 2}"))

    def _update_columns(self, number: int, *, named: bool = True) -> None:
        """Write a column of one fragment in place, which marks no row as changed."""

        def work(dataset: Any) -> None:
            fragments = dataset.get_fragments()
            fragment = fragments[number % len(fragments)]
            rows = fragment.to_table(columns=["id", "a"])
            changed = rows.set_column(1, "a", pc.add(rows["a"], 1 + number % 5)).slice(number % len(rows))
            metadata, fields = fragment.update_columns(changed, left_on="id", right_on="id")
            operation = lance.LanceOperation.Update(updated_fragments=[metadata], fields_modified=fields * named)
            self.harness.commit(self.name, lambda _: operation)

        if self.harness.dataset(self.name).count_rows():
            work(self.harness.dataset(self.name))

    def _update_unnamed_columns(self, number: int) -> None:
        """Do the same without a word which columns it was."""
        self._update_columns(number, named=False)

    def _delete(self, number: int) -> None:
        self._change(lambda dataset: dataset.delete(f"id % 13 = {number % 13}"))

    def _delete_fragment(self, number: int) -> None:
        self._change(lambda dataset: dataset.delete(f"id >= {number % 40} AND id < {number % 40 + 6}"))

    def _upsert(self, number: int) -> None:
        rows = self._fitting(batch(max(self.next_id - 3, 0), 5, number))
        self.next_id += 2

        def work(dataset: Any) -> None:
            dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

        self._change(work)

    def _compact(self, _number: int) -> None:
        self._change(lambda dataset: dataset.optimize.compact_files())

    def _compact_view(self, _number: int) -> None:
        self.harness.change(self.view("query"), lambda dataset: dataset.optimize.compact_files())

    def _restore(self, number: int) -> None:
        newest = self.harness.version(self.name)
        version = max(newest - 1 - number % 4, 1)
        with suppress(TableVersionNotFoundError):  # it may have been cleaned up
            if "spare" in self.harness.dataset(self.name, version).schema.names:
                return  # the views' column was being replaced
            self.harness.namespace.restore_table(RestoreTableRequest(id=[self.name], version=version))

    def _overwrite(self, number: int) -> None:
        self.harness.overwrite(self.name, batch(self.next_id, 12, number))
        self.next_id += 12

    def _add_column(self, number: int) -> None:
        name = f"x{number % 2}"
        if name not in self._names():
            self._change(lambda dataset: dataset.add_columns({name: "a + 100"}))

    def _drop_column(self, number: int) -> None:
        name = f"x{number % 2}"
        if name in self._names():
            self._change(lambda dataset: dataset.drop_columns([name]))

    def _remake_column(self, number: int) -> None:
        """Drop a column that views read, and add it again with other values."""

        def work(dataset: Any) -> None:
            dataset.add_columns({"spare": f"a + {1 + number % 3}"})
            dataset.drop_columns(["a"])
            dataset.alter_columns({"path": "spare", "name": "a"})

        self._change(work)

    def _index(self, _number: int) -> None:
        self._change(lambda dataset: dataset.create_scalar_index("id", "BTREE", replace=True))

    def _cleanup(self, _number: int) -> None:
        """Remove all old versions that nothing needs."""
        from datetime import timedelta

        self._change(
            lambda dataset: dataset.cleanup_old_versions(
                timedelta(0), delete_unverified=False, error_if_tagged_old_versions=False
            )
        )

    def _change(self, work: Any) -> None:
        self.harness.change(self.name, work)

    def _names(self) -> list[str]:
        names: list[str] = self.harness.dataset(self.name).schema.names
        return names

    def _fitting(self, rows: pa.Table) -> pa.Table:
        for name in self._names():
            if name not in rows.schema.names:
                rows = rows.append_column(name, pa.array([1] * len(rows), pa.int64()))
        return rows.select(self._names())

    # What views should hold.

    def refresh(self, kind: str, fault: str | None = None) -> dict[str, Any]:
        """Refresh a view, by a worker that may die on the way and others that take over, and check it."""
        harness, view = self.harness, self.view(kind)
        job = harness.submit(view)
        if fault is not None:
            with death_at(harness, fault) as died, suppress(Killed):
                harness.run_job(job)
            self.deaths += died()
        result = harness.wait(job).result
        self.check(kind, result)
        return result

    def check(self, kind: str, result: dict[str, Any]) -> None:
        source = self.view(self.ABOVE[kind]) if kind in self.ABOVE else self.name
        version = result["source_version"]
        marked = self.harness.catalogued(self.view(kind)).watermark
        assert marked is not None
        assert dict(marked.versions) == {self.harness.table(source).id: version}
        rows = self.harness.rows(source, version=version)
        assert self.harness.rows(self.view(kind)) == sorted(EXPECTED[kind](rows), key=repr)

    def check_files(self) -> None:
        """Check that nothing is left behind that no version names."""
        for kind in self.KINDS:
            assert self.harness.data_files(self.view(kind)) <= self.harness.named_files(self.view(kind))


def _query(rows: Rows) -> Rows:
    return [{"id": row["id"], "b": row["a"] * 2, "k": row["k"]} for row in rows if row["a"] % 3]


def _over(rows: Rows) -> Rows:
    return [{"id": row["id"], "c": row["b"] + 1} for row in rows if row["b"] > 10]


def _chunks(rows: Rows) -> Rows:
    return [
        {"id": row["id"], "piece": f"{row['id']}-{row['a']}-{number}"}
        for row in rows
        if row["a"] > 2
        for number in range(row["a"] % 4)
    ]


def _sizes(rows: Rows) -> Rows:
    return [{"id": id_, "pieces": pieces} for id_, pieces in Counter(row["id"] for row in rows).items()]


def _totals(rows: Rows) -> Rows:
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        total, count = found.get(row["k"], (0, 0))
        found[row["k"]] = total + row["a"], count + 1
    return [{"k": k, "total": total, "rows": count} for k, (total, count) in found.items()]


EXPECTED = {
    "query": _query,
    "over": _over,
    "chunks": _chunks,
    "sizes": _sizes,
    "totals": _totals,
    "spark": _query,
}
