"""API keys over HTTP: who is let in, what each may do, and what is hidden from whom."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from pennon.catalog import keys, open_database
from pennon.core.caller import Role
from pennon.core.clock import now_millis
from pennon.server.operations.table import OPERATIONS
from tests.integration.rest.samples import STREAM, path_of, stream
from tests.integration.rest.wire import Answer, Wire
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartPennon


OPTIONS = {"aws_secret_access_key": "hush", "region": "eu"}


class Guarded:
    """A server with keys, and a catalog to make more of them in."""

    def __init__(self, server: PennonProcess) -> None:
        self.server = server
        self.database = open_database(f"sqlite:///{server.directory / '.pennon' / 'catalog.db'}")
        self.wire = Wire(server.url, [str(server.directory)])

    def key(self, name: str, role: Role, *scope: str, expires_at: int | None = None) -> str:
        made = self.database.write(lambda c: keys.create(c, name, role, scope, expires_at))
        assert made is not None
        return made

    def revoke(self, name: str) -> None:
        assert self.database.write(lambda c: keys.revoke(c, name))

    def ask(self, key: str, method: str, path: str, body: Any = None) -> Answer:
        if method == "GET":
            return self.wire.get(path, {"x-api-key": key})
        headers = {"x-api-key": key, **(STREAM if isinstance(body, bytes) else {})}
        return self.wire.post(path, body, headers)

    def close(self) -> None:
        self.database.close()
        self.wire.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server with an administrator, namespaces a, a$inner and b, a table t in each, and keys of every kind."""
    vending = ["--vend-credentials", "--storage-options", json.dumps(OPTIONS)]
    with PennonProcess(tmp_path_factory.mktemp("pennon"), *vending) as server, closing(Guarded(server)) as made:
        admin = made.key("admin", Role.ADMIN)
        for name in ("a", "a%24inner", "b"):
            assert made.ask(admin, "POST", f"/v1/namespace/{name}/create").status == 200
        for name in ("t", "a%24t", "a%24inner%24t", "b%24t", "a%24declared"):
            body = None if "declared" in name else stream()
            verb = "declare" if body is None else "create"
            assert made.ask(admin, "POST", f"/v1/table/{name}/{verb}", body).status == 200
        made.admin = admin  # type: ignore[attr-defined]
        yield made


@pytest.fixture(scope="module")
def reader(guarded: Guarded) -> str:
    return guarded.key("reader of a", Role.READER, "a")


@pytest.fixture(scope="module")
def writer(guarded: Guarded) -> str:
    return guarded.key("writer of a", Role.WRITER, "a")


@pytest.fixture(scope="module")
def deep(guarded: Guarded) -> str:
    return guarded.key("writer deep in a", Role.WRITER, "a", "inner")


@pytest.fixture(scope="module")
def early(guarded: Guarded) -> str:
    return guarded.key("writer of what is not there yet", Role.WRITER, "ab", "inner")


class TestEntrance:
    @pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.id)
    def test_without_a_key_no_operation_answers(self, guarded: Guarded, row: Any) -> None:
        body = stream() if row.body == "arrow" else None
        for key in ("", "wrong"):
            answer = guarded.ask(key, row.method, path_of(row, "a%24t"), body)
            assert answer.outcome == (401, 16)
            assert answer.headers["www-authenticate"] == "Bearer"
            guarded.wire.close()

    def test_every_way_to_send_a_key_is_taken(self, guarded: Guarded, reader: str) -> None:
        path = "/v1/table/a%24t/exists"
        for headers, body in (
            ({"x-api-key": reader}, None),
            ({"authorization": f"Bearer {reader}"}, None),
            ({}, {"identity": {"api_key": reader}}),
            ({}, {"identity": {"auth_token": reader}}),
        ):
            assert guarded.wire.post(path, body, headers).status == 200
        assert guarded.wire.post(path, {"identity": {"api_key": "wrong"}}).outcome == (401, 16)
        wrong_header = guarded.wire.post(path, {"identity": {"api_key": reader}}, {"x-api-key": "wrong"})
        assert wrong_header.outcome == (401, 16)

    def test_a_large_body_is_not_looked_into_for_a_key(self, guarded: Guarded, reader: str) -> None:
        path = "/v1/table/a%24t/exists"
        large = {"identity": {"api_key": reader}, "context": {"note": "x" * 2**20}}
        assert guarded.wire.post(path, large).outcome == (401, 16)
        assert guarded.wire.post(path, large, {"x-api-key": reader}).status == 200

    def test_a_revoked_key_opens_nothing_at_once(self, guarded: Guarded) -> None:
        key = guarded.key("to be revoked", Role.ADMIN)
        for _ in range(5):
            assert guarded.ask(key, "GET", "/v1/table").status == 200
        guarded.revoke("to be revoked")
        for _ in range(5):
            assert guarded.ask(key, "GET", "/v1/table").outcome == (401, 16)

    def test_an_expired_key_opens_nothing(self, guarded: Guarded) -> None:
        expired = guarded.key("expired", Role.ADMIN, expires_at=now_millis() - 1)
        lasting = guarded.key("lasting", Role.ADMIN, expires_at=now_millis() + 600_000)
        assert guarded.ask(expired, "GET", "/v1/table").outcome == (401, 16)
        assert guarded.ask(lasting, "GET", "/v1/table").status == 200

    def test_with_keys_any_name_and_any_page_may_ask(self, guarded: Guarded, reader: str) -> None:
        headers = {"host": "example.com", "origin": "http://elsewhere", "x-api-key": reader}
        assert guarded.wire.get("/v1/table", headers).status == 200

    def test_pages_about_the_server_need_none(self, guarded: Guarded) -> None:
        for path in ("/healthz", "/readyz", "/openapi.json", "/metrics"):
            assert guarded.wire.get(path).status == 200


