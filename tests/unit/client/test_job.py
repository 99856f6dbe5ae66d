"""A job is followed by its events or by polling; every outcome is reported."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InternalError, InvalidTableStateError, ServiceUnavailableError

from pennon.client import job as module
from pennon.client.job import (
    Job,
    JobCancelledError,
    JobError,
    JobFailedError,
    JobFields,
    JobTimedOutError,
    job_from_response,
)
from pennon.client.transport import Transport
from tests.unit.client.scripted import ScriptedServer, Step, answer, hang_up, stream

FAILURE = {"phase": "preflight", "type": "ModuleNotFoundError", "message": "No module named 'torch'", "retryable": True}
NO_STREAM = answer(406, {"error": "no streams here", "code": 0})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_POLL_SECONDS", 0.001)
    monkeypatch.setattr(module, "_MAX_POLL_SECONDS", 0.01)


def described(state: str, **more: Any) -> Step:
    body = {"job_id": "j1", "job_type": "backfill", "table": "t", "target": "x", "state": state, "counters": {}}
    return answer(200, {**body, **more})


def events(*reported: Any) -> Step:
    return stream(*(f"id: {at}\ndata: {json.dumps(data)}\n\n".encode() for at, data in enumerate(reported, 1)))


def wait_with(*steps: Step, **options: Any) -> tuple[Job, ScriptedServer]:
    with ScriptedServer(list(steps)) as server:
        job = Job(Transport(server.url), "j1")
        assert job.wait(progress=False, **options) is job
    return job, server


def test_a_job_is_followed_by_its_events() -> None:
    job, server = wait_with(
        described("running"),
        events({"counters": {"rows_planned": 10}}, {"state": "done", "counters": {"rows_planned": 10}}),
        described("done", counters={"rows_planned": 10, "rows_computed": 10}, result={"rows_assigned": 10}),
    )
    assert (job.state, job.result, job.counters["rows_computed"]) == ("done", {"rows_assigned": 10}, 10)
    assert [request.path for request in server.received[:2]] == ["/v1/jobs/describe", "/v1/jobs/j1/events"]


def test_without_events_the_server_is_asked_until_the_end() -> None:
    job, server = wait_with(
        described("pending"),
        NO_STREAM,
        described("running"),
        NO_STREAM,
        described("committing"),
        NO_STREAM,
        described("done"),
    )
    assert job.finished
    assert len(server.received) == 7


def test_a_stream_that_breaks_goes_on_after_its_last_event() -> None:
    _, server = wait_with(
        described("running"), events({"a": 1}, {"a": 2}), described("running"), events(), described("done")
    )
    assert server.received[3].headers["last-event-id"] == "2"


@pytest.mark.parametrize("odd", ["not json", [1], {"state": None}, {"data": {"state": "done"}}])
def test_events_of_an_unknown_form_are_ignored(odd: Any) -> None:
    job, _ = wait_with(described("running"), events(odd), described("done"))
    assert job.state == "done"


def test_an_old_end_among_the_events_is_not_taken_for_the_present() -> None:
    job, _ = wait_with(
        described("running"), events({"state": "failed"}), described("running"), described("done"), described("done")
    )
    assert job.state == "done"


def test_a_failed_job_says_where_and_why() -> None:
    with pytest.raises(
        JobFailedError, match=r"j1 failed in the phase preflight: ModuleNotFoundError: No module"
    ) as caught:
        wait_with(described("failed", failure=FAILURE))
    assert (caught.value.phase, caught.value.kind, caught.value.retryable) == ("preflight", "ModuleNotFoundError", True)
    assert not isinstance(caught.value, JobTimedOutError)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(copy), copy.job.id, copy.phase) == (str(caught.value), "j1", "preflight")


def test_other_ends_have_errors_of_their_own() -> None:
    with pytest.raises(JobCancelledError, match="was cancelled"):
        wait_with(described("cancelled"))
    with pytest.raises(JobTimedOutError, match="timed out"):
        wait_with(described("timed_out"))
    with pytest.raises(JobError):
        wait_with(answer(200, {"job_id": "j1", "job_state": "FAILED"}))


def test_waiting_ends_in_time_and_says_how_to_come_back() -> None:
    steps = [described("running"), NO_STREAM, described("running")]
    with ScriptedServer([*steps, *steps * 500]) as server:
        with pytest.raises(
            TimeoutError,
            match=r"still running after 0.05 s\. To wait for it again: pennon.connect\('http.*\).job\('j1'\)",
        ):
            Job(Transport(server.url), "j1").wait(0.05, progress=False)
        with pytest.raises(TimeoutError):
            Job(Transport(server.url), "j1").wait(0, progress=False)


AWAY = answer(503, {"error": "The server is about to end.", "code": 17})


def wait_beside_an_absent_server(*steps: Step, **options: Any) -> Job:
    with ScriptedServer([described("running"), NO_STREAM, *steps]) as server:
        return Job(Transport(server.url, attempts=1), "j1").wait(progress=False, **options)


def test_a_server_that_comes_back_is_waited_for() -> None:
    assert wait_beside_an_absent_server(AWAY, hang_up, AWAY, described("done")).state == "done"


def test_a_404_is_retried_only_while_a_new_job_appears_at_the_server_that_created_it() -> None:
    with ScriptedServer([AWAY, described("done")]) as server:
        assert Job(Transport(server.url, attempts=1), "j1", {"state": "running"}).wait(progress=False).state == "done"
    with ScriptedServer([AWAY]) as server, pytest.raises(ServiceUnavailableError, match="about to end"):
        Job(Transport(server.url, attempts=1), "j1").wait(progress=False)


def test_a_server_that_stays_away_is_given_up_with_how_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNREACHABLE_SECONDS", 0.05)
    with pytest.raises(
        ServiceUnavailableError,
        match=r"about to end\. Job j1 may still be running\. To wait for it again: pennon.connect\(.*'j1'\)",
    ):
        wait_beside_an_absent_server(AWAY)


def test_waiting_for_a_server_that_stays_away_ends_in_time() -> None:
    with pytest.raises(TimeoutError, match=r"still running after 0.1 s \(waiting: the server does not respond\)"):
        wait_beside_an_absent_server(AWAY, timeout=0.1)


def test_an_interrupt_leaves_the_job_alone_and_says_how_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with (
        ScriptedServer([described("running"), NO_STREAM]) as server,
        pytest.raises(
            KeyboardInterrupt,
            match=r"j1 continues on the server\. To wait for it again: pennon.connect\(.*\).job\('j1'\).wait\(\)",
        ),
    ):
        Job(Transport(server.url), "j1").wait(progress=False)
    assert {request.path for request in server.received} == {"/v1/jobs/describe", "/v1/jobs/j1/events"}


def test_a_job_of_a_list_is_described_when_more_is_asked() -> None:
    with ScriptedServer([described("done", result={"a": 1})]) as server:
        job = Job(Transport(server.url), "j1", {"job_id": "j1", "state": "RUNNING", "created_at_millis": 1000})
        assert (job.state, job.created_at.isoformat() if job.created_at else "") == (
            "running",
            "1970-01-01T00:00:01+00:00",
        )
        assert server.received == []
        assert job.result == {"a": 1}
        assert repr(job) == "<Job j1: backfill t x, done>"


@pytest.mark.parametrize(
    ("reported", "state"),
    [
        ({"job_state": "IN_PROGRESS"}, "running"),
        ({"job_state": "DONE"}, "done"),
        ({"job_state": "IN_PROGRESS", "state": "paused"}, "paused"),
        ({"state": "timed_out"}, "timed_out"),
    ],
)
def test_states_are_known_by_both_their_names(reported: JobFields, state: str) -> None:
    assert Job(Transport("http://127.0.0.1:1"), "j1", reported).state == state


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
def test_a_stop_request_returns_its_outcome(verb: str) -> None:
    with ScriptedServer([answer(200, {"job_id": "j1", "status": "so so"}), described("running")]) as server:
        assert getattr(Job(Transport(server.url), "j1"), verb)() == "so so"
    assert (server.received[0].path, server.received[0].body) == (f"/v1/jobs/{verb}", {"job_id": "j1"})
    assert server.received[0].headers["idempotency-key"]


@pytest.mark.parametrize(("only_failed", "body"), [(False, {}), (True, {"only_failed": True})])
def test_a_job_is_tried_again_as_another_job(only_failed: bool, body: dict[str, Any]) -> None:
    with ScriptedServer([answer(200, {"job_id": "j2"}), described("pending")]) as server:
        assert Job(Transport(server.url), "j1").retry(only_failed=only_failed).id == "j2"
    assert server.received[0].body == {"job_id": "j1", **body}


def test_a_refused_stop_request_is_an_error() -> None:
    with (
        ScriptedServer([answer(409, {"error": "has ended", "code": 19})]) as server,
        pytest.raises(InvalidTableStateError, match="has ended"),
    ):
        Job(Transport(server.url), "j1").pause()


def test_events_are_an_arrow_table_of_all_pages() -> None:
    pages = [pa.table({"seq": [1, 2]}), pa.table({"seq": [3]}), pa.table({"seq": pa.array([], pa.int64())})]
    with ScriptedServer([answer(200, as_stream(page)) for page in pages]) as server:
        assert Job(Transport(server.url), "j1").events()["seq"].to_pylist() == [1, 2, 3]
    assert [request.body for request in server.received] == [
        {"job_id": "j1"},
        {"job_id": "j1", "after": 2},
        {"job_id": "j1", "after": 3},
    ]


def as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_a_submission_without_an_id_is_an_error() -> None:
    with pytest.raises(InternalError, match="returned no job id"):
        job_from_response(Transport("http://127.0.0.1:1"), {"transaction_id": "t"})
