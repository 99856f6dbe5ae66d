"""The routes of jobs: what they answer, to whom, and that a repeated request has one effect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pennon.core.caller import Role
from pennon.core.job_model import JobState
from pennon.jobs.worker_registry import WorkerRegistry
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from tests.integration.jobs.servers import JobServer
    from tests.support.rest import RestClient

CHANGES = ("cancel", "pause", "resume", "retry")


def ask(client: RestClient, verb: str, job: Job | str, *, expect: int = 200, **more: Any) -> Any:
    job_id = job if isinstance(job, str) else job.id
    return client.post(f"/v1/jobs/{verb}", {"job_id": job_id, **more}, expect=expect)


def listed(client: RestClient, **wanted: Any) -> list[str]:
    return [job["job_id"] for job in client.post("/v1/jobs/list", wanted)["jobs"]]


def events(client: RestClient, **wanted: Any) -> list[dict[str, Any]]:
    answer = client.raw.post("/v1/jobs/query_events", json=wanted)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    found: list[dict[str, Any]] = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    return found


class TestDescribing:
    def test_a_job_is_described_from_start_to_end(self, server: JobServer) -> None:
        table = server.new_table()
        job = server.submit(table, spec={"column": "c", "where": None}, priority=2)
        found = ask(server.http, "describe", job)
        assert found["waiting_for"] == "no worker is running; start one with `pennon worker`"
        assert (found["job_state"], found["state"], found["table"], found["target"]) == (
            "IN_PROGRESS",
            "pending",
            table,
            "column",
        )
        assert (found["spec"], found["priority"], found["submitted_by"]) == ({"column": "c", "where": None}, 2, "ada")
        held = server.hold(job, "w1")
        server.queue.heartbeat(held, 60, {"rows_planned": 10, "udf_seconds": 0.5})
        found = ask(server.http, "describe", job)
        assert (found["state"], found["worker"], found["attempt"]) == ("running", "w1", 1)
        assert found["counters"] == {"rows_planned": 10, "udf_seconds": 0.5}
        assert "waiting_for" not in found
        failure = {"phase": "compute", "type": "ValueError", "message": "no", "retryable": False}
        server.queue.finish(held, JobState.FAILED, counters={}, result={"published_version": None}, failure=failure)  # type: ignore[arg-type]
        found = ask(server.http, "describe", job)
        assert (found["job_state"], found["failure"], found["result"]) == (
            "FAILED",
            failure,
            {"published_version": None},
        )
        assert found["finished_ms"] >= found["started_ms"] >= found["creation_ms"]

    @pytest.mark.parametrize(
        ("state", "wire"),
        [("done", "DONE"), ("failed", "FAILED"), ("cancelled", "CANCELLED"), ("timed_out", "TIMED_OUT")],
    )
    def test_an_end_has_the_name_that_lancedb_knows(self, embedded: JobServer, state: str, wire: str) -> None:
        job = embedded.submit(embedded.new_table())
        embedded.queue.finish(embedded.hold(job), state, counters={})  # type: ignore[arg-type]
        assert ask(embedded.http, "describe", job)["job_state"] == wire

    def test_a_job_that_waits_says_for_what(self, embedded: JobServer) -> None:
        worker_registry = WorkerRegistry(embedded.database, 30)
        worker = worker_registry.register(slots=1)
        table = embedded.new_table()
        first = embedded.submit(table)
        assert ask(embedded.http, "describe", first)["waiting_for"] == "a free worker"
        embedded.hold(first)
        second = embedded.submit(table)
        assert ask(embedded.http, "describe", second)["waiting_for"] == "another job of this column"
        worker_registry.deregister(worker)
        assert "pennon worker" in ask(embedded.http, "describe", second)["waiting_for"]

    @pytest.mark.parametrize("job_id", ["01a1df6bc0e28571e218b67bc93caf1c", "x", "\0", "../..", "é" * 200])
    def test_a_job_that_does_not_exist_is_not_found(self, server: JobServer, job_id: str) -> None:
        for verb in ("describe", *CHANGES):
            assert ask(server.http, verb, job_id, expect=404)["code"] == 10
        assert server.http.post("/v1/jobs/query_events", {"job_id": job_id}, expect=404)["code"] == 10

    def test_a_request_without_a_job_says_what_is_missing(self, embedded: JobServer) -> None:
        for verb in ("describe", *CHANGES):
            assert "job_id" in embedded.http.post(f"/v1/jobs/{verb}", {}, expect=400)["error"]


class TestListing:
    def test_the_newest_come_first_page_by_page(self, server: JobServer) -> None:
        table = server.new_table()
        made = sorted((server.submit(table, f"c{number}").id for number in range(7)), reverse=True)
        found, token = [], None
        while True:
            body = {"table": table, "limit": 3, **({"page_token": token} if token else {})}
            page = server.http.post("/v1/jobs/list", body)
            found.append([job["job_id"] for job in page["jobs"]])
            token = page.get("page_token")
            if token is None:
                break
        assert found == [made[:3], made[3:6], made[6:]]
        assert listed(server.http, limit=0) == []

    def test_only_those_that_are_asked_for_are_listed(self, server: JobServer) -> None:
        here, there = server.new_table(), server.new_table("inner")
        waits, rests, ended = server.submit(here), server.submit_paused(there), server.submit(here, "other")
        change_job(server.queue, "cancel", ended.id)
        made = {waits.id, rests.id, ended.id}
        assert set(listed(server.http)) >= made
        assert set(listed(server.http, table=here)) == {waits.id, ended.id}
        assert listed(server.http, table="missing$t") == []
        assert set(listed(server.http, state="paused")) & made == {rests.id}
        assert set(listed(server.http, state="IN_PROGRESS")) & made == {waits.id, rests.id}
        assert listed(server.http, state="cancelled", table=here) == [ended.id]
        assert "state" in server.http.post("/v1/jobs/list", {"state": "nonsense"}, expect=400)["error"]

    def test_a_database_lists_its_own_by_its_own_names(self, embedded: JobServer) -> None:
        table = embedded.new_table()
        inside, outside = embedded.submit(table), embedded.submit(embedded.new_table())
        headers = {"x-lancedb-database": table.split("$")[0]}
        found = embedded.http.raw.post("/v1/jobs/list", json={}, headers=headers).json()["jobs"]
        assert [(job["job_id"], job["table"]) for job in found] == [(inside.id, "t")]
        found = embedded.http.raw.post("/v1/jobs/list", json={"table": "t"}, headers=headers).json()["jobs"]
        assert [job["job_id"] for job in found] == [inside.id]
        headers = {"x-lancedb-database": "anything"}
        found = embedded.http.raw.post("/v1/jobs/list", json={}, headers=headers).json()["jobs"]
        assert {job["job_id"] for job in found} >= {inside.id, outside.id}


class TestChanging:
    def test_a_job_is_paused_resumed_cancelled_and_tried_again(self, server: JobServer) -> None:
        job = server.submit(server.new_table(), spec={"column": "c"})
        assert ask(server.http, "pause", job)["status"] == "paused"
        assert ask(server.http, "resume", job)["status"] == "resumed"
        held = server.hold(job)
        answer = ask(server.http, "pause", job)
        assert (answer["status"], answer["paused"], answer["committing"]) == ("pausing", True, False)
        answer = ask(server.http, "resume", job)
        assert (answer["status"], answer["resumed"], answer["still_pausing"]) == ("still_pausing", False, True)
        assert ask(server.http, "cancel", job)["status"] == "cancelling"
        server.queue.finish(held, JobState.CANCELLED, counters={})
        assert ask(server.http, "cancel", job)["status"] == "already_cancelled"
        assert ask(server.http, "pause", job, expect=409)["code"] == 19
        again = ask(server.http, "retry", job, only_failed=True)
        assert again["retry_of"] == job.id
        found = ask(server.http, "describe", again["job_id"])
        assert (found["spec"], found["retry_of"]) == ({"column": "c", "mode": "only_failed"}, job.id)

    def test_a_job_that_has_just_committed_says_so(self, server: JobServer) -> None:
        job = server.submit(server.new_table())
        held = server.hold(job)
        server.database.write(lambda connection: server.queue.begin_commit(connection, held))
        assert ask(server.http, "pause", job)["committing"] is True
        assert ask(server.http, "cancel", job)["status"] == "committing"

    def test_a_change_is_found_again_by_its_transaction(self, embedded: JobServer) -> None:
        job = embedded.submit(embedded.new_table())
        answer = ask(embedded.http, "cancel", job)
        described = embedded.http.post(f"/v1/transaction/{answer['transaction_id']}/describe")
        assert (described["status"], described["properties"]["operation"]) == ("Succeeded", "CancelJob")

    @pytest.mark.parametrize("verb", CHANGES)
    def test_a_repeated_request_has_one_effect_and_one_answer(self, embedded: JobServer, verb: str) -> None:
        table = embedded.new_table()
        job = embedded.submit_paused(table)
        if verb == "retry":
            change_job(embedded.queue, "cancel", job.id)
        elif verb == "pause":
            change_job(embedded.queue, "resume", job.id)
        headers = {"idempotency-key": f"once-{verb}"}
        answers = [
            embedded.http.raw.post(f"/v1/jobs/{verb}", json={"job_id": job.id}, headers=headers) for _ in range(3)
        ]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        assert len(listed(embedded.http, table=table)) == (2 if verb == "retry" else 1)


class TestEvents:
    def test_they_come_as_arrow_with_the_names_that_lancedb_knows(self, server: JobServer) -> None:
        job = server.submit(server.new_table())
        held = server.hold(job, "w1")
        server.queue.add_event(held, "committed", "3", {"rows": 42, "worker": "w1"})
        found = events(server.http, job_id=job.id)
        assert [(row["seq"], row["kind"]) for row in found] == [(1, "submitted"), (2, "claimed"), (3, "committed")]
        last = found[-1]
        assert (last["state"], last["claim_entity"], last["unit"]) == ("committed", "3", "3")
        assert [(row["rows_processed"], row["updated_by"]) for row in found] == [
            (None, "ada"),
            (None, "w1"),
            (42, "w1"),
        ]
        assert json.loads(last["data"]) == {"rows": 42, "worker": "w1"}
        assert last["at"].timestamp() * 1000 == pytest.approx(last["updated_at_millis"])

    def test_only_those_that_are_asked_for_come(self, embedded: JobServer) -> None:
        table = embedded.new_table()
        first, second = embedded.submit(table, "a"), embedded.submit(table, "b")
        for number in range(5):
            embedded.queue.add_event(first, "unit", str(number))
        assert [row["seq"] for row in events(embedded.http, job_id=first.id, after=2, limit=2)] == [3, 4]
        both = events(embedded.http, job_ids=[second.id, first.id, second.id], limit_per_job=2)
        assert [(row["job_id"], row["seq"]) for row in both] == [(second.id, 1), (first.id, 1), (first.id, 2)]
        assert len([row for row in events(embedded.http) if row["job_id"] in (first.id, second.id)]) == 7
        assert events(embedded.http, job_id=first.id, limit=0) == []

    @pytest.mark.parametrize(
        ("text", "units"),
        [
            ("state = 'unit'", ["0", "1", "it's"]),
            ("state = 'unit' AND claim_entity <> '1'", ["0", "it's"]),
            ("unit IN ('0', 'it''s')", ["0", "it's"]),
            ("kind = 'unit' and unit not in ('0') or kind = 'submitted'", ["", "1", "it's"]),
            ("updated_by = 'ada'", [""]),
        ],
    )
    def test_a_filter_admits_what_it_says(self, embedded: JobServer, text: str, units: list[str]) -> None:
        job = embedded.submit(embedded.new_table())
        for unit in ("0", "1", "it's"):
            embedded.queue.add_event(job, "unit", unit)
        assert [row["unit"] for row in events(embedded.http, job_id=job.id, filter=text)] == units

    @pytest.mark.parametrize("text", ["nonsense", "state", "state = x", "state = 'a' AND", "(state = 'a')", "x = 'a'"])
    def test_a_filter_that_cannot_be_read_is_refused(self, embedded: JobServer, text: str) -> None:
        answer = embedded.http.post("/v1/jobs/query_events", {"filter": text}, expect=400)
        assert answer["code"] == 13
        assert "filter" in answer["error"]


class TestKeys:
    def test_a_job_is_seen_by_readers_of_its_table_and_changed_by_writers(self, guarded: JobServer) -> None:
        admin = guarded.client(guarded.key(Role.ADMIN))
        job = guarded.submit_paused(guarded.declare("a$inner$t", admin))
        other = guarded.submit_paused(guarded.declare("b$t", admin))
        roles = {
            "all": (guarded.client(guarded.key(Role.WRITER)), {job.id, other.id}, 200),
            "writer": (guarded.client(guarded.key(Role.WRITER, "a")), {job.id}, 200),
            "inner": (guarded.client(guarded.key(Role.WRITER, "a", "inner")), {job.id}, 200),
            "reader": (guarded.client(guarded.key(Role.READER, "a")), {job.id}, 403),
            "stranger": (guarded.client(guarded.key(Role.ADMIN, "c")), set(), 404),
            "beside": (guarded.client(guarded.key(Role.ADMIN, "a", "inne")), set(), 404),
        }
        for client, visible, changing in roles.values():
            assert set(listed(client)) == visible
            assert {row["job_id"] for row in events(client)} == visible
            seen = 200 if job.id in visible else 404
            ask(client, "describe", job, expect=seen)
            if seen == 404:
                client.post("/v1/jobs/query_events", {"job_id": job.id}, expect=404)
                client.get(f"/v1/jobs/{job.id}/events", expect=404)
            ask(client, "resume", job, expect=changing)
            if changing == 200:
                ask(client, "pause", job)
        assert ask(admin, "describe", job)["state"] == "paused"
        guarded.http.post("/v1/jobs/list", {}, expect=401)

    def test_a_job_moves_with_its_table_and_outlives_it(self, guarded: JobServer) -> None:
        admin = guarded.client(guarded.key(Role.ADMIN))
        job = guarded.submit_paused(guarded.declare("a$t", admin))
        guarded.declare("b$other", admin)
        a, b = (guarded.client(guarded.key(Role.READER, name)) for name in ("a", "b"))
        admin.post("/v1/table/a$t/rename", {"new_table_name": "moved", "new_namespace_id": ["b"]})
        assert (listed(a), listed(b)) == ([], [job.id])
        ask(a, "describe", job, expect=404)
        assert ask(b, "describe", job)["table"] == "b$moved"
        admin.post("/v1/table/b$moved/drop")
        assert listed(admin) == [job.id]


def test_jobs_are_counted_by_state(embedded: JobServer) -> None:
    def counted(state: str) -> int:
        text = embedded.http.raw.get("/metrics").text
        (line,) = [line for line in text.splitlines() if line.startswith(f'pennon_jobs{{state="{state}"}}')]
        return int(line.split()[-1])

    before = {state: counted(state) for state in ("pending", "paused", "done")}
    table = embedded.new_table()
    embedded.submit(table, "a")
    embedded.submit_paused(table, "b")
    after = {state: counted(state) - before[state] for state in before}
    assert after == {"pending": 1, "paused": 1, "done": 0}
