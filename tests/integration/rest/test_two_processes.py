"""Two Pennons on one catalog: what one has answered, the other knows."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from pennon.catalog import keys, open_database
from pennon.core.caller import Role
from pennon.core.clock import now_millis
from tests.integration.rest.samples import STREAM, rows, stream
from tests.integration.rest.wire import Wire
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pennon.catalog import Database
    from tests.support.postgres import PostgresServer

TURNS = 100


@contextmanager
def running_pair(home: Path, database: str) -> Iterator[tuple[Wire, Wire]]:
    """Run two servers with the same catalog and the same tables."""
    arguments = ["--database", database, "--root", str(home / "tables"), "--processes", "1"]
    first, second = (PennonProcess(home / name, *arguments) for name in ("one", "two"))
    with first, second, closing(Wire(first.url)) as one, closing(Wire(second.url)) as two:
        yield one, two


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Wire, Wire]]:
    """Two servers for the tests of this module, once on each kind of database."""
    home = tmp_path_factory.mktemp("pair")
    database = f"sqlite:///{home / 'catalog.db'}"
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        database = postgres.url(postgres.create_database())
    with running_pair(home, database) as servers:
        yield servers


@pytest.fixture
def guarded(catalog_url: str, tmp_path: Path) -> Iterator[tuple[tuple[Wire, Wire], Database]]:
    """Two servers whose callers need keys, and their catalog."""
    with running_pair(tmp_path, catalog_url) as servers, closing(open_database(catalog_url)) as database:
        servers[0].post("/v1/namespace/a/create")
        servers[0].post("/v1/table/a%24t/declare")
        yield servers, database


def test_a_write_through_one_is_seen_by_the_next_read_through_the_other(pair: tuple[Wire, Wire]) -> None:
    for turn in range(TURNS):
        writing, reading = pair if turn % 2 else pair[::-1]
        name, table = f"n{turn}", f"t{turn:03}"
        assert writing.post(f"/v1/namespace/{name}/create", {"properties": {"turn": str(turn)}}).status == 200
        assert reading.post(f"/v1/namespace/{name}/describe").json["properties"] == {"turn": str(turn)}
        assert writing.post(f"/v1/table/{table}/declare").status == 200
        assert table in reading.get("/v1/namespace/%24/table/list").json["tables"]
        assert (
            reading.post(f"/v1/table/{table}/rename", {"new_table_name": "x", "new_namespace_id": [name]}).status == 200
        )
        assert writing.post(f"/v1/table/{table}/exists").outcome == (404, 4)
        assert writing.post(f"/v1/table/{name}%24x/exists").status == 200
        assert reading.post(f"/v1/namespace/{name}/drop", {"behavior": "cascade"}).status == 200
        assert writing.post(f"/v1/namespace/{name}/exists").outcome == (404, 1)


def test_a_version_committed_through_one_is_the_newest_through_the_other(pair: tuple[Wire, Wire]) -> None:
    assert pair[0].post("/v1/table/v/create", stream(rows(1)), STREAM).status == 200
    for turn in range(20):
        writing, reading = pair if turn % 2 else pair[::-1]
        assert writing.post("/v1/table/v/insert", stream(rows(1, turn)), STREAM).status == 200
        assert reading.post("/v1/table/v/describe").json["version"] == turn + 2
        assert reading.post("/v1/table/v/count_rows").json == turn + 2


def test_a_table_made_again_through_one_is_the_new_one_through_the_other(pair: tuple[Wire, Wire]) -> None:
    for turn in range(10):
        writing, reading = pair if turn % 2 else pair[::-1]
        assert writing.post("/v1/table/t/create", stream(rows(turn + 1)), STREAM).status == 200
        assert reading.post("/v1/table/t/count_rows").json == turn + 1
        assert reading.post("/v1/table/t/describe/").json["version"] == 1
        assert reading.post("/v1/table/t/drop").status == 200
        assert writing.post("/v1/table/t/exists").outcome == (404, 4)


def created_key(database: Database, name: str, namespace: str, expires_at: int | None = None) -> str:
    return database.write(lambda c: keys.create(c, name, Role.READER, (namespace,), expires_at)) or ""


def outcomes(servers: tuple[Wire, Wire], headers: dict[str, str], body: object = None) -> set[tuple[int, int | None]]:
    """Ask both servers for the same table, several times, so that what they keep would answer."""
    found = set()
    for wire in servers:
        for verb in ("describe", "exists"):
            for _ in range(3):
                answer = wire.post(f"/v1/table/a%24t/{verb}", {} if body is None else body, headers)
                found.add((answer.status, None) if answer.status == 200 else answer.outcome)
    return found


def test_what_is_kept_for_one_caller_is_not_given_to_another(guarded: tuple[tuple[Wire, Wire], Database]) -> None:
    servers, database = guarded
    assert outcomes(servers, {}) == {(200, None)}
    ada, bob = created_key(database, "ada", "a"), created_key(database, "bob", "b")
    for _ in range(2):
        assert outcomes(servers, {"x-api-key": ada}) == {(200, None)}
        assert outcomes(servers, {"x-api-key": bob}) == {(404, 4)}
        assert outcomes(servers, {}) == {(401, 16)}
        assert outcomes(servers, {"authorization": f"Bearer {ada}"}) == {(200, None)}
        assert outcomes(servers, {}, {"identity": {"api_key": ada}}) == {(200, None)}
        assert outcomes(servers, {}, {"identity": {"api_key": bob}}) == {(404, 4)}
        assert outcomes(servers, {"x-api-key": bob}, {"identity": {"api_key": ada}}) == {(404, 4)}


def test_a_revoked_key_is_refused_at_once_by_both(guarded: tuple[tuple[Wire, Wire], Database]) -> None:
    servers, database = guarded
    for turn in range(10):
        key = {"x-api-key": created_key(database, f"ada{turn}", "a")}
        assert outcomes(servers, key) == {(200, None)}
        assert database.write(lambda c: keys.revoke(c, f"ada{turn}"))  # noqa: B023
        assert outcomes(servers, key) == {(401, 16)}


def test_a_key_that_expires_is_refused_from_then_on(guarded: tuple[tuple[Wire, Wire], Database]) -> None:
    servers, database = guarded
    expires_at = now_millis() + 3000
    key = {"x-api-key": created_key(database, "ada", "a", expires_at)}
    first = outcomes(servers, key)
    assert first == {(200, None)} or now_millis() >= expires_at
    time.sleep(max(0, expires_at - now_millis()) / 1000 + 0.01)
    assert outcomes(servers, key) == {(401, 16)}
