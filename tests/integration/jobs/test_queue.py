"""The queue: who gets which job, for how long, and what becomes of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from lance_namespace.errors import TransactionNotFoundError

from pennon.catalog import job_events, jobs, tables
from pennon.jobs.queue import LeaseLostError, StopRequestedError
from pennon.pipeline.worker.lease import Lease
from tests.integration.jobs.workshop import LEASE, Workshop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from pennon.catalog.jobs import Job

THREADS = 16


class TestSubmitting:
    def test_a_job_is_there_as_it_was_submitted(self, workshop: Workshop) -> None:
        job = workshop.submit(spec={"column": "c", "where": None}, priority=3)
        assert workshop.find(job) == job
        assert (job.state, job.priority, job.spec) == ("pending", 3, {"column": "c", "where": None})
        assert (job.submitted_by, job.context, job.object) == ("ada", {"purpose": "test"}, ("t",))
        assert workshop.kinds(job) == ["submitted"]

    def test_a_transaction_that_is_undone_leaves_no_job(self, workshop: Workshop) -> None:
        table = workshop.table()
        submit: Any = partial(
            workshop.queue.submit,
            kind="backfill",
            table_id=table.id,
            branch="",
            target="c",
            object=("t",),
            spec={},
            submitted_by="ada",
            context={},
        )

        def work(connection: Connection) -> None:
            submit(connection)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            workshop.database.write(work)
        assert workshop.queue.claim("w", LEASE) is None

    def test_a_job_is_called_as_its_table_is_called_now(self, workshop: Workshop) -> None:
        job = workshop.submit()
        workshop.database.write(lambda connection: tables.rename(connection, job.table_id, ("new",)))
        assert workshop.find(job).object == ("new",)
        workshop.drop()
        assert workshop.find(job).object == ("t",)


class TestClaiming:
    def test_the_highest_priority_comes_first_and_then_the_oldest(self, workshop: Workshop) -> None:
        late = workshop.submit("a")
        workshop.clock.advance(1)
        urgent = workshop.submit("b", priority=5)
        workshop.clock.advance(1)
        last = workshop.submit("c")
        assert [workshop.claim().id for _ in range(3)] == [urgent.id, late.id, last.id]
        assert workshop.queue.claim("w1", LEASE) is None

    def test_of_one_target_only_one_runs(self, workshop: Workshop) -> None:
        first, second = workshop.submit("a"), workshop.submit("a")
        elsewhere = [workshop.submit("a", branch="dev"), workshop.submit("a", table="u"), workshop.submit("b")]
        claimed = {workshop.claim().id for _ in range(4)}
        assert claimed == {first.id, *(job.id for job in elsewhere)}
        assert workshop.queue.claim("w1", LEASE) is None
        running = workshop.find(first)
        workshop.queue.finish(running, "done", counters={})
        assert workshop.claim().id == second.id

    def test_what_a_job_fills_beside_its_target_is_busy_too(self, workshop: Workshop) -> None:
        wide = workshop.submit("c", spec={"columns": ["a", "b", "c"]})
        near = [workshop.submit("a"), workshop.submit("d", spec={"columns": ["b", "d"]})]
        far = [workshop.submit("e"), workshop.submit("a", branch="dev")]
        assert [workshop.claim().id for _ in range(3)] == [wide.id, *(job.id for job in far)]
        assert workshop.queue.claim("w1", LEASE) is None
        workshop.queue.finish(workshop.find(wide), "done", counters={})
        assert [workshop.claim().id for _ in range(2)] == [job.id for job in near]

    def test_a_target_is_busy_while_its_job_commits(self, workshop: Workshop) -> None:
        workshop.submit("a")
        workshop.submit("a")
        workshop.commit(workshop.claim())
        assert workshop.queue.claim("w2", LEASE) is None

    def test_every_job_is_claimed_once_by_racing_workers(self, catalog_url: str) -> None:
        workshop = Workshop(catalog_url, pool_size=THREADS)
        submitted = {workshop.submit(f"c{number}").id for number in range(60)}

        def work(worker: str) -> list[str]:
            found = []
            while (job := workshop.queue.claim(worker, LEASE)) is not None:
                found.append(job.id)
            return found

        with ThreadPoolExecutor(THREADS) as pool:
            claimed = [job for found in pool.map(work, map(str, range(THREADS))) for job in found]
        workshop.close()
        assert sorted(claimed) == sorted(submitted)

    def test_two_jobs_of_one_target_never_run_at_once(self, catalog_url: str) -> None:
        workshop = Workshop(catalog_url, pool_size=THREADS)
        submitted = {workshop.submit(f"c{number % 3}").id for number in range(30)}

        def work(worker: str) -> list[str]:
            done = []
            for _ in range(400):
                job = workshop.queue.claim(worker, LEASE)
                if job is None:
                    if not waiting(workshop):
                        break
                    continue
                same = [held for held in workshop.held() if held.target == job.target]
                assert [held.id for held in same] == [job.id]
                workshop.queue.finish(job, "done", counters={})
                done.append(job.id)
            return done

        with ThreadPoolExecutor(THREADS) as pool:
            done = [job for found in pool.map(work, map(str, range(THREADS))) for job in found]
        workshop.close()
        assert sorted(done) == sorted(submitted)

    def test_a_job_whose_table_is_gone_fails_and_says_so(self, workshop: Workshop) -> None:
        orphan, other = workshop.submit("a"), workshop.submit("a", table="u")
        workshop.drop()
        assert workshop.claim().id == other.id
        ended = workshop.find(orphan)
        assert (ended.state, ended.failure and ended.failure["type"]) == ("failed", "TableNotFound")
        assert ended.failure is not None
        assert "'t' was dropped" in ended.failure["message"]
        assert ended.failure["retryable"] is False

    def test_chores_end_jobs_whose_table_is_gone_also_without_workers(self, workshop: Workshop) -> None:
        waiting_one, resting = workshop.submit("a"), workshop.submit("b")
        workshop.queue.pause(resting.id)
        workshop.drop()
        workshop.queue.sweep(0)
        assert [workshop.state(job) for job in (waiting_one, resting)] == ["failed", "failed"]


def waiting(workshop: Workshop) -> bool:
    counted = workshop.database.read(jobs.counts)
    return bool(counted["pending"])


class TestLeases:
    def test_a_heartbeat_keeps_a_job_and_what_was_counted(self, workshop: Workshop) -> None:
        workshop.submit()
        job = workshop.claim()
        for number in range(1, 5):
            workshop.clock.advance(LEASE - 1)
            assert workshop.queue.heartbeat(job, LEASE, {"rows_computed": number}) is None
            assert workshop.queue.claim("w2", LEASE) is None
        assert workshop.find(job).counters == {"rows_computed": 4}

    def test_a_job_whose_worker_is_silent_is_taken_over(self, workshop: Workshop) -> None:
        workshop.submit()
        first = workshop.claim("w1")
        workshop.queue.heartbeat(first, LEASE, {"rows_computed": 7})
        workshop.clock.advance(LEASE + 1)
        second = workshop.claim("w2")
        assert (second.id, second.worker, second.attempt) == (first.id, "w2", first.attempt + 1)
        assert second.counters == {"rows_computed": 7}
        assert second.started_at == first.started_at
        taken = workshop.events(second)[-1]
        assert (taken.kind, taken.data) == ("taken_over", {"worker": "w2", "attempt": 2, "from": "w1"})

    def test_what_was_committed_is_counted_also_if_its_worker_could_not_tell(self, workshop: Workshop) -> None:
        workshop.submit()
        first = workshop.claim("w1")
        assert Lease(workshop.queue, first, LEASE, threading.Event()).recall() is None
        for version in (4, 5):
            data = {"rows": 10, "failed": 2, "version": version}
            workshop.queue.note(first, "committed", str(version), data)
        workshop.clock.advance(LEASE + 1)
        lease = Lease(workshop.queue, workshop.claim("w2"), LEASE, threading.Event())
        assert lease.recall() == 5
        assert lease.counters == {"rows_committed": 16, "rows_failed": 4, "fragments_committed": 2}

    @pytest.mark.parametrize(
        "act",
        [
            lambda w, job: w.queue.heartbeat(job, LEASE, {}),
            lambda w, job: w.queue.finish(job, "done", counters={}),
            lambda w, job: w.queue.release(job, "pending", {}),
            lambda w, job: w.queue.resume_running(job),
            lambda w, job: w.commit(job),
        ],
    )
    @pytest.mark.parametrize("by", ["w1", "w2"])
    def test_who_lost_a_job_can_do_nothing_to_it(
        self, workshop: Workshop, act: Callable[[Workshop, Job], Any], by: str
    ) -> None:
        workshop.submit()
        stale = workshop.claim("w1")
        workshop.clock.advance(LEASE + 1)
        held = workshop.claim(by)
        with pytest.raises(LeaseLostError):
            act(workshop, stale)
        assert workshop.find(held) == held
        act(workshop, held)

    def test_a_silent_worker_goes_on_when_nobody_took_its_job(self, workshop: Workshop) -> None:
        workshop.submit()
        job = workshop.claim()
        workshop.clock.advance(10 * LEASE)
        assert workshop.queue.heartbeat(job, LEASE, {}) is None
        workshop.commit(job)

    def test_a_job_that_loses_its_workers_again_and_again_fails(self, catalog_url: str) -> None:
        workshop = Workshop(catalog_url, attempts=2)
        job = workshop.submit()
        for number in range(3):
            assert workshop.claim(f"w{number}").id == job.id
            workshop.clock.advance(LEASE + 1)
        assert workshop.queue.claim("w9", LEASE) is None
        ended = workshop.find(job)
        workshop.close()
        assert ended.state == "failed"
        assert ended.failure is not None
        assert (ended.failure["phase"], ended.failure["type"]) == ("worker", "WorkerLost")
        assert ended.failure["retryable"] is True

    def test_a_commit_makes_up_for_workers_that_were_lost(self, catalog_url: str) -> None:
        workshop = Workshop(catalog_url, attempts=1)
        job = workshop.submit()
        for number in range(5):
            workshop.commit(workshop.claim(f"w{number}"))
            workshop.clock.advance(LEASE + 1)
        assert workshop.claim("w9").id == job.id
        workshop.close()

    def test_a_job_whose_worker_loses_its_spark_goes_on_or_fails_with_the_reason(self, catalog_url: str) -> None:
        workshop = Workshop(catalog_url, attempts=2)
        job = workshop.submit()
        failure = {"phase": "compute", "type": "SparkLostError", "message": "It ended.", "retryable": True}
        for number in range(2):
            workshop.queue.hand_over(workshop.claim(), failure, {"rows_computed": number})
            waiting = workshop.find(job)
            assert (waiting.state, waiting.takeovers) == ("pending", number + 1)
            assert waiting.counters == {"rows_computed": number}
        assert workshop.events(job)[-1].data["failure"] == failure
        workshop.queue.hand_over(workshop.claim(), failure, {})
        ended = workshop.find(job)
        workshop.close()
        assert (ended.state, ended.failure) == ("failed", failure)

    def test_a_job_given_back_is_claimed_anew_and_no_takeover(self, workshop: Workshop) -> None:
        workshop.submit()
        for number in range(1, 9):
            job = workshop.claim()
            assert (job.attempt, job.takeovers) == (number, 0)
            workshop.queue.release(job, "pending", {"rows_computed": number})
        assert workshop.find(job).counters == {"rows_computed": 8}


class TestGuard:
    def test_a_commit_marks_the_job_until_it_goes_on(self, workshop: Workshop) -> None:
        workshop.submit()
        job = workshop.claim()
        workshop.commit(job)
        assert workshop.state(job) == "committing"
        workshop.queue.heartbeat(job, LEASE, {})
        assert workshop.state(job) == "running"
        workshop.commit(job)
        workshop.queue.resume_running(job)
        assert workshop.state(job) == "running"

    def test_a_commit_that_is_undone_leaves_the_job_as_it_was(self, workshop: Workshop) -> None:
        workshop.submit()
        job = workshop.claim()

        def work(connection: Connection) -> None:
            workshop.queue.guard(connection, job)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            workshop.database.write(work)
        assert workshop.find(job) == job

    @pytest.mark.parametrize("wish", ["cancel", "pause"])
    def test_after_a_wish_nothing_is_committed(self, workshop: Workshop, wish: str) -> None:
        workshop.submit()
        job = workshop.claim()
        assert getattr(workshop.queue, wish)(job.id) == {"cancel": "cancelling", "pause": "pausing"}[wish]
        with pytest.raises(StopRequestedError) as stopped:
            workshop.commit(job)
        assert stopped.value.wish == wish
        assert workshop.state(job) == "running"
        assert workshop.queue.heartbeat(job, LEASE, {}) == wish

    def test_a_cancel_that_races_with_commits_is_told_the_truth(self, catalog_url: str) -> None:
        workshop = Workshop(catalog_url, pool_size=4)
        for number in range(15):
            workshop.submit(f"c{number}")
            job = workshop.claim()

            def commit(connection: Connection, job: Job = job) -> None:
                workshop.queue.guard(connection, job)
                job_events.append(connection, job.id, "committed", workshop.clock())

            def commit_until_stopped(job: Job = job, commit: Callable[[Connection], None] = commit) -> None:
                with suppress(StopRequestedError):
                    while True:
                        workshop.database.write(commit)
                        workshop.queue.resume_running(job)

            with ThreadPoolExecutor(1) as pool:
                committing = pool.submit(commit_until_stopped)
                answer = workshop.queue.cancel(job.id)
                committing.result()
            before, _, after = "".join(f"{kind} " for kind in workshop.kinds(job)).partition("cancel_requested ")
            assert answer in ({"cancelling", "committing"} if before.endswith("committed ") else {"cancelling"})
            assert after == ""
            workshop.queue.finish(workshop.find(job), "cancelled", counters={})
        workshop.close()


class TestTimeLimits:
    def test_a_job_that_runs_for_too_long_is_asked_to_end(self, workshop: Workshop) -> None:
        workshop.submit(spec={"timeout_seconds": 60})
        workshop.clock.advance(1000)  # waiting does not count
        job = workshop.claim()
        workshop.clock.advance(60)
        assert workshop.queue.heartbeat(job, LEASE, {}) is None
        workshop.clock.advance(1)
        assert workshop.queue.heartbeat(job, LEASE, {}) == "timeout"
        with pytest.raises(StopRequestedError, match="timeout"):
            workshop.commit(job)
        workshop.queue.finish(job, "timed_out", counters={}, failure={"phase": "compute"})
        assert workshop.state(job) == "timed_out"

    def test_rest_does_not_count(self, workshop: Workshop) -> None:
        workshop.submit(spec={"timeout_seconds": 60})
        job = workshop.claim()
        workshop.clock.advance(40)
        workshop.queue.release(job, "paused", {})
        workshop.clock.advance(10_000)
        workshop.queue.resume(job.id)
        again = workshop.claim()
        workshop.clock.advance(20)
        assert workshop.queue.heartbeat(again, LEASE, {}) is None
        workshop.clock.advance(1)
        assert workshop.queue.heartbeat(again, LEASE, {}) == "timeout"

    def test_a_cancel_wins_over_the_time_limit(self, workshop: Workshop) -> None:
        workshop.submit(spec={"timeout_seconds": 60})
        job = workshop.claim()
        workshop.queue.cancel(job.id)
        workshop.clock.advance(100)
        assert workshop.queue.heartbeat(job, LEASE, {}) == "cancel"


class TestEnding:
    @pytest.mark.parametrize("state", ["done", "failed", "cancelled", "timed_out"])
    def test_an_end_is_kept_with_its_result_and_reason(self, workshop: Workshop, state: str) -> None:
        workshop.submit()
        job = workshop.claim()
        workshop.clock.advance(5)
        result = {"published_version": 4, "note": None}
        failure = {"phase": "compute", "type": "ValueError", "message": "§ \ud800 '\0'", "retryable": False}
        workshop.queue.finish(job, state, counters={"rows_failed": 1.5}, result=result, failure=failure)
        ended = workshop.find(job)
        assert (ended.state, ended.result, ended.failure) == (state, result, failure)
        assert (ended.counters, ended.finished_at) == ({"rows_failed": 1.5}, workshop.clock())
        assert (ended.worker, ended.lease_until) == (None, None)
        assert workshop.events(job)[-1].kind == state
        workshop.clock.advance(1000)
        assert workshop.queue.claim("w2", LEASE) is None

    def test_a_job_cannot_end_as_something_else(self, workshop: Workshop) -> None:
        workshop.submit()
        with pytest.raises(ValueError, match="paused"):
            workshop.queue.finish(workshop.claim(), "paused", counters={})

    @pytest.mark.parametrize(
        ("wish", "state"), [("cancel", "cancelled"), ("pause", "paused"), ("timeout", "timed_out")]
    )
    @pytest.mark.parametrize("how", ["given back", "lost"])
    def test_a_wish_is_granted_when_the_worker_stops_without_doing_so(
        self, workshop: Workshop, wish: str, state: str, how: str
    ) -> None:
        workshop.submit(spec={"timeout_seconds": 1})
        job = workshop.claim()
        if wish == "timeout":
            workshop.clock.advance(2)
            workshop.queue.heartbeat(job, LEASE, {})
        else:
            getattr(workshop.queue, wish)(job.id)
        if how == "given back":
            workshop.queue.release(job, "pending", {"rows_computed": 3})
        else:
            workshop.clock.advance(LEASE + 1)
        assert workshop.queue.claim("w2", LEASE) is None
        assert workshop.state(job) == state
        assert workshop.kinds(job)[-1] == state

    def test_old_jobs_are_forgotten_with_their_events(self, workshop: Workshop) -> None:
        old, active = workshop.submit("a"), workshop.submit("b")
        workshop.queue.cancel(old.id)
        workshop.clock.advance(100)
        recent = workshop.submit("c")
        workshop.queue.cancel(recent.id)
        workshop.queue.sweep(workshop.clock() - 50_000)
        assert workshop.queue.find(old.id) is None
        assert workshop.events(old) == []
        assert [workshop.state(job) for job in (active, recent)] == ["pending", "cancelled"]


class TestEvents:
    def test_they_are_numbered_in_the_order_in_which_they_happened(self, workshop: Workshop) -> None:
        workshop.submit()
        job = workshop.claim()
        for number in range(5):
            workshop.clock.advance(1)
            workshop.queue.note(job, "claim_complete", f"fragment {number}", {"rows_processed": number})
        found = workshop.events(job)
        assert [event.seq for event in found] == list(range(1, 8))
        assert [event.at for event in found] == sorted(event.at for event in found)
        assert [(event.unit, event.data) for event in found[2:]] == [
            (f"fragment {number}", {"rows_processed": number}) for number in range(5)
        ]

    def test_none_is_lost_or_numbered_twice_by_racing_threads(self, catalog_url: str) -> None:
        workshop = Workshop(catalog_url, pool_size=THREADS)
        workshop.submit()
        job = workshop.claim()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda number: workshop.queue.note(job, "unit", str(number)), range(100)))
        found = workshop.events(job)
        workshop.close()
        assert [event.seq for event in found] == list(range(1, 103))
        assert {event.unit for event in found[2:]} == {str(number) for number in range(100)}

    def test_an_event_of_a_job_that_was_forgotten_is_dropped(self, workshop: Workshop) -> None:
        job = workshop.submit()
        workshop.queue.cancel(job.id)
        workshop.queue.sweep(workshop.clock() + 1)
        workshop.queue.note(job, "late")
        assert workshop.events(job) == []


@pytest.mark.parametrize("call", ["cancel", "pause", "resume", "retry"])
@pytest.mark.parametrize("job_id", ["0123", "", "\0", "'; --"])
def test_a_job_that_does_not_exist_is_said_so(workshop: Workshop, call: str, job_id: str) -> None:
    with pytest.raises(TransactionNotFoundError, match="does not exist"):
        getattr(workshop.queue, call)(job_id)
