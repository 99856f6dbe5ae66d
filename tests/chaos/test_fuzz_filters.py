"""Random SQL against a server with little memory: it answers all of it, and goes on."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from tests.chaos.sql_fuzz import NUMBER, TEXT, TRUTH, SqlFuzz
from tests.integration.data.tables import DataTable, rows
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

#: A fresh server has an address space of 1.9 GB.
ADDRESS_SPACE_BYTES = 5 * 1024**3
#: What the server's own process may hold: what it starts with, its caches, and some batches.
MOST_BYTES = 1024**3
SEED = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server that would abort, were it to ask for much memory."""
    env = {"PENNON_QUERY_TIMEOUT_SECONDS": "5"}
    directory = tmp_path_factory.mktemp("fuzz")
    with PennonProcess(directory, env=env, address_space_bytes=ADDRESS_SPACE_BYTES) as started:
        yield started


@pytest.fixture
def table(server: PennonProcess) -> Iterator[DataTable]:
    with RestClient(server.url) as http:
        data = rows(300).append_column("b", pa.array([b"\xca\xfe"] * 300))
        yield DataTable(http).create(data)


def send(table: DataTable, fuzz: SqlFuzz) -> tuple[str, httpx.Response]:
    """Send a random request with random SQL, and return what was sent with the answer."""
    random = fuzz.random
    kind = random.choice(["filter", "filter", "broken", "long", "columns", "count", "update", "delete", "plan", "add"])
    condition = fuzz.expression(TRUTH)
    value = fuzz.expression(TEXT)
    column = {"name": f"x{secrets.token_hex(4)}", "expression": fuzz.expression(NUMBER)}
    limit = random.choice([1, 10, 1000])
    bodies = {
        "filter": ("query", {"k": limit, "filter": condition}),
        "broken": ("query", {"k": limit, "filter": fuzz.broken()}),
        "long": ("query", {"k": limit, "filter": fuzz.long()}),
        "columns": ("query", {"k": limit, "columns": {"column_aliases": {"x": value, "id": "id"}}}),
        "count": ("count_rows", {"predicate": condition}),
        "update": ("update", {"updates": [["word", value]], "predicate": f"id = 7 AND ({condition})"}),
        "delete": ("delete", {"predicate": f"id > 290 AND ({condition})"}),
        "plan": ("analyze_plan", {"k": limit, "vector": {}, "filter": condition}),
        "add": ("add_columns", {"new_columns": [column]}),
    }
    verb, body = bodies[kind]
    return f"{verb} {str(body)[:600]}", table.ask(verb, body)


def run(server: PennonProcess, table: DataTable, seed: int, requests: int) -> Counter[int]:
    fuzz, pid = SqlFuzz(seed), server.pid
    statuses: Counter[int] = Counter()
    for number in range(requests):
        sent, answer = send(table, fuzz)
        where = f"request {number} of seed {seed}: {sent} gave {answer.text[:500]}"
        assert answer.status_code in {200, 400, 404}, where
        assert Path(f"/proc/{pid}").exists(), where
        assert server.returncode is None, where
        statuses[answer.status_code] += 1
    assert server.peak_memory_bytes < MOST_BYTES
    assert table.count() > 200
    return statuses


def test_random_sql_ends_no_server(server: PennonProcess, table: DataTable) -> None:
    statuses = run(server, table, SEED, 100)
    assert min(statuses[200], statuses[400]) > 10  # so that the generator is neither always right nor always wrong


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_much_random_sql_ends_no_server(server: PennonProcess, table: DataTable) -> None:
    for seed in range(20):
        run(server, table, seed, 300)
