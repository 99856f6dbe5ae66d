"""A fuzz of Arrow bodies: whatever is sent, the server lives, stays within its memory, and keeps the rows it had."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.chaos.arrow_bodies import ROWS, hostile_bodies, mutated, stream_of, table_rows, valid_bodies
from tests.support.server import PennonProcess

SEED = 20_261_116
MEGABYTE = 1024 * 1024
BATCH_BYTES = 16 * MEGABYTE
BATCH_MEMORY = 32 * MEGABYTE
ADDRESS_SPACE = 5 * 1024 * MEGABYTE
#: What decoding, checking and writing of what is within the limits may take beyond the limits themselves.
SLACK = 192 * MEGABYTE
STREAM = {"content-type": "application/vnd.apache.arrow.stream"}
ROUTES = (
    "/v1/table/fuzz_{number}/create",
    "/v1/table/fuzz/insert?mode=append",
    "/v1/table/fuzz/merge_insert?on=id&when_matched_update_all=true&when_not_matched_insert_all=true",
    "/v1/table/fuzz/add_columns",
)


class Target:
    """A server under attack, and what its table must hold."""

    def __init__(self, server: PennonProcess, http: httpx.Client) -> None:
        self.server = server
        self.http = http
        self.rows = ROWS
        self.sent = 0
        self.statuses: dict[int, int] = {}
        created = http.post("/v1/table/fuzz/create", content=stream_of([table_rows(0)]), headers=STREAM)
        assert created.status_code == 200, created.text
        self.memory_before = server.peak_memory_bytes

    def send(self, body: bytes, about: str) -> None:
        """Send a body to each route, and look at what came of it."""
        for route in ROUTES:
            self.sent += 1
            path = route.format(number=self.sent)
            answer = self.http.post(path, content=body, headers=STREAM)
            status = answer.status_code
            self.statuses[status] = self.statuses.get(status, 0) + 1
            assert status in {200, 400, 404, 406, 409, 413}, f"{about}: {path}: {status} {answer.text[:500]}"
            if status == 200 and "insert" in path:
                made = answer.json()
                self.rows += made.get("num_inserted_rows", 0)
            elif status == 200 and path.endswith("/create"):
                self.http.post(f"/v1/table/fuzz_{self.sent}/drop", json={})

    def check(self, about: str) -> None:
        """Look whether the table has the rows that were accepted, and can be read."""
        assert self.server.returncode is None, about
        assert self.http.post("/v1/table/fuzz/count_rows", json={}).json() == self.rows, about
        query = {"k": 10_000_000, "vector": {"single_vector": []}, "columns": {"column_names": ["id", "text"]}}
        assert self.http.post("/v1/table/fuzz/query", json=query).status_code == 200, about
        grown = self.server.peak_memory_bytes - self.memory_before
        assert grown < BATCH_MEMORY + SLACK, f"{about}: the server grew by {grown // MEGABYTE} MB"


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    limits = ["--max-batch-bytes", str(BATCH_BYTES), "--batch-memory-bytes", str(BATCH_MEMORY)]
    folder = tmp_path_factory.mktemp("fuzz")
    started = PennonProcess(folder, *limits, address_space_bytes=ADDRESS_SPACE)
    with started as server, httpx.Client(base_url=server.url, timeout=60) as http:
        yield Target(server, http)


def fuzz(target: Target, seed: int, seconds: float, most: int) -> None:
    choice = random.Random(seed)  # noqa: S311 (so that it can be repeated)
    bodies = list(valid_bodies())
    deadline = time.monotonic() + seconds
    for number in range(most):
        if time.monotonic() > deadline:
            break
        target.send(mutated(choice.choice(bodies), choice), f"seed {seed}, mutation {number}")
        if number % 25 == 24:
            target.check(f"seed {seed}, mutation {number}")
    target.check(f"seed {seed}, at the end")


def test_hostile_and_mutated_bodies_do_no_harm(target: Target) -> None:
    for number, body in enumerate(hostile_bodies(BATCH_BYTES)):
        target.send(body, f"hostile body {number}")
        target.check(f"hostile body {number}")
    for number, body in enumerate(valid_bodies()):
        target.send(body, f"valid body {number}")
    target.check("valid bodies")
    fuzz(target, SEED, seconds=8, most=60)


@pytest.mark.long
def test_many_mutated_bodies_do_no_harm(target: Target) -> None:
    fuzz(target, random.SystemRandom().randrange(2**32), seconds=180, most=100_000)
