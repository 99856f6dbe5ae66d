"""Views over HTTP: as the specification's clients ask for them, as LanceDB's does, and as keys allow it."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx
import lance_namespace as ln
import lancedb
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, Configuration
from lance_namespace_urllib3_client.api.materialized_view_api import MaterializedViewApi

from pennon.catalog import keys, open_database
from pennon.core.caller import Role
from tests.integration.views.api.view_catalog import encoded
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = pa.table({"id": [1, 2, 3], "Full Name": ["ada", "bob", "cleo"]})
QUERY = json.dumps({"source": "hall.t", "columns": ["id"]})
SCHEMA = encoded(pa.schema([("id", pa.int64())]))
#: What the specification requires of a request.
WHOLE: dict[str, Any] = {"kind": "query", "source_query": QUERY, "output_schema": SCHEMA}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server without workers, with a table ``t`` in the root and in the namespaces ``hall`` and ``attic``."""
    with PennonProcess(tmp_path_factory.mktemp("views")) as running, RestClient(running.url) as rest:
        rest.post("/v1/namespace/hall/create")
        rest.post("/v1/namespace/attic/create")
        db = connect(running)
        for path in ([], ["hall"], ["attic"]):
            db.create_table("t", ROWS, namespace_path=path)
        yield running


@pytest.fixture
def rest(server: PennonProcess) -> Iterator[RestClient]:
    with RestClient(server.url) as client:
        yield client


def connect(server: PennonProcess, database: str = "lake") -> Any:
    config = {"retry_config": {"retries": 0}}
    return lancedb.connect(f"db://{database}", api_key="none", host_override=server.url, client_config=config)


class TestTheSpecification:
    def test_create_and_refresh(self, rest: RestClient) -> None:
        body: dict[str, Any] = {"kind": "query", "source_query": QUERY, "output_schema": SCHEMA, "udtf_spec": None}
        assert rest.post("/v1/materialized_view/hall$spec/create", body, expect=201) == {"version": 1}
        answer = rest.post("/v1/materialized_view/hall$spec/refresh", {"src_version": None}, expect=202)
        assert list(answer) == ["job_id"]
        assert rest.post("/v1/jobs/describe", answer)["job_type"] == "refresh"
        body["with_no_data"] = False
        answer = rest.post("/v1/materialized_view/hall$spec2/create", body, expect=201)
        assert answer["version"] == 1
        assert rest.post("/v1/jobs/describe", {"job_id": answer["job_id"]})["table"] == "hall$spec2"

    def test_the_generated_client(self, server: PennonProcess) -> None:
        with ApiClient(Configuration(host=server.url)) as client:
            api = MaterializedViewApi(client)
            request = ln.CreateMaterializedViewRequest(kind="query", source_query=QUERY, output_schema=SCHEMA)
            assert api.create_materialized_view("hall$generated", request).version == 1
            refresh = ln.RefreshMaterializedViewRequest()
            assert api.refresh_materialized_view("hall$generated", refresh_materialized_view_request=refresh).job_id

    def test_json_may_be_sent_as_it_is(self, rest: RestClient) -> None:
        body = {
            "kind": "query",
            "output_schema": None,
            "source_query": {"source": ["hall", "t"], "columns": {"n": "id"}},
        }
        rest.post("/v1/materialized_view/hall$plain/create", body, expect=201)
        assert rest.post("/v1/materialized_view/hall$plain/describe")["query"] == "SELECT id AS `n` FROM `hall`.`t`"

    def test_a_plan_is_answered_at_once(self, rest: RestClient) -> None:
        rest.post(
            "/v1/materialized_view/hall$planned/create",
            {"kind": "query", "output_schema": None, "source_query": QUERY},
            expect=201,
        )
        plan = rest.post("/v1/materialized_view/hall$planned/refresh", {"dry_run": True})
        assert (plan["mode"], plan["rows_to_add"]) == ("rebuild", 3)

    def test_a_request_that_is_sent_again_is_carried_out_once(self, server: PennonProcess) -> None:
        with RestClient(server.url, {"idempotency-key": "one-view"}) as rest:
            body = {"query": 'SELECT "id" FROM "hall"."t"', "with_no_data": False}
            first = rest.post("/v1/materialized_view/hall$once/create", body, expect=202)
            assert rest.post("/v1/materialized_view/hall$once/create", body, expect=202) == first

    @pytest.mark.parametrize(
        "body",
        [
            {**WHOLE, "source_query": 5},
            {**WHOLE, "kind": "sculpture"},
            {**WHOLE, "udtf_spec": {"kind": "udtf"}},
            {**WHOLE, "with_no_data": "yes"},
            {**WHOLE, "output_schema": 1},
            {**WHOLE, "schedule": 5},
            {**WHOLE, "branch": "work"},
            *({key: value for key, value in WHOLE.items() if key != left_out} for left_out in WHOLE),
            {},
        ],
    )
    def test_errors_name_what_is_wrong(self, rest: RestClient, body: dict[str, Any]) -> None:
        assert rest.post("/v1/materialized_view/hall$bad/create", body, expect=400)["code"] == 13
        assert "bad" not in rest.get("/v1/namespace/hall/table/list")["tables"]