class TestRoles:
    def test_a_reader_reads_and_changes_nothing(self, guarded: Guarded, reader: str) -> None:
        for verb in ("describe", "exists", "version/list", "count_rows", "stats"):
            assert guarded.ask(reader, "POST", f"/v1/table/a%24t/{verb}").status == 200
        for path, body in (
            ("/v1/table/a%24t/drop", None),
            ("/v1/table/a%24t/deregister", None),
            ("/v1/table/a%24new/declare", None),
            ("/v1/table/a%24new/create-empty", None),
            ("/v1/table/a%24t/rename", {"new_table_name": "u"}),
            ("/v1/table/a%24t/insert", stream()),
            ("/v1/table/a%24t/version/create", {"version": 2, "manifest_path": "x"}),
            ("/v1/table/batch-commit", {"operations": [{"declare_table": {"id": ["a", "new"]}}]}),
            ("/v1/namespace/a%24new/create", None),
            ("/v1/namespace/a/drop", None),
        ):
            answer = guarded.ask(reader, "POST", path, body)
            assert answer.outcome == (403, 15), path
            assert "reader of a" in answer.json["error"]
            guarded.wire.close()

    def test_a_writer_writes_where_it_may(self, guarded: Guarded, writer: str) -> None:
        assert guarded.ask(writer, "POST", "/v1/table/a%24mine/declare").status == 200
        assert guarded.ask(writer, "POST", "/v1/table/a%24mine/rename", {"new_table_name": "mine2"}).status == 200
        assert guarded.ask(writer, "POST", "/v1/table/a%24mine2/drop").status == 200
        assert guarded.ask(writer, "POST", "/v1/namespace/a%24mine/create").status == 200
        assert guarded.ask(writer, "POST", "/v1/namespace/a%24mine/drop").status == 200

    def test_a_location_is_named_only_by_who_is_not_confined(self, guarded: Guarded, writer: str) -> None:
        for verb in ("register", "declare", "create-empty"):
            answer = guarded.ask(writer, "POST", f"/v1/table/a%24new/{verb}", {"location": "t.lance"})
            assert answer.outcome == (403, 15)

    def test_a_table_is_not_moved_out_of_what_was_granted(self, guarded: Guarded, writer: str) -> None:
        for namespace in (["b"], [], ["nope"]):
            body = {"new_table_name": "stolen", "new_namespace_id": namespace}
            answer = guarded.ask(writer, "POST", "/v1/table/a%24t/rename", body)
            assert answer.outcome == (404, 4)


