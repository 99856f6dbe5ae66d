"""Views from the request to their rows, on a server with a worker: as LanceDB's client asks, and over HTTP."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import lancedb
import pyarrow as pa
import pytest

from tests.support.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import PennonProcess

SECONDS = 120


@pytest.fixture
def rest(spark_server: PennonProcess) -> Iterator[RestClient]:
    with RestClient(spark_server.url) as client:
        yield client


@pytest.fixture
def db(spark_server: PennonProcess) -> Any:
    return lancedb.connect("db://lake", api_key="none", host_override=spark_server.url)


@pytest.fixture
def teas(db: Any) -> Any:
    """A table of three teas."""
    rows = pa.table({"id": [1, 2, 3], "Tea Name": ["oolong", "sencha", "assam"], "grams": [100, 50, 25]})
    return db.create_table(f"teas_{secrets.token_hex(4)}", rows)


def finished(rest: RestClient, job_id: str) -> dict[str, Any]:
    """Return the result of a job once it is there."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        job = rest.post("/v1/jobs/describe", {"job_id": job_id})
        if job["job_state"] != "IN_PROGRESS":
            assert job["job_state"] == "DONE", job
            result: dict[str, Any] = job["result"]
            return result
        time.sleep(0.1)
    raise TimeoutError(job_id)


def rows_of(table: Any, *columns: str) -> list[tuple[Any, ...]]:
    found = table.search().select(list(columns)).limit(100).to_list()
    return sorted(tuple(row[name] for name in columns) for row in found)


def test_lancedbs_client_makes_fills_and_refreshes_a_view(db: Any, teas: Any) -> None:
    name = f"view_{secrets.token_hex(4)}"
    select = {"n": "id + 1", "name": "upper(`Tea Name`)"}
    view = db.create_materialized_view(name, teas.name, select=select, where="\"Tea Name\" <> 'assam'")
    assert rows_of(view.table, "n", "name") == [(2, "OOLONG"), (3, "SENCHA")]
    teas.add([{"id": 9, "Tea Name": "puer", "grams": 10}])
    teas.delete("id = 1")
    result = view.refresh()
    assert (result.mode, result.rows_written) == ("incremental", 1)
    assert rows_of(db.open_table(name), "n", "name") == [(3, "SENCHA"), (10, "PUER")]
    assert view.refresh().mode == "no_op"
    assert view.refresh(full=True).mode == "rebuild"
    assert rows_of(db.open_table(name), "n", "name") == [(3, "SENCHA"), (10, "PUER")]


def test_a_view_of_two_tables_gives_its_rebuild_reason(db: Any, teas: Any, rest: RestClient) -> None:
    other = db.create_table(f"origins_{secrets.token_hex(4)}", [{"tea": "oolong", "origin": "Taiwan"}])
    view = f"view_{secrets.token_hex(4)}"
    query = f"""SELECT origin, sum(grams) AS grams FROM {teas.name} t JOIN {other.name} o ON t.`Tea Name` = o.tea
                GROUP BY origin"""
    answer = rest.post(
        f"/v1/materialized_view/{view}/create",
        {"kind": "query", "output_schema": None, "source_query": query, "with_no_data": False},
        expect=201,
    )
    assert finished(rest, answer["job_id"])["mode"] == "rebuild"
    assert rows_of(db.open_table(view), "origin", "grams") == [("Taiwan", 100)]
    other.add([{"tea": "sencha", "origin": "Japan"}])
    result = finished(rest, rest.post(f"/v1/materialized_view/{view}/refresh", expect=202)["job_id"])
    assert (result["mode"], "a join" in result["reason"]) == ("rebuild", True)
    assert rows_of(db.open_table(view), "origin", "grams") == [("Japan", 50), ("Taiwan", 100)]
    assert rest.post(f"/v1/materialized_view/{view}/describe")["state"] == "fresh"


def test_sql_that_works_row_by_row_follows_the_changes(db: Any, teas: Any, rest: RestClient) -> None:
    view = f"view_{secrets.token_hex(4)}"
    query = f"SELECT *, grams * 2 AS twice FROM {teas.name} WHERE grams > 30"
    rest.post(
        f"/v1/materialized_view/{view}/create",
        {"kind": "query", "output_schema": None, "source_query": query},
        expect=201,
    )
    finished(rest, rest.post(f"/v1/materialized_view/{view}/refresh", expect=202)["job_id"])
    teas.update(where="id = 3", values={"grams": 40})
    plan = rest.post(f"/v1/materialized_view/{view}/refresh", {"dry_run": True})
    assert (plan["mode"], plan["rows_to_update"]) == ("incremental", 1)
    result = finished(rest, rest.post(f"/v1/materialized_view/{view}/refresh", expect=202)["job_id"])
    assert result["mode"] == "incremental"
    assert rows_of(db.open_table(view), "id", "twice") == [(1, 200), (2, 100), (3, 80)]


def test_a_cascade_brings_what_is_below_up_to_date_first(db: Any, teas: Any, rest: RestClient) -> None:
    below, above = (f"view_{secrets.token_hex(4)}" for _ in range(2))
    rest.post(
        f"/v1/materialized_view/{below}/create",
        {"kind": "query", "output_schema": None, "source_query": {"source": teas.name}},
        expect=201,
    )
    query = f"SELECT count(*) AS n, max(grams) AS most FROM {below}"
    rest.post(
        f"/v1/materialized_view/{above}/create",
        {"kind": "query", "output_schema": None, "source_query": query},
        expect=201,
    )
    finished(rest, rest.post(f"/v1/materialized_view/{above}/refresh", {"cascade": True}, expect=202)["job_id"])
    assert rows_of(db.open_table(above), "n", "most") == [(3, 100)]
    assert rest.post(f"/v1/materialized_view/{below}/describe")["state"] == "fresh"
