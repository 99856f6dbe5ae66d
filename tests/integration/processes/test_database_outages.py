"""A PostgreSQL that ends connections, or goes away and comes back: nothing is lost, doubled or answered with a 500."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.conftest import StartPennon
from tests.integration.data.tables import DataTable, rows
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.rest import RestClient

WRITERS = 4
ROUNDS = 20
#: Rows that are written between two outages.
PAUSE = 10


@pytest.fixture
def mortal_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for a test that stops it."""
    with running_postgres() as server:
        yield server


def test_connections_that_end_at_any_moment_lose_and_double_nothing(
    start_pennon: StartPennon, postgres_url: str
) -> None:
    server = start_pennon("--database", postgres_url)
    end_all = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'pennon' AND datname = current_database()
    """
    with RestClient(server.url) as http, psycopg.connect(postgres_url, autocommit=True) as administrator:
        table = DataTable(http).create(rows(1))

        def insert(writer: int) -> list[int]:
            numbers = [1 + writer * ROUNDS + turn for turn in range(ROUNDS)]
            answers = []
            for number in numbers:
                answers.append(table.send("insert", rows(number, number + 1)))
                if number % PAUSE == 0:
                    administrator.execute(end_all)  # in the middle of what the others ask for
            assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
            return numbers

        def tag(turn: int) -> int:
            return table.ask("tags/create", {"tag": f"t{turn}", "version": 1}).status_code

        with ThreadPoolExecutor(WRITERS + 1) as threads:
            tagged = threads.submit(lambda: [tag(turn) for turn in range(ROUNDS)])
            written = [number for numbers in threads.map(insert, range(WRITERS)) for number in numbers]
            assert tagged.result() == [200] * ROUNDS
        assert sorted(table.ids()) == [0, *sorted(written)]
        assert len(table.do("tags/list")["tags"]) == ROUNDS


def test_a_server_outlives_a_restart_of_its_database(
    start_pennon: StartPennon, mortal_postgres: PostgresServer
) -> None:
    server = start_pennon("--database", mortal_postgres.url(mortal_postgres.create_database()))
    with RestClient(server.url) as http:
        table = DataTable(http).create(rows(1))
        mortal_postgres.interrupt()
        calls: list[Callable[[], int]] = [
            lambda: table.send("insert", rows(1, 2)).status_code,
            lambda: table.ask("describe").status_code,
            lambda: table.ask("tags/create", {"tag": "kept", "version": 1}).status_code,
            lambda: table.ask("query", {"k": 1}).status_code,
            lambda: http.raw.post("/v1/namespace/n/create", json={}).status_code,
        ]
        with ThreadPoolExecutor(len(calls)) as threads:
            waiting = [threads.submit(call) for call in calls]
            assert http.get("/healthz")["status"] == "ok"  # nobody waits who does not need the catalog
            mortal_postgres.resume()
            assert [answer.result() for answer in waiting] == [200] * len(calls)
        assert table.ids() == [0, 1]
