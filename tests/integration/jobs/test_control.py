"""Cancel, pause, resume and retry, in every state a job can be in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from tests.integration.jobs.workshop import LEASE, Workshop

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job

ENDED = ("done", "failed", "cancelled", "timed_out")
REFUSED = "refused"


def bring(workshop: Workshop, state: str) -> Job:
    """Return a job that is in a state; "running+pause" is one that was asked to pause."""
    job = workshop.submit(spec={"column": "c", "timeout_seconds": 5})
    state, _, wish = state.partition("+")
    if state == "paused":
        workshop.queue.pause(job.id)
    elif state != "pending":
        job = workshop.claim()
        if state in ENDED:
            workshop.queue.finish(job, state, counters={})
    if state == "committing":
        workshop.commit(job)
    if wish == "timeout":
        workshop.clock.advance(6)
        workshop.queue.heartbeat(job, LEASE, {})
    elif wish:
        getattr(workshop.queue, wish)(job.id)
    assert workshop.state(job) == state
    return job


#: By the state a job is in and what is asked of it: the answer, the state afterwards, and the wish its worker hears.
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


@pytest.mark.parametrize(("before", "call", "answer", "after", "wish"), OUTCOMES)
def test_a_wish_has_its_answer_and_its_effect(
    workshop: Workshop, before: str, call: str, answer: str, after: str, wish: str | None
) -> None:
    job = bring(workshop, before)
    if answer == REFUSED:
        with pytest.raises(InvalidTableStateError, match=job.id):
            getattr(workshop.queue, call)(job.id)
    else:
        assert getattr(workshop.queue, call)(job.id, "bob") == answer
    found = workshop.find(job)
    assert (found.state, found.wish) == (after, wish)
    assert (found.finished_at is not None) == (after in ENDED)


@pytest.mark.parametrize(
    ("wish", "answer", "state"), [("cancel", "committing", "cancelled"), ("pause", "committing", "paused")]
)
def test_a_job_stops_after_the_commit_it_was_making(workshop: Workshop, wish: str, answer: str, state: str) -> None:
    job = bring(workshop, "committing")
    assert getattr(workshop.queue, wish)(job.id) == answer
    assert workshop.queue.heartbeat(job, LEASE, {}) == wish
    if wish == "cancel":
        workshop.queue.finish(job, "cancelled", counters={})
    else:
        workshop.queue.release(job, "paused", {})
    assert workshop.state(job) == state


def test_a_job_whose_last_commit_was_made_may_end_as_done_all_the_same(workshop: Workshop) -> None:
    job = bring(workshop, "committing")
    assert workshop.queue.cancel(job.id) == "committing"
    workshop.queue.finish(job, "done", counters={})
    assert workshop.state(job) == "done"


@pytest.mark.parametrize("state", ["pending", "running", "committing", "paused"])
def test_a_job_that_has_not_ended_is_not_tried_again(workshop: Workshop, state: str) -> None:
    job = bring(workshop, state)
    with pytest.raises(InvalidTableStateError, match="has not ended"):
        workshop.queue.retry(job.id)


@pytest.mark.parametrize("state", ["failed", "cancelled", "timed_out"])
@pytest.mark.parametrize("only_failed", [False, True])
def test_what_was_not_done_is_tried_again_by_a_new_job(workshop: Workshop, state: str, only_failed: bool) -> None:
    job = bring(workshop, state)
    again = workshop.queue.retry(job.id, only_failed=only_failed, by="bob")
    expected = {"column": "c", "timeout_seconds": 5, **({"mode": "only_failed"} if only_failed else {})}
    assert workshop.find(again) == again
    assert (again.state, again.spec, again.retry_of, again.submitted_by) == ("pending", expected, job.id, "bob")
    assert (again.table_id, again.branch, again.target) == (job.table_id, job.branch, job.target)
    assert workshop.events(job)[-1].data == {"job_id": again.id, "by": "bob"}
    assert workshop.events(again)[0].data["retry_of"] == job.id
    assert workshop.state(job) == state
    assert workshop.claim().id == again.id


def test_of_a_job_that_is_done_only_failed_rows_are_tried_again(workshop: Workshop) -> None:
    job = bring(workshop, "done")
    with pytest.raises(InvalidTableStateError, match="only_failed"):
        workshop.queue.retry(job.id)
    assert workshop.queue.retry(job.id, only_failed=True).spec["mode"] == "only_failed"


def test_only_a_backfill_can_try_failed_rows_alone(workshop: Workshop) -> None:
    job = workshop.submit(kind="refresh")
    workshop.queue.cancel(job.id)
    with pytest.raises(InvalidInputError, match="only a backfill"):
        workshop.queue.retry(job.id, only_failed=True)
    assert workshop.queue.retry(job.id).kind == "refresh"


def test_a_job_whose_table_is_gone_is_not_tried_again(workshop: Workshop) -> None:
    job = bring(workshop, "failed")
    workshop.drop()
    with pytest.raises(InvalidTableStateError, match="dropped"):
        workshop.queue.retry(job.id)


def test_who_asked_for_something_is_told_by_the_events(workshop: Workshop) -> None:
    job = workshop.submit()
    workshop.queue.pause(job.id, "bob")
    workshop.queue.resume(job.id, "eve")
    workshop.claim("w1")
    workshop.queue.pause(job.id, "bob")
    workshop.queue.pause(job.id, "bob")
    workshop.queue.cancel(job.id, "eve")
    told = [(event.kind, event.data.get("by") or event.data.get("worker")) for event in workshop.events(job)]
    assert told == [
        ("submitted", "ada"),
        ("paused", "bob"),
        ("resumed", "eve"),
        ("claimed", "w1"),
        ("pause_requested", "bob"),
        ("cancel_requested", "eve"),
    ]
