"""The routes of maintenance: policies and where they are set, the jobs they submit, and who may see what."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pennon.core.caller import Role
from pennon.core.job_model import AUTOMATIC_MAINTENANCE, MAINTENANCE_TARGET, JobKind, JobState
from tests.integration.rest.samples import STREAM, stream

if TYPE_CHECKING:
    from tests.integration.jobs.servers import JobServer
    from tests.support.rest import RestClient


def written_table(server: JobServer) -> str:
    """Make a table with rows in a namespace of its own."""
    name = f"n{secrets.token_hex(5)}"
    server.http.post(f"/v1/namespace/{name}/create")
    answer = server.http.raw.post(f"/v1/table/{name}$t/create", content=stream(pa.table({"n": [1, 2]})), headers=STREAM)
    assert answer.status_code == 200, answer.text
    return f"{name}$t"


def policy_of(client: RestClient, identifier: str, kind: str = "table") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = client.post(f"/v1/{kind}/{identifier}/maintenance_policy/describe")["policy"]
    return found


def alter(client: RestClient, identifier: str, policy: dict[str, Any], kind: str = "table", expect: int = 200) -> Any:
    route = f"/v1/{kind}/{identifier}/maintenance_policy/alter"
    return client.post(route, {"policy": policy}, expect=expect)


def maintain(client: RestClient, identifier: str, **body: Any) -> Any:
    return client.post(f"/v1/table/{identifier}/maintain", body, expect=202)


class TestPolicies:
    def test_a_value_comes_from_the_nearest_level(self, server: JobServer) -> None:
        table = written_table(server)
        above = table.partition("$")[0]
        field = policy_of(server.http, table)["max_versions"]
        default = field["value"]
        assert field == {"value": default, "level": "server", "inherited": default}
        alter(server.http, above, {"max_versions": 7, "enabled": False}, "namespace")
        assert policy_of(server.http, table)["max_versions"] == {
            "value": 7,
            "level": "namespace",
            "namespace": above,
            "inherited": 7,
        }
        changed = alter(server.http, table, {"max_versions": "3", "quiet_hours": "22:00-06:00"})
        assert changed["transaction_id"]
        assert changed["policy"]["max_versions"] == {"value": 3, "level": "table", "inherited": 7}
        assert policy_of(server.http, table)["enabled"]["value"] is False
        assert policy_of(server.http, above, "namespace")["max_versions"]["inherited"] == default
        alter(server.http, table, {"max_versions": None})
        assert policy_of(server.http, table)["max_versions"]["value"] == 7
        assert policy_of(server.http, table)["quiet_hours"]["value"] == "22:00-06:00"

    def test_values_are_properties_that_other_properties_survive(self, embedded: JobServer) -> None:
        name = f"n{secrets.token_hex(5)}"
        own = {"owner": "ada", "pennon.maintenance.max_versions": "9"}
        embedded.http.post(f"/v1/namespace/{name}/create", {"properties": own})
        assert policy_of(embedded.http, name, "namespace")["max_versions"]["value"] == 9
        alter(embedded.http, name, {"max_versions": None, "enabled": False}, "namespace")
        found = embedded.http.post(f"/v1/namespace/{name}/describe")["properties"]
        assert found == {"owner": "ada", "pennon.maintenance.enabled": "false"}

    @pytest.mark.parametrize(
        ("policy", "says"),
        [
            ({"max_version": 1}, "no field 'max_version'. Did you mean 'max_versions'?"),
            ({"max_version": None}, "no field 'max_version'"),
            ({"max_versions": 0}, "'max_versions'"),
            ({"max_versions": "many"}, "'max_versions'"),
            ({"max_deleted_share": "inf"}, "'max_deleted_share'"),
            ({"max_version_seconds": "inf"}, "'max_version_seconds'"),
            ({"target_fragment_bytes": 10**30}, "'target_fragment_bytes'"),
            ({"quiet_hours": "noon"}, "'quiet_hours'"),
            ({}, "empty"),
        ],
    )
    def test_a_wrong_value_is_refused(self, embedded: JobServer, policy: dict[str, Any], says: str) -> None:
        name = f"n{secrets.token_hex(5)}"
        embedded.http.post(f"/v1/namespace/{name}/create")
        assert says in alter(embedded.http, name, policy, "namespace", expect=400)["error"]

    def test_a_wrong_value_is_refused_as_a_property_too(self, embedded: JobServer) -> None:
        table = written_table(embedded)
        wrong = {"properties": {"pennon.maintenance.max_versions": "0"}}
        new, above = f"n{secrets.token_hex(5)}", table.partition("$")[0]
        for path in (f"namespace/{new}/create", f"table/{above}$u/declare", f"table/{above}$u/create-empty"):
            assert "max_versions" in embedded.http.post(f"/v1/{path}", wrong, expect=400)["error"]
        update = {"updates": [["n", "3"]], **wrong}
        assert "max_versions" in embedded.http.post(f"/v1/table/{table}/update", update, expect=400)["error"]
        query = "mode=overwrite&properties=%7B%22pennon.maintenance.oops%22%3A%221%22%7D"
        path = f"/v1/table/{table}/create?{query}"
        answer = embedded.http.raw.post(path, content=stream(pa.table({"n": [1]})), headers=STREAM)
        assert answer.status_code == 400, answer.text
        location = embedded.http.post(f"/v1/table/{table}/describe")["location"]
        register = {"location": location, "mode": "overwrite", **wrong}
        assert "max_versions" in embedded.http.post(f"/v1/table/{table}/register", register, expect=400)["error"]

    def test_a_key_does_not_learn_the_name_of_a_hidden_namespace(self, guarded: JobServer) -> None:
        admin = guarded.client(guarded.key(Role.ADMIN))
        guarded.declare("secret$inner$t", admin)
        alter(admin, "secret", {"max_versions": 7}, "namespace")
        confined = guarded.client(guarded.key(Role.WRITER, "secret", "inner"))
        assert policy_of(confined, "secret$inner$t")["max_versions"] == {
            "value": 7,
            "level": "namespace",
            "inherited": 7,
        }
        route = "/v1/namespace/secret/maintenance_policy/describe"
        assert "only granted" in confined.post(route, expect=403)["error"]
        reader = guarded.client(guarded.key(Role.READER, "secret"))
        assert policy_of(reader, "secret$inner$t")["max_versions"]["namespace"] == "secret"
        alter(reader, "secret$inner$t", {"max_versions": 1}, expect=403)
        reader.post("/v1/table/secret$inner$t/maintain", expect=403)


class TestJobs:
    def test_the_same_request_returns_the_active_job(self, server: JobServer) -> None:
        table = written_table(server)
        first = maintain(server.http, table)
        assert (first["job_type"], first["state"], first["submitted"]) == ("maintain", "pending", True)
        again = maintain(server.http, table)
        assert (again["job_id"], again["submitted"]) == (first["job_id"], False)
        policy = {"max_version_seconds": 60}
        other = maintain(server.http, table, kind="cleanup", policy=policy)
        assert other["job_id"] != first["job_id"]
        told = server.http.post("/v1/jobs/describe", {"job_id": other["job_id"]})
        assert (told["job_type"], told["target"], told["priority"]) == ("cleanup", MAINTENANCE_TARGET, -10)
        assert told["spec"] == {"policy": {"max_version_seconds": 60.0}}
        server.http.post("/v1/jobs/cancel", {"job_id": first["job_id"]})
        assert maintain(server.http, table)["submitted"] is True

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            ({"kind": "vacuum"}, "kind"),
            ({"policy": {"max_versions": -1}}, "max_versions"),
            ({"policy": {"enabled": False}}, "AlterMaintenancePolicy"),
            ({"timeout_seconds": -1}, "timeout_seconds"),
        ],
    )
    def test_a_wrong_request_is_refused(self, embedded: JobServer, body: dict[str, Any], says: str) -> None:
        table = written_table(embedded)
        assert says in embedded.http.post(f"/v1/table/{table}/maintain", body, expect=400)["error"]

    def test_a_table_without_rows_has_nothing_to_maintain(self, embedded: JobServer) -> None:
        embedded.http.post(f"/v1/table/{embedded.new_table()}/maintain", expect=404)

    def test_automatic_maintenance_is_listed_only_when_it_is_asked_for(self, server: JobServer) -> None:
        table = written_table(server)
        automatic = server.submit(
            table, MAINTENANCE_TARGET, kind=JobKind.MAINTAIN, submitted_by=AUTOMATIC_MAINTENANCE
        ).id
        asked = maintain(server.http, table, kind="compact")["job_id"]
        filled = server.submit(table).id

        def listed(**wanted: Any) -> list[str]:
            return [job["job_id"] for job in server.http.post("/v1/jobs/list", {"table": table, **wanted})["jobs"]]

        assert listed() == [filled, asked]
        assert listed(include_maintenance=True) == [filled, asked, automatic]
        assert listed(kind="maintain") == [automatic]
        assert listed(kind="maintenance") == [asked, automatic]
        assert listed(kind="backfill") == [filled]
        assert "kind" in server.http.post("/v1/jobs/list", {"kind": "vacuum"}, expect=400)["error"]


def metric(server: JobServer, name: str, labels: str = "") -> float:
    text = server.http.raw.get("/metrics").text
    found = [line for line in text.splitlines() if line.startswith(f"pennon_maintenance_{name}{labels} ")]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


RESULT = {"bytes_rewritten": 5_000_000_000, "rows_indexed": 30, "versions_removed": 7, "bytes_removed": 900}


def test_metrics_count_what_maintenance_did_also_after_its_jobs_are_deleted(server: JobServer) -> None:
    done, failed = '{kind="compact",outcome="done"}', '{kind="compact",outcome="failed"}'
    names = ("runs_total", "rewritten_bytes_total", "indexed_rows_total", "versions_removed_total")
    before = [metric(server, name, done) for name in names]
    table = written_table(server)
    job = server.submit(table, MAINTENANCE_TARGET, kind=JobKind.COMPACT)
    server.queue.finish(server.hold(job), JobState.DONE, counters={}, result=RESULT)  # type: ignore[arg-type]
    failures = metric(server, "runs_total", failed)
    job = server.submit(table, MAINTENANCE_TARGET, kind=JobKind.COMPACT)
    server.queue.finish(server.hold(job), JobState.FAILED, counters={})
    server.queue.sweep(2**62)
    after = [metric(server, name, done) for name in names]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 5_000_000_000, 30, 7]
    assert metric(server, "runs_total", failed) - failures == 1
    assert metric(server, "tables_due") >= 0
