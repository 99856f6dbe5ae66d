"""Views of statements in Spark's SQL: row by row they are refreshed incrementally, otherwise rebuilt."""

from __future__ import annotations

import pyarrow as pa

from tests.integration.views.refresh.refresh_harness import RefreshHarness


def orders(start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.uint32()),
            "customer": pa.array([i % 4 for i in range(start, stop)], pa.int64()),
            "price": pa.array([float(i) for i in range(start, stop)], pa.float32()),
        }
    )


def test_row_by_row_statement_follows_changes(harness: RefreshHarness) -> None:
    harness.create("orders", orders(0, 50))
    harness.view(
        "dear", "SELECT id, price * 2 AS twice, upper(concat('c', customer)) AS who FROM orders WHERE price >= 10"
    )
    first = harness.refresh("dear").result
    assert (first["mode"], first["rows_written"]) == ("rebuild", 40)
    harness.append("orders", orders(50, 55))
    harness.change("orders", lambda dataset: dataset.update({"price": "price + 100"}, where="id in (3, 20)"))
    harness.change("orders", lambda dataset: dataset.delete("id in (30, 31)"))
    done = harness.refresh("dear").result
    assert done["mode"] == "incremental"
    assert (done["rows_added"], done["rows_updated"], done["rows_removed"]) == (6, 1, 2)
    wanted = [
        {"id": row["id"], "twice": row["price"] * 2, "who": f"C{row['customer']}"}
        for row in harness.rows("orders")
        if row["price"] >= 10
    ]
    assert harness.rows("dear") == sorted(wanted, key=repr)
    assert harness.refresh("dear").result["mode"] == "no_op"


def test_joins_and_groups_are_recomputed_with_a_reason(harness: RefreshHarness) -> None:
    harness.create("bought", orders(0, 40))
    harness.create("people", pa.table({"customer": pa.array([0, 1, 2, 3], pa.int64()), "name": ["a", "b", "c", "d"]}))
    harness.view(
        "spent",
        "SELECT p.name, CAST(sum(o.price) AS DOUBLE) AS total, count(*) AS orders "
        "FROM bought o JOIN people p ON o.customer = p.customer GROUP BY p.name",
    )
    harness.refresh("spent")
    harness.change("people", lambda dataset: dataset.update({"name": "'z'"}, where="customer = 0"))
    done = harness.refresh("spent").result
    assert done["mode"] == "rebuild"
    assert done["reason"]
    assert set(done["source_versions"]) == {"bought", "people"}
    assert {row["name"]: row["orders"] for row in harness.rows("spent")} == {"z": 10, "b": 10, "c": 10, "d": 10}
    assert harness.rows("spent", "total")[0]["total"] > 0
    assert harness.refresh("spent").result["mode"] == "no_op"


def test_queries_with_volatile_functions_are_recomputed_at_every_refresh(harness: RefreshHarness) -> None:
    harness.create("dice", pa.table({"id": pa.array(range(5), pa.int64())}))
    harness.view("thrown", {"source": "dice", "columns": {"id": "id", "chance": "random()"}})
    harness.view("thrown_by_spark", "SELECT id, rand() AS chance FROM dice")
    harness.view("summed", "SELECT sum(chance) AS chance FROM (SELECT rand() AS chance FROM dice)")
    for name in ("thrown", "thrown_by_spark", "summed"):
        harness.refresh(name)
        before = harness.rows(name)
        done = harness.refresh(name).result
        assert (done["mode"], "whose value changes over time" in done["reason"]) == ("rebuild", True)
        assert harness.rows(name) != before


def test_failing_statement_fails_the_job_with_sparks_words(harness: RefreshHarness) -> None:
    harness.create("zeros", orders(0, 5))
    harness.view("divided", "SELECT id, CAST(1 DIV customer AS BIGINT) AS share FROM zeros")
    failed = harness.refresh("divided").failure
    assert "DIVIDE_BY_ZERO" in failed["message"] or "zero" in failed["message"].lower()
    assert harness.dataset("divided").count_rows() == 0