class TestHiding:
    HIDDEN = ("t", "b%24t", "nope", "b%24nope", "nope%24t", "a")

    def test_what_is_hidden_is_answered_as_what_does_not_exist(self, guarded: Guarded, writer: str) -> None:
        for verb in ("describe", "exists", "drop", "deregister", "declare", "version/list", "count_rows"):
            for name in self.HIDDEN:
                answer = guarded.ask(writer, "POST", f"/v1/table/{name}/{verb}")
                assert answer.outcome == (404, 4)
                assert answer.json["error"] == f"Table {name.replace('%24', '$')!r} does not exist."
        for verb in ("describe", "exists", "create", "drop"):
            for name in ("b", "nope", "b%24nope"):
                answer = guarded.ask(writer, "POST", f"/v1/namespace/{name}/{verb}")
                assert answer.outcome == (404, 1)
                assert answer.json["error"] == f"Namespace {name.replace('%24', '$')!r} does not exist."

    @pytest.mark.parametrize("listing", ["list", "table/list"])
    def test_the_listings_of_a_hidden_namespace_do_not_exist(self, guarded: Guarded, writer: str, listing: str) -> None:
        for name in ("b", "nope"):
            answer = guarded.ask(writer, "GET", f"/v1/namespace/{name}/{listing}")
            assert answer.outcome == (404, 1)

    def test_listings_hold_what_may_be_seen(self, guarded: Guarded, reader: str, deep: str) -> None:
        def tables(key: str, path: str) -> Any:
            return guarded.ask(key, "GET", path).json["tables"]

        assert tables(reader, "/v1/table?delimiter=%24") == ["a$declared", "a$t", "a$inner$t"]
        assert tables(deep, "/v1/table?delimiter=%24") == ["a$inner$t"]
        assert tables(deep, "/v1/namespace/%24/table/list") == []
        assert tables(deep, "/v1/namespace/a/table/list") == []
        assert tables(deep, "/v1/namespace/a%24inner/table/list") == ["t"]
        assert tables(reader, "/v1/table/") == []

    def test_the_ancestors_of_a_confined_namespace_are_visible_and_nothing_else(
        self, guarded: Guarded, deep: str
    ) -> None:
        def namespaces(path: str) -> Any:
            return guarded.ask(deep, "GET", path).json["namespaces"]

        assert namespaces("/v1/namespace/%24/list") == ["a"]
        assert namespaces("/v1/namespace/a/list") == ["inner"]
        assert guarded.ask(deep, "POST", "/v1/namespace/a/exists").status == 200
        assert guarded.ask(deep, "POST", "/v1/namespace/a/drop").outcome == (403, 15)
        assert guarded.ask(deep, "POST", "/v1/table/a%24t/exists").outcome == (404, 4)

    def test_errors_above_a_confined_namespace_name_no_other_object(self, guarded: Guarded, early: str) -> None:
        for verb in ("describe", "exists"):
            answer = guarded.ask(early, "POST", f"/v1/namespace/ab/{verb}")
            assert answer.json["error"] == "Namespace 'ab' does not exist."
        for listing in ("list", "table/list"):
            answer = guarded.ask(early, "GET", f"/v1/namespace/ab/{listing}")
            assert answer.json["error"] == "Namespace 'ab' does not exist."

    def test_pages_of_what_may_be_seen_are_whole(self, guarded: Guarded, reader: str) -> None:
        seen: list[str] = []
        token = ""
        while True:
            page = guarded.ask(reader, "GET", f"/v1/table?delimiter=%24&limit=1&page_token={token}").json
            seen += page["tables"]
            token = page.get("page_token")
            if not token:
                break
        assert seen == ["a$declared", "a$t", "a$inner$t"]

    def test_a_transaction_is_seen_by_who_may_see_its_object(self, guarded: Guarded, writer: str, reader: str) -> None:
        made = guarded.ask(writer, "POST", "/v1/table/a%24noted/declare").json["transaction_id"]
        path = f"/v1/transaction/{made}/describe"
        assert guarded.ask(reader, "POST", path).json["properties"]["principal"] == "writer of a"
        other = guarded.key(f"other {made}", Role.ADMIN, "b")
        assert guarded.ask(other, "POST", path).outcome == (404, 10)
        alter = {"actions": [{"set_property_action": {"key": "k", "value": "v"}}]}
        assert guarded.ask(reader, "POST", f"/v1/transaction/{made}/alter", alter).outcome == (403, 15)
        assert guarded.ask(writer, "POST", f"/v1/transaction/{made}/alter", alter).status == 200

    def test_who_needs_a_version_is_not_named_to_who_may_not_see_it(
        self, guarded: Guarded, writer: str, deep: str
    ) -> None:
        location = guarded.ask(writer, "POST", "/v1/table/a%24inner%24t/describe").json["location"]
        clone = {"source_location": location}
        assert guarded.ask(writer, "POST", "/v1/table/a%24secret/clone", clone).status == 200
        assert guarded.ask(writer, "POST", "/v1/table/a%24inner%24t/insert", stream()).status == 200
        doomed = {"ranges": [{"start_version": 1, "end_version": 2}]}
        for path, body in (("version/delete", doomed), ("drop", None)):
            refused = guarded.ask(deep, "POST", f"/v1/table/a%24inner%24t/{path}", body)
            assert refused.outcome == (409, 19)
            assert "secret" not in refused.json["error"]
        assert guarded.ask(writer, "POST", "/v1/table/a%24secret/drop").status == 200

    def test_a_hidden_database_is_not_listed(self, guarded: Guarded, writer: str) -> None:
        headers = {"x-api-key": writer}
        answers = [
            guarded.wire.post("/v1/table/t/describe/", None, {**headers, "x-lancedb-database": name}).json["error"]
            for name in ("b", "nope")
        ]
        assert answers[0] == answers[1]


