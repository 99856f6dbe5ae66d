"""Cancel, pause, resume and retry, in every state a job can be in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from pennon.core.job_model import JobKind, JobState
from tests.integration.jobs.queue_fixture import LEASE, QueueFixture
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job

ENDED = ("done", "failed", "cancelled", "timed_out")
REFUSED = "refused"


def bring(queue_fixture: QueueFixture, state: str) -> Job:
    """Return a job that is in a state; "running+pause" is one that was asked to pause."""
    job = queue_fixture.submit(spec={"column": "c", "timeout_seconds": 5})
    state, _, stop_request = state.partition("+")
    if state == "paused":
        change_job(queue_fixture.queue, "pause", job.id)
    elif state != "pending":
        job = queue_fixture.claim()
        if state in ENDED:
            queue_fixture.queue.finish(job, JobState(state), counters={})
    if state == "committing":
        queue_fixture.commit(job)
    if stop_request == "timeout":
        queue_fixture.clock.advance(6)
        queue_fixture.queue.heartbeat(job, LEASE, {})
    elif stop_request:
        change_job(queue_fixture.queue, stop_request, job.id)
    assert queue_fixture.state(job) == state
    return job


#: By the state of a job and the verb: the answer, the state afterwards, and the pending stop request.
OUTCOMES: list[tuple[str, str, str, str, str | None]] = [
    ("pending", "cancel", "cancelled", "cancelled", None),
    ("pending", "pause", "paused", "paused", None),
    ("pending", "resume", "not_paused", "pending", None),
    ("running", "cancel", "cancelling", "running", "cancel"),
    ("running", "pause", "pausing", "running", "pause"),
    ("running", "resume", "not_paused", "running", None),
    ("running+pause", "cancel", "cancelling", "running", "cancel"),
    ("running+pause", "pause", "pausing", "running", "pause"),
    ("running+pause", "resume", "still_pausing", "running", "pause"),
    ("running+cancel", "cancel", "cancelling", "running", "cancel"),
    ("running+cancel", "pause", REFUSED, "running", "cancel"),
    ("running+cancel", "resume", "not_paused", "running", "cancel"),
    ("running+timeout", "cancel", "cancelling", "running", "cancel"),
    ("running+timeout", "pause", REFUSED, "running", "timeout"),
    ("committing", "cancel", "committing", "committing", "cancel"),
    ("committing", "pause", "committing", "committing", "pause"),
    ("committing", "resume", "not_paused", "committing", None),
    ("paused", "cancel", "cancelled", "cancelled", None),
    ("paused", "pause", "already_paused", "paused", None),
    ("paused", "resume", "resumed", "pending", None),
    *((state, "cancel", f"already_{state}", state, None) for state in ENDED),
    *((state, "pause", REFUSED, state, None) for state in ENDED),
    *((state, "resume", "not_paused", state, None) for state in ENDED),
]


@pytest.mark.parametrize(("before", "call", "answer", "after", "stop_request"), OUTCOMES)
def test_a_stop_request_has_its_answer_and_its_effect(
    queue_fixture: QueueFixture, before: str, call: str, answer: str, after: str, stop_request: str | None
) -> None:
    job = bring(queue_fixture, before)
    if answer == REFUSED:
        with pytest.raises(InvalidTableStateError, match=job.id):
            change_job(queue_fixture.queue, call, job.id)
    else:
        assert change_job(queue_fixture.queue, call, job.id, "bob") == answer
    found = queue_fixture.find(job)
    assert (found.state, found.stop_request) == (after, stop_request)
    assert (found.finished_at is not None) == (after in ENDED)


@pytest.mark.parametrize(
    ("stop_request", "answer", "state"), [("cancel", "committing", "cancelled"), ("pause", "committing", "paused")]
)
def test_a_job_stops_after_the_commit_it_was_making(
    queue_fixture: QueueFixture, stop_request: str, answer: str, state: str
) -> None:
    job = bring(queue_fixture, "committing")
    assert change_job(queue_fixture.queue, stop_request, job.id) == answer
    assert queue_fixture.queue.heartbeat(job, LEASE, {}) == stop_request
    if stop_request == "cancel":
        queue_fixture.queue.finish(job, JobState.CANCELLED, counters={})
    else:
        queue_fixture.queue.release(job, {}, paused=True)
    assert queue_fixture.state(job) == state


def test_a_cancelled_job_whose_last_commit_succeeded_may_end_as_done(queue_fixture: QueueFixture) -> None:
    job = bring(queue_fixture, "committing")
    assert change_job(queue_fixture.queue, "cancel", job.id) == "committing"
    queue_fixture.queue.finish(job, JobState.DONE, counters={})
    assert queue_fixture.state(job) == "done"


@pytest.mark.parametrize("state", ["pending", "running", "committing", "paused"])
def test_a_job_that_has_not_ended_is_not_tried_again(queue_fixture: QueueFixture, state: str) -> None:
    job = bring(queue_fixture, state)
    with pytest.raises(InvalidTableStateError, match="has not ended"):
        change_job(queue_fixture.queue, "retry", job.id)


@pytest.mark.parametrize("state", ["failed", "cancelled", "timed_out"])
@pytest.mark.parametrize("only_failed", [False, True])
def test_what_was_not_done_is_tried_again_by_a_new_job(
    queue_fixture: QueueFixture, state: str, only_failed: bool
) -> None:
    job = bring(queue_fixture, state)
    again = change_job(queue_fixture.queue, "retry", job.id, only_failed=only_failed, by="bob")
    expected = {"column": "c", "timeout_seconds": 5, **({"mode": "only_failed"} if only_failed else {})}
    assert queue_fixture.find(again) == again
    assert (again.state, again.spec, again.retry_of, again.submitted_by) == ("pending", expected, job.id, "bob")
    assert (again.table_id, again.branch, again.target) == (job.table_id, job.branch, job.target)
    assert queue_fixture.events(job)[-1].data == {"job_id": again.id, "by": "bob"}
    assert queue_fixture.events(again)[0].data["retry_of"] == job.id
    assert queue_fixture.state(job) == state
    assert queue_fixture.claim().id == again.id


def test_of_a_job_that_is_done_only_failed_rows_are_tried_again(queue_fixture: QueueFixture) -> None:
    job = bring(queue_fixture, "done")
    with pytest.raises(InvalidTableStateError, match="only_failed"):
        change_job(queue_fixture.queue, "retry", job.id)
    assert change_job(queue_fixture.queue, "retry", job.id, only_failed=True).spec["mode"] == "only_failed"


def test_only_a_backfill_can_try_failed_rows_alone(queue_fixture: QueueFixture) -> None:
    job = queue_fixture.submit(kind=JobKind.REFRESH)
    change_job(queue_fixture.queue, "cancel", job.id)
    with pytest.raises(InvalidInputError, match="only_failed is for backfills"):
        change_job(queue_fixture.queue, "retry", job.id, only_failed=True)
    assert change_job(queue_fixture.queue, "retry", job.id).kind == "refresh"


def test_a_job_whose_table_is_gone_is_not_tried_again(queue_fixture: QueueFixture) -> None:
    job = bring(queue_fixture, "failed")
    queue_fixture.drop()
    with pytest.raises(InvalidTableStateError, match="dropped"):
        change_job(queue_fixture.queue, "retry", job.id)


def test_events_have_the_caller_of_a_request(queue_fixture: QueueFixture) -> None:
    job = queue_fixture.submit()
    change_job(queue_fixture.queue, "pause", job.id, "bob")
    change_job(queue_fixture.queue, "resume", job.id, "eve")
    queue_fixture.claim("w1")
    change_job(queue_fixture.queue, "pause", job.id, "bob")
    change_job(queue_fixture.queue, "pause", job.id, "bob")
    change_job(queue_fixture.queue, "cancel", job.id, "eve")
    recorded = [(event.kind, event.data.get("by") or event.data.get("worker")) for event in queue_fixture.events(job)]
    assert recorded == [
        ("submitted", "ada"),
        ("paused", "bob"),
        ("resumed", "eve"),
        ("claimed", "w1"),
        ("pause_requested", "bob"),
        ("cancel_requested", "eve"),
    ]
