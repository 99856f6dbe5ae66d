"""The queue against a model of it: whatever happens in whatever order, nobody shares a job and nothing runs twice."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from lance_namespace.errors import InvalidTableStateError

from pennon.catalog.jobs import Job
from pennon.core.job_model import TERMINAL, JobState
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from tests.integration.jobs.queue_fixture import LEASE, QueueFixture
from tests.support.jobs import change_job

WORKERS = st.sampled_from(["w1", "w2", "w3"])
TARGETS = st.sampled_from(["a", "b"])


class QueueMachine(RuleBasedStateMachine):
    """Workers and callers who do things to jobs in any order."""

    jobs = Bundle("jobs")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.queue_fixture = QueueFixture(f"sqlite:///{Path(self._folder.name) / 'catalog.db'}", attempts=2)
        self.queue_fixture.table()
        #: The claim that holds each job.
        self.holders: dict[str, Job] = {}
        self.expires: dict[str, int] = {}
        self.ended: dict[str, str] = {}
        self.stop_requests: dict[str, str] = {}

    def teardown(self) -> None:
        self.queue_fixture.close()
        self._folder.cleanup()

    @property
    def queue(self) -> Any:
        return self.queue_fixture.queue

    def holds(self, claim: Job) -> bool:
        held = self.holders.get(claim.id)
        return held is not None and (held.worker, held.attempt) == (claim.worker, claim.attempt)

    def lose(self, job_id: str) -> None:
        self.holders.pop(job_id, None)
        self.stop_requests.pop(job_id, None)

    @rule(target=jobs, where=TARGETS, priority=st.integers(0, 2))
    def submit(self, where: str, priority: int) -> str:
        return self.queue_fixture.submit(where, priority=priority).id

    @rule(target=claims, worker=WORKERS)
    def claim(self, worker: str) -> Any:
        now = self.queue_fixture.clock()
        before = dict(self.holders)
        expired = {job_id for job_id in before if self.expires[job_id] < now}
        job = self.queue.claim(worker, LEASE)
        for job_id in expired:
            found = self.queue.find(job_id)
            if found.attempt != before[job_id].attempt or found.worker is None:
                if job_id in self.stop_requests:  # what was asked for happens, although its worker is gone
                    assert found.state == {"cancel": "cancelled", "pause": "paused"}[self.stop_requests[job_id]]
                self.lose(job_id)
                if found.state in TERMINAL:
                    self.ended[job_id] = found.state
        if job is None:
            return None
        assert job.id not in self.ended
        assert job.id not in before or job.id in expired
        assert job.target not in {held.target for held in self.holders.values()}
        self.holders[job.id] = job
        self.expires[job.id] = now + int(LEASE * 1000)
        return job

    @rule(seconds=st.sampled_from([1, 10, 31, 100]))
    def wait(self, seconds: int) -> None:
        self.queue_fixture.clock.advance(seconds)

    @rule(claim=claims)
    def heartbeat(self, claim: Job | None) -> None:
        if claim is None:
            return
        if not self.holds(claim):
            with pytest.raises(LeaseLostError):
                self.queue.heartbeat(claim, LEASE, {})
            return
        assert self.queue.heartbeat(claim, LEASE, {"rows_computed": 1}) == self.stop_requests.get(claim.id)
        self.expires[claim.id] = self.queue_fixture.clock() + int(LEASE * 1000)

    @rule(claim=claims)
    def commit(self, claim: Job | None) -> None:
        if claim is None:
            return
        if not self.holds(claim):
            with pytest.raises(LeaseLostError):
                self.queue_fixture.commit(claim)
        elif claim.id in self.stop_requests:
            with pytest.raises(StopRequestedError):
                self.queue_fixture.commit(claim)
        else:
            self.queue_fixture.commit(claim)
            assert self.queue_fixture.state(claim) == "committing"

    @rule(claim=claims, state=st.sampled_from(["done", "failed", "cancelled"]))
    def finish(self, claim: Job | None, state: str) -> None:
        if claim is None:
            return
        if not self.holds(claim):
            with pytest.raises(LeaseLostError):
                self.queue.finish(claim, JobState(state), counters={})
            return
        self.queue.finish(claim, JobState(state), counters={})
        self.lose(claim.id)
        self.ended[claim.id] = state

    @rule(claim=claims, state=st.sampled_from(["pending", "paused"]))
    def release(self, claim: Job | None, state: Any) -> None:
        if claim is None:
            return
        if not self.holds(claim):
            with pytest.raises(LeaseLostError):
                self.queue.release(claim, {}, paused=state == "paused")
            return
        self.queue.release(claim, {}, paused=state == "paused")
        expected = {"cancel": "cancelled", "pause": "paused", None: state}[self.stop_requests.get(claim.id)]
        assert self.queue_fixture.state(claim) == expected
        self.lose(claim.id)
        if expected in TERMINAL:
            self.ended[claim.id] = expected

    @rule(job_id=jobs)
    def cancel(self, job_id: str) -> None:
        answer = change_job(self.queue, "cancel", job_id)
        if job_id in self.ended:
            assert answer == f"already_{self.ended[job_id]}"
        elif job_id in self.holders:
            assert answer in {"cancelling", "committing"}
            self.stop_requests[job_id] = "cancel"
        else:
            assert answer == "cancelled"
            self.ended[job_id] = "cancelled"

    @rule(job_id=jobs)
    def pause(self, job_id: str) -> None:
        if job_id in self.ended or self.stop_requests.get(job_id) == "cancel":
            with pytest.raises(InvalidTableStateError):
                change_job(self.queue, "pause", job_id)
            return
        answer = change_job(self.queue, "pause", job_id)
        if job_id in self.holders:
            assert answer in {"pausing", "committing"}
            self.stop_requests[job_id] = "pause"
        else:
            assert answer in {"paused", "already_paused"}

    @rule(job_id=jobs)
    def resume(self, job_id: str) -> None:
        before = self.queue.find(job_id)
        answer = change_job(self.queue, "resume", job_id)
        if before.state == "paused":
            assert answer == "resumed"
        else:
            assert answer == ("still_pausing" if self.stop_requests.get(job_id) == "pause" else "not_paused")

    @invariant()
    def what_has_ended_stays_so(self) -> None:
        assert {job_id: self.queue.find(job_id).state for job_id in self.ended} == self.ended

    @invariant()
    def every_job_is_held_by_whom_it_was_given_to_and_by_nobody_else(self) -> None:
        held = {job.id: (job.worker, job.attempt) for job in self.queue_fixture.held()}
        assert held == {job_id: (job.worker, job.attempt) for job_id, job in self.holders.items()}
        targets = [job.target for job in self.queue_fixture.held()]
        assert len(set(targets)) == len(targets)


def test_no_two_workers_have_a_job_and_no_job_runs_twice() -> None:
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
