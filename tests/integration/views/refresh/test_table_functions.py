"""Table functions: views made of all rows of a source, or of each of its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.namespace.models.columns import ColumnErrorsRequest
from tests.integration.views.refresh.refresh_harness import RefreshHarness

TOTALS = pa.schema({"shop": pa.string(), "total": pa.int64()})


def sales(start: int, stop: int, shops: int = 5) -> pa.Table:
    return pa.table(
        {"shop": [f"s{i % shops}" for i in range(start, stop)], "amount": pa.array(range(start, stop), pa.int64())}
    )


def expected(harness: RefreshHarness, source: str) -> list[dict[str, object]]:
    totals: dict[str, int] = {}
    for row in harness.rows(source):
        totals[row["shop"]] = totals.get(row["shop"], 0) + row["amount"]
    return sorted(({"shop": shop, "total": total} for shop, total in totals.items()), key=repr)


def test_whole_source_is_streamed_once_and_not_again_without_changes(harness: RefreshHarness, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    path = str(calls)

    @pennon.udtf(output_schema=TOTALS, input_columns=["shop", "amount"])
    def totals(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, list[object]]]:
        with open(path, "a") as log:  # noqa: PTH123
            log.write("called\n")
        found: dict[str, int] = {}
        for batch in batches:
            for row in batch.to_pylist():
                found[row["shop"]] = found.get(row["shop"], 0) + row["amount"]
        yield {"shop": list(found), "total": list(found.values())}

    harness.create("sales", sales(0, 100))
    harness.view("totals", {"source": "sales"}, totals)
    assert harness.refresh("totals").result["mode"] == "rebuild"
    assert harness.rows("totals") == expected(harness, "sales")
    assert harness.refresh("totals").result["mode"] == "no_op"
    assert calls.read_text().count("called") == 1
    harness.append("sales", sales(100, 120))
    done = harness.refresh("totals").result
    assert (done["mode"], done["rows_removed"], done["rows_added"]) == ("rebuild", 5, 5)
    assert "table function" in done["reason"]
    assert harness.rows("totals") == expected(harness, "sales")


def test_each_value_of_a_column_is_one_call(harness: RefreshHarness) -> None:
    @pennon.udtf(output_schema=TOTALS, partition_by="shop")
    class Total:
        def setup(self) -> None:
            self.calls = 0

        def __call__(self, rows: pa.Table) -> pa.Table:
            assert len(set(rows.column("shop").to_pylist())) == 1
            return pa.table({"shop": [rows.column("shop")[0]], "total": [pc.sum(rows.column("amount")).as_py()]})

    harness.create(
        "parted", pa.concat_tables([sales(0, 50), pa.table({"shop": [None], "amount": [7]}, sales(0, 1).schema)])
    )
    harness.view("parted_totals", {"source": "parted"}, Total)
    harness.refresh("parted_totals")
    assert harness.rows("parted_totals") == expected(harness, "parted")


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([1.0, float("nan"), None, float("nan"), -0.0, 0.0, None]), {"0.0": 2, "1.0": 1, "None": 2, "nan": 2}),
        (pa.array(["a", None, "b", "a"]).dictionary_encode(), {"'a'": 2, "'b'": 1, "None": 1}),
    ],
)
def test_values_are_distinguished_as_in_sql(harness: RefreshHarness, values: pa.Array, wanted: dict[str, int]) -> None:
    @pennon.udtf(output_schema=pa.schema({"value": pa.string(), "rows": pa.int64()}), partition_by="value")
    def counted(rows: pa.Table) -> dict[str, list[object]]:
        return {"value": [repr(rows.column("value")[0].as_py()).removeprefix("-")], "rows": [len(rows)]}

    name = f"apart_{len(values)}"
    harness.create(name, pa.table({"value": values}))
    harness.view(f"{name}_counted", {"source": name}, counted)
    harness.refresh(f"{name}_counted")
    assert {row["value"]: row["rows"] for row in harness.rows(f"{name}_counted")} == wanted


def test_partitions_that_fail_are_left_out_or_tried_again(harness: RefreshHarness, tmp_path: Path) -> None:
    marker = str(tmp_path / "tried")

    @pennon.udtf(output_schema=TOTALS, partition_by="shop")
    def fragile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pathlib

        for batch in batches:
            shop = batch.column("shop")[0].as_py()
            yield pa.RecordBatch.from_pydict({"shop": [shop], "total": [pc.sum(batch.column("amount")).as_py()]})
            if shop == "s3":
                raise RuntimeError("never")
            if shop == "s1" and not pathlib.Path(marker).exists():
                pathlib.Path(marker).touch()
                raise ConnectionError("not yet")

    harness.create("fragile", sales(0, 50))
    policy = {"on_error": "skip", "attempts": 2, "backoff": 0}
    harness.view("fragile_totals", {"source": "fragile"}, fragile, error_handling=policy)
    done = harness.refresh("fragile_totals").result
    assert harness.rows("fragile_totals") == [row for row in expected(harness, "fragile") if row["shop"] != "s3"]
    assert done["rows_failed"] == 10
    harness.view("failing_totals", {"source": "fragile"}, fragile)
    failed = harness.refresh("failing_totals")
    assert failed.failure["type"] == "RuntimeError"
    assert "shop = 's3'" in failed.failure["message"]
    assert harness.data_files("failing_totals") == set()


def test_calls_that_take_too_long_fail_in_their_partition(harness: RefreshHarness) -> None:
    @pennon.udtf(output_schema=TOTALS, partition_by="shop", timeout=1.5, error_policy=pennon.ErrorPolicy.skip())
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, list[object]]]:
        import time

        for batch in batches:
            if batch.column("shop")[0].as_py() == "s2":
                time.sleep(60)
            yield {"shop": [batch.column("shop")[0].as_py()], "total": [pc.sum(batch.column("amount")).as_py()]}

    harness.create("slow", sales(0, 20))
    harness.view("slow_totals", {"source": "slow"}, slow)
    assert harness.refresh("slow_totals").result["rows_failed"] == 4
    assert harness.rows("slow_totals") == [row for row in expected(harness, "slow") if row["shop"] != "s2"]


@pytest.mark.parametrize(
    ("number", "wrong", "error_text"),
    [
        (1, {"shop": ["a"], "sum": [1]}, "without 'total'"),
        (2, {"shop": ["a"], "total": [1], "sum": [1]}, "with 'sum'"),
        (3, {"shop": ["a"], "total": ["many"]}, "many"),
        (4, {"shop": [None], "total": [1]}, "nulls for 'shop'"),
    ],
)
def test_every_batch_has_to_be_as_declared(
    harness: RefreshHarness, number: int, wrong: dict[str, list[Any]], error_text: str
) -> None:
    schema = pa.schema([pa.field("shop", pa.string(), nullable=False), ("total", pa.int64())])

    @pennon.udtf(output_schema=schema)
    def third_is_wrong(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, list[Any]]]:
        yield {"shop": ["a"], "total": [sum(batch.num_rows for batch in batches)]}
        yield {"shop": ["b"], "total": [None]}
        yield wrong

    harness.create(f"misfit{number}", sales(0, 5))
    harness.view(f"misfit{number}_totals", {"source": f"misfit{number}"}, third_is_wrong, schema)
    assert error_text in harness.refresh(f"misfit{number}_totals").failure["message"]
    assert (harness.version(f"misfit{number}_totals"), harness.data_files(f"misfit{number}_totals")) == (1, set())


def test_of_many_small_partitions_each_is_a_call_and_all_that_fail_are_counted(harness: RefreshHarness) -> None:
    @pennon.udtf(output_schema=TOTALS, partition_by="shop", error_policy=pennon.ErrorPolicy.skip())
    def picky(rows: pa.Table) -> dict[str, list[object]]:
        shop, amounts = rows.column("shop").unique().to_pylist(), rows.column("amount").to_pylist()
        if len(shop) > 1 or amounts[0] % 2:
            raise ValueError(f"not {shop}")
        return {"shop": shop, "total": [sum(amounts)]}

    # Five rows of each of 2500 shops, and one that has more rows than are read at once.
    harness.create("crowd", pa.concat_tables([sales(0, 12_500, 2500), sales(20_000, 23_000, 1)]))
    harness.view("crowd_totals", {"source": "crowd"}, picky)
    done = harness.refresh("crowd_totals").result
    assert harness.rows("crowd_totals") == [
        row for row in expected(harness, "crowd") if int(str(row["shop"])[1:]) % 2 == 0
    ]
    assert (done["rows_written"], done["rows_failed"]) == (1250, 6250)
    listed = harness.namespace.list_column_errors(ColumnErrorsRequest(id=["crowd_totals"], limit=5000)).records
    assert 0 < len(listed) <= 2000  # of two tasks


def _index(dataset: Any) -> None:
    corners = np.array([[0, 0], [100, 0], [0, 100], [100, 100]], dtype=np.float32)
    dataset.create_index("vector", "IVF_FLAT", num_partitions=4, ivf_centroids=corners)


def test_each_partition_of_a_vector_index_is_one_call(harness: RefreshHarness) -> None:
    @pennon.udtf(
        output_schema=pa.schema({"rows": pa.int64(), "ids": pa.list_(pa.int64())}),
        input_columns=["id"],
        partition_by_indexed_column="vector",
    )
    def members(batches: Iterator[pa.RecordBatch]) -> dict[str, list[object]]:
        ids = [identity for batch in batches for identity in batch.column("id").to_pylist()]
        return {"rows": [len(ids)], "ids": [ids]}

    def vectors(start: int, stop: int) -> pa.Table:
        # Four corners of a square, far apart, with a little noise.
        random = np.random.default_rng(start)
        corners = np.array([[(i % 2) * 100.0, (i // 2 % 2) * 100.0] for i in range(start, stop)])
        values = (corners + random.random(corners.shape)).astype(np.float32)
        array = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 2)
        return pa.table({"id": pa.array(range(start, stop)), "vector": array})

    def corner_sets() -> list[list[int]]:
        ids = [row["id"] for row in harness.rows("vectors", "id")]
        return sorted(sorted(i for i in ids if i % 4 == corner) for corner in range(4))

    harness.create("vectors", vectors(0, 400))
    harness.change("vectors", _index)
    harness.view("clusters", {"source": "vectors"}, members)
    harness.refresh("clusters")
    assert sorted(sorted(row["ids"]) for row in harness.rows("clusters")) == corner_sets()
    harness.append("vectors", vectors(400, 440))
    harness.change("vectors", lambda dataset: dataset.delete("id < 10"))
    harness.refresh("clusters")
    assert sorted(sorted(row["ids"]) for row in harness.rows("clusters")) == corner_sets()
    harness.change("vectors", lambda dataset: dataset.drop_index("vector_idx"))
    harness.append("vectors", vectors(440, 450))
    assert "'vector' has no IVF index" in harness.refresh("clusters").failure["message"]
