"""Requests that are sent again under their key: one effect, one answer."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from lance_namespace.errors import ConcurrentModificationError

from pennon.catalog import open_database
from pennon.catalog.schema import migrate
from pennon.server.idempotency import effect_recorder
from pennon.server.operations.table import OPERATIONS
from tests.integration.rest.everything import everything_in
from tests.integration.rest.samples import SAMPLES, STREAM, Home, path_of, rows, stream
from tests.integration.rest.wire import Wire

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.server.operations.model import Operation
    from tests.support.server import PennonProcess


#: What goes on after the answer.
BUILT = {"CreateTableIndex": "vector_idx", "CreateTableScalarIndex": "id_idx"}


@pytest.fixture
def key() -> dict[str, str]:
    return {"idempotency-key": secrets.token_hex(16)}


def test_a_change_that_is_repeated_has_one_effect_and_one_answer(home: Home, key: dict[str, str]) -> None:
    path = f"/v1/table/{home.name}%24t/declare"
    first = home.wire.post(path, {"properties": {"a": "b"}}, key)
    again = home.wire.post(path, {"properties": {"a": "b"}}, key)
    assert first.status == again.status == 200
    assert again.json == first.json
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert home.wire.post(path, {"properties": {"a": "b"}}).outcome == (409, 5)


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.mutates], ids=lambda row: row.id)
def test_every_change_may_be_repeated(home: Home, key: dict[str, str], row: Operation) -> None:
    sample = SAMPLES[row.id](home.fill())
    path = path_of(row, sample.identifier, sample.values, sample.query)
    headers = {**key, **STREAM} if sample.arrow else key
    first = home.wire.post(path, sample.body or {}, headers)
    if row.id in BUILT:
        home.ask("table", home.table, f"index/{BUILT[row.id]}/prewarm")  # waits until it is built
    before = everything_in(home.directory)
    again = home.wire.post(path, sample.body or {}, headers)
    assert first.status < 300
    assert (again.status, again.content) == (first.status, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert everything_in(home.directory) == before
    other = stream(rows(7)) if sample.arrow else {**(sample.body or {}), "other": 1}
    assert home.wire.post(path, other, headers).outcome == (422, 13)


def test_rows_that_are_sent_again_are_there_once(home: Home, key: dict[str, str]) -> None:
    home.fill()
    path = f"/v1/table/{home.name}%24t/insert"
    answers = [home.wire.post(path, stream(rows(1, 50)), {**STREAM, **key}) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert len({answer.content for answer in answers}) == 1
    assert home.wire.post(f"/v1/table/{home.name}%24t/count_rows").json == 10


def test_a_key_belongs_to_one_request(home: Home, key: dict[str, str]) -> None:
    assert home.wire.post(f"/v1/table/{home.name}%24t/declare", {}, key).status == 200
    others: list[tuple[str, Any]] = [
        (f"/v1/table/{home.name}%24t/declare", {"properties": {}}),
        (f"/v1/table/{home.name}%24u/declare", {}),
        (f"/v1/table/{home.name}%24t/drop", {}),
        (f"/v1/table/{home.name}%24t/declare?delimiter=%24", {}),
    ]
    for path, body in others:
        assert home.wire.post(path, body, key).outcome == (422, 13)
    assert home.wire.post(f"/v1/table/{home.name}%24t/exists").status == 200


def test_a_refusal_is_not_kept(home: Home, key: dict[str, str]) -> None:
    path = f"/v1/table/{home.name}%24inner%24t/declare"
    assert home.wire.post(path, {}, key).outcome == (404, 1)
    home.ask("namespace", home.other("inner"), "create")
    assert home.wire.post(path, {}, key).status == 200


def test_what_cannot_be_a_key_is_refused(home: Home) -> None:
    for bad in ("", "a b", "x" * 201, "ümläut"):
        answer = home.wire.post(f"/v1/table/{home.name}%24t/declare", {}, {"idempotency-key": bad})
        assert answer.outcome == (400, 13)
    assert home.wire.post(f"/v1/table/{home.name}%24t/exists").outcome == (404, 4)


def test_who_only_reads_needs_none(home: Home, key: dict[str, str]) -> None:
    for name in (home.name, "%24"):
        assert home.wire.get(f"/v1/namespace/{name}/list", key).status == 200


def test_requests_that_race_under_one_key_have_one_effect(
    home: Home, key: dict[str, str], pennon_server: PennonProcess
) -> None:
    home.fill()

    def send(_: int) -> Any:
        with closing(Wire(pennon_server.url)) as wire:
            answer = wire.post(f"/v1/table/{home.name}%24t/insert", stream(rows(1, 50)), {**STREAM, **key})
            return answer.status, answer.content

    with ThreadPoolExecutor(6) as threads:
        answers = set(threads.map(send, range(6)))
    assert {status for status, _ in answers} == {200}
    assert len(answers) == 1
    assert home.wire.post(f"/v1/table/{home.name}%24t/count_rows").json == 10


def test_what_leaves_no_transaction_is_repeated_too(home: Home, key: dict[str, str]) -> None:
    home.fill()
    path = f"/v1/table/{home.name}%24t/multipart_write/create"
    first, again = (home.wire.post(path, {}, key) for _ in range(2))
    assert first.status == again.status == 200
    assert again.json == first.json
    assert home.wire.post(path, {}).json != first.json


def test_an_unread_body_is_recognized_when_sent_again(home: Home, key: dict[str, str]) -> None:
    home.fill()
    path = f"/v1/table/{home.name}%24t/create?mode=exist_ok"
    large = stream(rows(400_000))
    first, again = (home.wire.post(path, large, {**key, **STREAM}) for _ in range(2))
    assert (first.status, again.status, again.json) == (200, 200, first.json)
    assert again.headers["idempotency-replayed"] == "true"


def test_headers_and_every_parameter_belong_to_a_request(home: Home) -> None:
    home.fill()
    path = f"/v1/table/{home.name}%24t"
    merge = f"{path}/merge_insert?when_not_matched_insert_all=true&on="
    pairs: list[tuple[tuple[str, dict[str, str]], tuple[str, dict[str, str]]]] = [
        ((f"{merge}id", {}), (f"{merge}nope&on=id", {})),
        ((f"{path}/insert", {}), (f"{path}/insert", {"x-lancedb-database": home.name})),
    ]
    for (first, headers), (second, others) in pairs:
        key = {"idempotency-key": secrets.token_hex(16), **STREAM}
        assert home.wire.post(first, stream(rows(1, 50)), {**key, **headers}).status == 200
        assert home.wire.post(second, stream(rows(1, 50)), {**key, **others}).outcome == (422, 13)


def test_an_attempt_that_was_undone_does_not_count_as_the_first(catalog_url: str) -> None:
    with closing(open_database(catalog_url)) as database:
        migrate(database)
        ours, others = (effect_recorder("someone", "key", lambda: "request") for _ in range(2))

        def undone(connection: Connection) -> None:
            ours(connection, "t1")
            raise LookupError

        with pytest.raises(LookupError):
            database.write(undone)
        database.write(lambda connection: others(connection, "t2"))
        for again in ("t3", "t4"):
            database.write(lambda connection, again=again: others(connection, again))  # type: ignore[misc]
        with pytest.raises(ConcurrentModificationError):
            database.write(lambda connection: ours(connection, "t5"))
