"""Two Pennons on one PostgreSQL: what one has answered, the other knows."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.integration.rest.samples import STREAM, rows, stream
from tests.integration.rest.wire import Wire
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer

TURNS = 100


@pytest.fixture(scope="module")
def pair(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Wire, Wire]]:
    """Two servers with the same catalog and the same tables."""
    home = tmp_path_factory.mktemp("pair")
    database = postgres_server.create_database()
    arguments = ["--database", postgres_server.url(database), "--root", str(home / "tables"), "--processes", "1"]
    first, second = (PennonProcess(home / name, *arguments) for name in ("one", "two"))
    with first, second, closing(Wire(first.url)) as one, closing(Wire(second.url)) as two:
        yield one, two
    postgres_server.drop_database(database)


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
