"""The event stream of a job: past events first, then new ones as they happen, until the job ends."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from pennon.client.server_events import EventParser, ServerEvent
from pennon.core.job_model import JobState
from tests.integration.jobs.servers import ALONE, JobServer
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog.jobs import Job
    from tests.conftest import StartPennon

SECONDS = 60.0


@contextmanager
def following(server: JobServer, job: Job, after: int | None = None, **headers: str) -> Iterator[Iterator[ServerEvent]]:
    """Open the stream of a job and give its events as they come."""
    query = {} if after is None else {"after": after}
    with httpx.stream(
        "GET",
        f"{server.url}/v1/jobs/{job.id}/events",
        params=query,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        timeout=SECONDS,
        trust_env=False,
    ) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-store"
        parser = EventParser()
        yield (event for piece in answer.iter_bytes() for event in parser.feed(piece))


def until(stream: Iterator[ServerEvent], kind: str) -> list[ServerEvent]:
    """Return the events up to the first of a kind."""
    found = []
    for event in stream:
        found.append(event)
        if event.kind == kind:
            return found
    raise AssertionError(f"no {kind} came, only {[event.kind for event in found]}")


def data(event: ServerEvent) -> Any:
    return json.loads(event.data)


def test_past_events_are_sent_again_and_then_the_end(server: JobServer) -> None:
    job = server.submit(server.new_table())
    held = server.hold(job)
    server.queue.add_event(held, "claim_complete", "fragment 0", {"rows_processed": 5})
    server.queue.finish(held, JobState.DONE, counters={"rows_committed": 5}, result={"published_version": 2})  # type: ignore[arg-type]
    with following(server, job) as stream:
        found = list(stream)
    assert [event.kind for event in found] == ["submitted", "claimed", "claim_complete", "done", "progress", "end"]
    assert [data(event)["seq"] for event in found[:4]] == [1, 2, 3, 4]
    assert [event.id for event in found[:4]] == ["1", "2", "3", "4"]
    assert data(found[2])["data"] == {"rows_processed": 5}
    end = data(found[-1])
    assert (end["state"], end["counters"], end["result"]) == ("done", {"rows_committed": 5}, {"published_version": 2})


@pytest.mark.parametrize("how", ["header", "query"])
def test_a_stream_goes_on_after_what_its_client_saw_last(server: JobServer, how: str) -> None:
    job = server.submit_paused(server.new_table())
    change_job(server.queue, "cancel", job.id)
    more: dict[str, Any] = {"last_event_id": "2"} if how == "header" else {"after": 2}
    with following(server, job, **more) as stream:
        assert [event.kind for event in stream] == ["cancelled", "progress", "end"]


def test_events_are_sent_when_they_happen(server: JobServer) -> None:
    job = server.submit(server.new_table())
    with following(server, job) as stream:
        assert data(until(stream, "progress")[-1]) == {"job_id": job.id, "state": "pending", "counters": {}}
        held = server.hold(job)
        assert data(until(stream, "progress")[-1])["state"] == "running"
        for done in (10, 20):
            server.queue.heartbeat(held, 60, {"rows_planned": 20, "rows_committed": done})
            assert data(until(stream, "progress")[-1])["counters"] == {"rows_planned": 20, "rows_committed": done}
        server.queue.add_event(held, "unit", "u")
        assert data(until(stream, "unit")[-1])["unit"] == "u"
        server.queue.finish(held, JobState.FAILED, counters={}, failure={"type": "ValueError"})  # type: ignore[arg-type]
        rest = list(stream)
    assert [event.kind for event in rest] == ["failed", "progress", "end"]
    assert data(rest[-1])["failure"] == {"type": "ValueError"}


def test_a_long_history_comes_whole_and_in_order(embedded: JobServer) -> None:
    job = embedded.submit(embedded.new_table())
    held = embedded.hold(job)
    for number in range(1200):
        embedded.queue.add_event(held, "unit", str(number))
    embedded.queue.finish(held, JobState.DONE, counters={})
    with following(embedded, job) as stream:
        found = list(stream)
    assert [event.id for event in found[:-2]] == [str(number) for number in range(1, 1204)]
    assert [event.kind for event in found[-2:]] == ["progress", "end"]


def test_many_can_follow_without_holding_threads(start_pennon: StartPennon) -> None:
    server = JobServer(start_pennon("--metadata-threads", "2", "--data-threads", "2", *ALONE))
    job = server.submit(server.new_table())
    ends: list[str] = []
    opened = threading.Semaphore(0)

    def follow() -> None:
        with following(server, job) as stream:
            until(stream, "progress")
            opened.release()
            ends.append(until(stream, "end")[-1].kind)

    followers = [threading.Thread(target=follow) for _ in range(20)]
    for follower in followers:
        follower.start()
    for _ in followers:
        assert opened.acquire(timeout=SECONDS)
    assert server.http.post("/v1/jobs/describe", {"job_id": job.id})["state"] == "pending"
    server.http.post("/v1/jobs/cancel", {"job_id": job.id})
    for follower in followers:
        follower.join(SECONDS)
    server.close()
    assert ends == ["end"] * 20


def test_a_client_that_goes_leaves_nothing_behind(embedded: JobServer) -> None:
    job = embedded.submit_paused(embedded.new_table())
    address = urlsplit(embedded.url)

    def in_flight() -> float:
        text = embedded.http.raw.get("/metrics").text
        (line,) = [line for line in text.splitlines() if line.startswith("pennon_requests_in_flight ")]
        return float(line.split()[-1])

    for _ in range(5):
        with socket.create_connection((address.hostname, address.port), timeout=SECONDS) as raw:
            raw.sendall(f"GET /v1/jobs/{job.id}/events HTTP/1.1\r\nhost: {address.netloc}\r\n\r\n".encode())
            assert raw.recv(4096).startswith(b"HTTP/1.1 200")
    deadline = threading.Event()
    for _ in range(600):
        if in_flight() == 1:  # the one that asks
            break
        deadline.wait(0.1)
    assert in_flight() == 1


def test_a_server_that_stops_ends_the_streams(start_pennon: StartPennon) -> None:
    process = start_pennon("--shutdown-timeout-seconds", "60", *ALONE)
    server = JobServer(process)
    job = server.submit_paused(server.new_table())
    with following(server, job) as stream:
        until(stream, "progress")
        # Its own limit for stopping is shorter than what the server would wait for the stream.
        assert process.stop() == 0
        assert list(stream) == []
    server.close()


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "9" * 40])
def test_what_is_no_number_of_an_event_is_refused(embedded: JobServer, number: str) -> None:
    job = embedded.submit_paused(embedded.new_table())
    answer = embedded.http.raw.get(f"/v1/jobs/{job.id}/events", headers={"last-event-id": number})
    assert (answer.status_code, answer.json()["code"]) == (400, 13)


def test_a_job_that_does_not_exist_has_no_stream(embedded: JobServer) -> None:
    assert embedded.http.get("/v1/jobs/nothing/events", expect=404)["code"] == 10