class TestFirstKey:
    def test_the_first_key_closes_the_door_while_the_server_runs(self, start_pennon: StartPennon) -> None:
        server = start_pennon()
        with closing(Guarded(server)) as guarded:
            assert guarded.wire.get("/v1/table").status == 200
            key = guarded.key("first", Role.READER)
            for _ in range(10):
                assert guarded.wire.get("/v1/table").outcome == (401, 16)
                assert guarded.ask(key, "GET", "/v1/table").status == 200


def test_the_properties_of_a_namespace_above_are_hidden(guarded: Guarded) -> None:
    admin = guarded.admin  # type: ignore[attr-defined]
    for name in ("above", "above%24below"):
        assert guarded.ask(admin, "POST", f"/v1/namespace/{name}/create", {"properties": {"of": name}}).status == 200
    confined = guarded.key("below alone", Role.ADMIN, "above", "below")
    assert guarded.ask(confined, "POST", "/v1/namespace/above/describe").json == {"properties": {}}
    assert guarded.ask(confined, "POST", "/v1/namespace/above/exists").status == 200
    assert guarded.ask(confined, "POST", "/v1/namespace/above%24below/describe").json["properties"] != {}
    assert guarded.ask(admin, "POST", "/v1/namespace/above/describe").json["properties"] == {"of": "above"}


def test_an_answer_is_repeated_with_its_credentials_and_kept_without_them(guarded: Guarded) -> None:
    headers = {"x-api-key": guarded.admin, "idempotency-key": "vended"}  # type: ignore[attr-defined]
    path = "/v1/table/a%24vended/declare"
    first, again = (guarded.wire.post(path, {"vend_credentials": True}, headers) for _ in range(2))
    assert first.json["storage_options"] == OPTIONS
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json == first.json
    headers["idempotency-key"] = "unvended"
    path = "/v1/table/a%24unvended/declare"
    first, again = (guarded.wire.post(path, {"vend_credentials": False}, headers) for _ in range(2))
    assert again.json == first.json
    assert again.json["storage_options"] == {"region": "eu"}
    kept = guarded.database.read(lambda connection: connection.all("SELECT response FROM idempotency"))
    assert len(kept) >= 2
    assert "hush" not in str(kept)


@pytest.mark.parametrize("expires", [False, True])
def test_the_events_of_a_job_end_with_the_key(guarded: Guarded, expires: bool) -> None:
    admin, table = guarded.admin, f"a%24followed{expires}"  # type: ignore[attr-defined]
    assert guarded.ask(admin, "POST", f"/v1/table/{table}/create", stream()).status == 200
    column = {"new_columns": [{"name": "next", "computed": "id + 1"}]}
    assert guarded.ask(admin, "POST", f"/v1/table/{table}/add_columns", column).status == 200
    job = guarded.ask(admin, "POST", f"/v1/table/{table}/backfill_column", {"column": "next"}).json["job_id"]
    name = f"follower {expires}"
    key = guarded.key(name, Role.READER, "a", expires_at=now_millis() + 2000 if expires else None)
    address = guarded.wire.address
    with closing(http.client.HTTPConnection(address.netloc, timeout=60)) as following:
        following.request("GET", f"/v1/jobs/{job}/events", headers={"x-api-key": key})
        events = following.getresponse()
        assert events.status == 200
        assert events.headers["x-content-type-options"] == "nosniff"
        assert events.readline()
        if not expires:
            guarded.revoke(name)
        events.read()  # to its end, although the job waits for a worker