class TestLanceDbsClient:
    def test_the_whole_life_of_a_view(self, server: PennonProcess) -> None:
        db = connect(server)
        view = db.create_materialized_view(
            "remote",
            "t",
            select={"n": "id + 1", "name": "`Full Name`"},
            where="\"Full Name\" != 'bob'",
            with_no_data=True,
        )
        assert view.table.schema.names == ["__source_row_id", "n", "name"]
        assert view.table.count_rows() == 0
        assert "remote" in db.list_materialized_views()
        assert "remote" in db.list_tables().tables
        assert "FROM t WHERE `Full Name`" in db.open_materialized_view("remote").definition.query
        assert db.open_materialized_view("remote").refresh_async(full=True, source_version=1).id
        db.drop_materialized_view("remote")
        assert "remote" not in db.list_materialized_views()

    def test_with_data_it_is_given_a_job(self, server: PennonProcess) -> None:
        job = connect(server).create_materialized_view_async("filled", "t", select=["id"], limit=2)
        with RestClient(server.url) as rest:
            assert rest.post("/v1/jobs/describe", {"job_id": job.id})["job_state"] == "IN_PROGRESS"

    def test_a_namespace_can_be_its_database(self, server: PennonProcess, rest: RestClient) -> None:
        db = connect(server, "hall")
        db.create_materialized_view("inside", "t", with_no_data=True)
        assert rest.post("/v1/materialized_view/hall$inside/describe")["source_table"] == "hall.t"
        assert "inside" in db.list_materialized_views()
        db.drop_materialized_view("inside")

    def test_it_can_open_a_view_whose_query_it_cannot_read(self, server: PennonProcess, rest: RestClient) -> None:
        query = "SELECT a.id FROM t a JOIN hall.t b ON a.id = b.id"
        rest.post(
            "/v1/materialized_view/joined/create",
            {"kind": "query", "output_schema": None, "source_query": query},
            expect=201,
        )
        assert rest.post("/v1/materialized_view/joined/describe")["query"] == query
        assert connect(server).open_materialized_view("joined").refresh_async().id

    def test_views_are_distinguished_from_tables(self, server: PennonProcess) -> None:
        with pytest.raises(Exception, match="not a materialized view"):
            connect(server).open_materialized_view("t")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A function that returns a client with a key of a role on a namespace of a server."""
    with PennonProcess(tmp_path_factory.mktemp("keys")) as running, RestClient(running.url) as rest:
        rest.post("/v1/namespace/hall/create")
        rest.post("/v1/namespace/attic/create")
        for path in ([], ["hall"], ["attic"]):
            connect(running).create_table("t", ROWS, namespace_path=path)
        rest.post(
            "/v1/materialized_view/hall$v/create",
            {"kind": "query", "output_schema": None, "source_query": QUERY},
            expect=201,
        )
        secret = {"kind": "query", "output_schema": None, "source_query": {"source": "attic.t", "columns": ["id"]}}
        rest.post("/v1/materialized_view/hall$of_attic/create", secret, expect=201)
        rest.post("/v1/materialized_view/attic$below/create", secret, expect=201)
        above = {"kind": "query", "output_schema": None, "source_query": {"source": "attic.below"}}
        rest.post("/v1/materialized_view/hall$above/create", above, expect=201)
        database = open_database(f"sqlite:///{running.directory / '.pennon' / 'catalog.db'}")
        with closing(database):

            def client(role: Role, *scope: str) -> RestClient:
                name = f"{role.name} {scope} {len(made)}"
                key = database.write(lambda connection: keys.create(connection, name, role, scope, None))
                made.append(RestClient(running.url, {"x-api-key": str(key)}))
                return made[-1]

            made: list[RestClient] = []
            yield client
            for one in made:
                one.close()


class TestKeys:
    def test_readers_may_look(self, guarded: Any) -> None:
        reader = guarded(Role.READER, "hall")
        assert reader.post("/v1/materialized_view/hall$v/describe")["state"] == "empty"
        assert reader.get("/v1/namespace/hall/materialized_view/list")["views"] == ["above", "of_attic", "v"]
        for verb in ("refresh", "alter", "drop", "create"):
            body = {"kind": "query", "output_schema": None, "source_query": QUERY, "auto_refresh": True}
            assert reader.post(f"/v1/materialized_view/hall$v/{verb}", body, expect=403)["code"] == 15
        assert reader.post("/v1/materialized_view/attic$v/describe", expect=404)["code"] == 4
        assert reader.get("/v1/namespace/attic/materialized_view/list", expect=404)["code"] == 1

    def test_writers_may_make_views_of_what_they_may_read(self, guarded: Any) -> None:
        writer = guarded(Role.WRITER, "hall")
        writer.post(
            "/v1/materialized_view/hall$mine/create",
            {"kind": "query", "output_schema": None, "source_query": QUERY},
            expect=201,
        )
        for table in ("attic.t", "t", "attic.nope"):
            for query in ({"source": table}, f"SELECT id FROM {table}"):
                answer = writer.post(
                    "/v1/materialized_view/hall$theirs/create",
                    {"kind": "query", "output_schema": None, "source_query": query},
                    expect=404,
                )
                assert answer["code"] == 4
                assert "Did you mean" not in answer["error"]

    def test_only_the_name_of_a_hidden_source_is_shown(self, guarded: Any) -> None:
        described = guarded(Role.READER, "hall").post("/v1/materialized_view/hall$of_attic/describe")
        assert described["sources"] == [{"table": "attic.t", "id": ["attic", "t"], "columns": ["id"]}]

    def test_a_cascade_does_not_reach_what_the_key_may_not_write(self, guarded: Any) -> None:
        writer = guarded(Role.WRITER, "hall")
        assert writer.post("/v1/materialized_view/hall$above/refresh", expect=202)["job_id"]
        assert writer.post("/v1/materialized_view/hall$above/refresh", {"cascade": True}, expect=403)["code"] == 15


def test_a_server_that_is_killed_leaves_a_whole_view_or_none(server: PennonProcess, rest: RestClient) -> None:
    """Views are made while the server is killed and started again; each that is listed can be used."""
    stop = threading.Event()
    made: list[str] = []

    def make() -> None:
        with RestClient(server.url) as client:
            for number in range(10_000):
                if stop.is_set():
                    return
                try:
                    client.post(
                        f"/v1/materialized_view/attic$k{number}/create",
                        {"kind": "query", "output_schema": None, "source_query": QUERY},
                        expect=201,
                    )
                    made.append(f"k{number}")
                except (AssertionError, httpx.HTTPError):
                    return  # the server is gone

    for _ in range(3):
        thread = threading.Thread(target=make)
        thread.start()
        while len(made) % 50 < 5 and thread.is_alive():
            stop.wait(0.01)
        server.kill()
        thread.join()
        server.start()
        listed = rest.get("/v1/namespace/attic/materialized_view/list")["views"]
        assert set(made) <= set(listed)
        for name in listed:
            assert rest.post(f"/v1/materialized_view/attic${name}/describe")["state"] == "empty"
            assert rest.post(f"/v1/table/attic${name}/count_rows") == 0
            rest.post(f"/v1/materialized_view/attic${name}/drop")
        made.clear()
