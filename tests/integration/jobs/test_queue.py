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
from pennon.core.job_model import JobKind, JobState
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.pipeline.worker.lease import Lease
from tests.integration.jobs.queue_fixture import LEASE, QueueFixture
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from pennon.catalog.jobs import Job

THREADS = 16


class TestSubmitting:
    def test_a_job_is_there_as_it_was_submitted(self, queue_fixture: QueueFixture) -> None:
        job = queue_fixture.submit(spec={"column": "c", "where": None}, priority=3)
        assert queue_fixture.find(job) == job
        assert (job.state, job.priority, job.spec) == ("pending", 3, {"column": "c", "where": None})
        assert (job.submitted_by, job.context, job.object) == ("ada", {"purpose": "test"}, ("t",))
        assert queue_fixture.kinds(job) == ["submitted"]

    def test_a_transaction_that_is_undone_leaves_no_job(self, queue_fixture: QueueFixture) -> None:
        table = queue_fixture.table()
        submit: Any = partial(
            queue_fixture.queue.submit,
            kind=JobKind.BACKFILL,
            table=table,
            target="c",
            spec={},
            submitted_by="ada",
        )

        def work(connection: Connection) -> None:
            submit(connection)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            queue_fixture.database.write(work)
        assert queue_fixture.queue.claim("w", LEASE) is None

    def test_a_job_is_called_as_its_table_is_called_now(self, queue_fixture: QueueFixture) -> None:
        job = queue_fixture.submit()
        queue_fixture.database.write(lambda connection: tables.rename(connection, job.table_id, ("new",)))
        assert queue_fixture.find(job).object == ("new",)
        queue_fixture.drop()
        assert queue_fixture.find(job).object == ("t",)


class TestClaiming:
    def test_the_highest_priority_comes_first_and_then_the_oldest(self, queue_fixture: QueueFixture) -> None:
        late = queue_fixture.submit("a")
        queue_fixture.clock.advance(1)
        urgent = queue_fixture.submit("b", priority=5)
        queue_fixture.clock.advance(1)
        last = queue_fixture.submit("c")
        assert [queue_fixture.claim().id for _ in range(3)] == [urgent.id, late.id, last.id]
        assert queue_fixture.queue.claim("w1", LEASE) is None

    def test_of_one_target_only_one_runs(self, queue_fixture: QueueFixture) -> None:
        first, second = queue_fixture.submit("a"), queue_fixture.submit("a")
        elsewhere = [
            queue_fixture.submit("a", branch="dev"),
            queue_fixture.submit("a", table="u"),
            queue_fixture.submit("b"),
        ]
        claimed = {queue_fixture.claim().id for _ in range(4)}
        assert claimed == {first.id, *(job.id for job in elsewhere)}
        assert queue_fixture.queue.claim("w1", LEASE) is None
        running = queue_fixture.find(first)
        queue_fixture.queue.finish(running, JobState.DONE, counters={})
        assert queue_fixture.claim().id == second.id

    def test_what_a_job_fills_beside_its_target_is_busy_too(self, queue_fixture: QueueFixture) -> None:
        wide = queue_fixture.submit("c", spec={"columns": ["a", "b", "c"]})
        near = [queue_fixture.submit("a"), queue_fixture.submit("d", spec={"columns": ["b", "d"]})]
        far = [queue_fixture.submit("e"), queue_fixture.submit("a", branch="dev")]
        assert [queue_fixture.claim().id for _ in range(3)] == [wide.id, *(job.id for job in far)]
        assert queue_fixture.queue.claim("w1", LEASE) is None
        queue_fixture.queue.finish(queue_fixture.find(wide), JobState.DONE, counters={})
        assert [queue_fixture.claim().id for _ in range(2)] == [job.id for job in near]

    def test_a_target_is_busy_while_its_job_commits(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit("a")
        queue_fixture.submit("a")
        queue_fixture.commit(queue_fixture.claim())
        assert queue_fixture.queue.claim("w2", LEASE) is None

    def test_every_job_is_claimed_once_by_racing_workers(self, catalog_url: str) -> None:
        queue_fixture = QueueFixture(catalog_url, pool_size=THREADS)
        submitted = {queue_fixture.submit(f"c{number}").id for number in range(60)}

        def work(worker: str) -> list[str]:
            found = []
            while (job := queue_fixture.queue.claim(worker, LEASE)) is not None:
                found.append(job.id)
            return found

        with ThreadPoolExecutor(THREADS) as pool:
            claimed = [job for found in pool.map(work, map(str, range(THREADS))) for job in found]
        queue_fixture.close()
        assert sorted(claimed) == sorted(submitted)

    def test_two_jobs_of_one_target_never_run_at_once(self, catalog_url: str) -> None:
        queue_fixture = QueueFixture(catalog_url, pool_size=THREADS)
        submitted = {queue_fixture.submit(f"c{number % 3}").id for number in range(30)}

        def work(worker: str) -> list[str]:
            done = []
            for _ in range(400):
                job = queue_fixture.queue.claim(worker, LEASE)
                if job is None:
                    if not waiting(queue_fixture):
                        break
                    continue
                same = [held for held in queue_fixture.held() if held.target == job.target]
                assert [held.id for held in same] == [job.id]
                queue_fixture.queue.finish(job, JobState.DONE, counters={})
                done.append(job.id)
            return done

        with ThreadPoolExecutor(THREADS) as pool:
            done = [job for found in pool.map(work, map(str, range(THREADS))) for job in found]
        queue_fixture.close()
        assert sorted(done) == sorted(submitted)

    def test_a_job_whose_table_is_gone_fails_and_says_so(self, queue_fixture: QueueFixture) -> None:
        orphan, other = queue_fixture.submit("a"), queue_fixture.submit("a", table="u")
        queue_fixture.drop()
        assert queue_fixture.claim().id == other.id
        ended = queue_fixture.find(orphan)
        assert (ended.state, ended.failure and ended.failure["type"]) == ("failed", "TableNotFound")
        assert ended.failure is not None
        assert "'t' was dropped" in ended.failure["message"]
        assert ended.failure["retryable"] is False

    def test_maintenance_fails_jobs_of_dropped_tables_without_workers(self, queue_fixture: QueueFixture) -> None:
        waiting_one, resting = queue_fixture.submit("a"), queue_fixture.submit("b")
        change_job(queue_fixture.queue, "pause", resting.id)
        queue_fixture.drop()
        queue_fixture.queue.sweep(0)
        assert [queue_fixture.state(job) for job in (waiting_one, resting)] == ["failed", "failed"]


def waiting(queue_fixture: QueueFixture) -> bool:
    counted = queue_fixture.database.read(jobs.count_by_state)
    return bool(counted["pending"])


class TestLeases:
    def test_a_heartbeat_keeps_a_job_and_what_was_counted(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        job = queue_fixture.claim()
        for number in range(1, 5):
            queue_fixture.clock.advance(LEASE - 1)
            assert queue_fixture.queue.heartbeat(job, LEASE, {"rows_computed": number}) is None
            assert queue_fixture.queue.claim("w2", LEASE) is None
        assert queue_fixture.find(job).counters == {"rows_computed": 4}

    def test_a_job_whose_worker_is_silent_is_taken_over(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        first = queue_fixture.claim("w1")
        queue_fixture.queue.heartbeat(first, LEASE, {"rows_computed": 7})
        queue_fixture.clock.advance(LEASE + 1)
        second = queue_fixture.claim("w2")
        assert (second.id, second.worker, second.attempt) == (first.id, "w2", first.attempt + 1)
        assert second.counters == {"rows_computed": 7}
        assert second.started_at == first.started_at
        taken = queue_fixture.events(second)[-1]
        assert (taken.kind, taken.data) == ("taken_over", {"worker": "w2", "attempt": 2, "from": "w1"})

    def test_committed_rows_are_counted_even_if_the_worker_could_not_report_them(
        self, queue_fixture: QueueFixture
    ) -> None:
        queue_fixture.submit()
        first = queue_fixture.claim("w1")
        assert Lease(queue_fixture.queue, first, LEASE, threading.Event()).restore_counters() is None
        for version in (4, 5):
            data = {"rows": 10, "failed": 2, "version": version}
            queue_fixture.queue.add_event(first, "committed", str(version), data)
        queue_fixture.clock.advance(LEASE + 1)
        lease = Lease(queue_fixture.queue, queue_fixture.claim("w2"), LEASE, threading.Event())
        assert lease.restore_counters() == 5
        assert lease.counters == {"rows_committed": 16, "rows_failed": 4, "fragments_committed": 2}

    @pytest.mark.parametrize(
        "act",
        [
            lambda w, job: w.queue.heartbeat(job, LEASE, {}),
            lambda w, job: w.queue.finish(job, JobState.DONE, counters={}),
            lambda w, job: w.queue.release(job, {}),
            lambda w, job: w.queue.end_commit(job),
            lambda w, job: w.commit(job),
        ],
    )
    @pytest.mark.parametrize("by", ["w1", "w2"])
    def test_a_worker_that_lost_a_job_cannot_change_it(
        self, queue_fixture: QueueFixture, act: Callable[[QueueFixture, Job], Any], by: str
    ) -> None:
        queue_fixture.submit()
        stale = queue_fixture.claim("w1")
        queue_fixture.clock.advance(LEASE + 1)
        held = queue_fixture.claim(by)
        with pytest.raises(LeaseLostError):
            act(queue_fixture, stale)
        assert queue_fixture.find(held) == held
        act(queue_fixture, held)

    def test_a_silent_worker_continues_when_no_other_took_its_job(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        job = queue_fixture.claim()
        queue_fixture.clock.advance(10 * LEASE)
        assert queue_fixture.queue.heartbeat(job, LEASE, {}) is None
        queue_fixture.commit(job)

    def test_a_job_that_loses_its_workers_again_and_again_fails(self, catalog_url: str) -> None:
        queue_fixture = QueueFixture(catalog_url, attempts=2)
        job = queue_fixture.submit()
        for number in range(3):
            assert queue_fixture.claim(f"w{number}").id == job.id
            queue_fixture.clock.advance(LEASE + 1)
        assert queue_fixture.queue.claim("w9", LEASE) is None
        ended = queue_fixture.find(job)
        queue_fixture.close()
        assert ended.state == "failed"
        assert ended.failure is not None
        assert (ended.failure["phase"], ended.failure["type"]) == ("worker", "WorkerLost")
        assert ended.failure["retryable"] is True

    def test_a_commit_makes_up_for_workers_that_were_lost(self, catalog_url: str) -> None:
        queue_fixture = QueueFixture(catalog_url, attempts=1)
        job = queue_fixture.submit()
        for number in range(5):
            queue_fixture.commit(queue_fixture.claim(f"w{number}"))
            queue_fixture.clock.advance(LEASE + 1)
        assert queue_fixture.claim("w9").id == job.id
        queue_fixture.close()

    def test_a_job_whose_worker_loses_its_spark_goes_on_or_fails_with_the_reason(self, catalog_url: str) -> None:
        queue_fixture = QueueFixture(catalog_url, attempts=2)
        job = queue_fixture.submit()
        failure = {"phase": "compute", "type": "SparkLostError", "message": "It ended.", "retryable": True}
        for number in range(2):
            queue_fixture.queue.requeue(queue_fixture.claim(), failure, {"rows_computed": number})  # type: ignore[arg-type]
            waiting = queue_fixture.find(job)
            assert (waiting.state, waiting.takeovers) == ("pending", number + 1)
            assert waiting.counters == {"rows_computed": number}
        assert queue_fixture.events(job)[-1].data["failure"] == failure
        queue_fixture.queue.requeue(queue_fixture.claim(), failure, {})  # type: ignore[arg-type]
        ended = queue_fixture.find(job)
        queue_fixture.close()
        assert (ended.state, ended.failure) == ("failed", failure)

    def test_a_released_job_is_claimed_again_without_counting_as_a_takeover(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        for number in range(1, 9):
            job = queue_fixture.claim()
            assert (job.attempt, job.takeovers) == (number, 0)
            queue_fixture.queue.release(job, {"rows_computed": number})
        assert queue_fixture.find(job).counters == {"rows_computed": 8}


class TestGuard:
    def test_a_job_is_marked_as_committing_during_its_commit(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        job = queue_fixture.claim()
        queue_fixture.commit(job)
        assert queue_fixture.state(job) == "committing"
        queue_fixture.queue.heartbeat(job, LEASE, {})
        assert queue_fixture.state(job) == "running"
        queue_fixture.commit(job)
        queue_fixture.queue.end_commit(job)
        assert queue_fixture.state(job) == "running"

    def test_a_commit_that_is_undone_leaves_the_job_as_it_was(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        job = queue_fixture.claim()

        def work(connection: Connection) -> None:
            queue_fixture.queue.begin_commit(connection, job)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            queue_fixture.database.write(work)
        assert queue_fixture.find(job) == job

    @pytest.mark.parametrize("stop_request", ["cancel", "pause"])
    def test_after_a_stop_request_nothing_is_committed(self, queue_fixture: QueueFixture, stop_request: str) -> None:
        queue_fixture.submit()
        job = queue_fixture.claim()
        assert (
            change_job(queue_fixture.queue, stop_request, job.id)
            == {"cancel": "cancelling", "pause": "pausing"}[stop_request]
        )
        with pytest.raises(StopRequestedError) as stopped:
            queue_fixture.commit(job)
        assert stopped.value.stop_request == stop_request
        assert queue_fixture.state(job) == "running"
        assert queue_fixture.queue.heartbeat(job, LEASE, {}) == stop_request

    def test_a_cancel_that_races_with_a_commit_returns_the_actual_outcome(self, catalog_url: str) -> None:
        queue_fixture = QueueFixture(catalog_url, pool_size=4)
        for number in range(15):
            queue_fixture.submit(f"c{number}")
            job = queue_fixture.claim()

            def commit(connection: Connection, job: Job = job) -> None:
                queue_fixture.queue.begin_commit(connection, job)
                job_events.append(connection, job.id, "committed", queue_fixture.clock())

            def commit_until_stopped(job: Job = job, commit: Callable[[Connection], None] = commit) -> None:
                with suppress(StopRequestedError):
                    while True:
                        queue_fixture.database.write(commit)
                        queue_fixture.queue.end_commit(job)

            with ThreadPoolExecutor(1) as pool:
                committing = pool.submit(commit_until_stopped)
                answer = change_job(queue_fixture.queue, "cancel", job.id)
                committing.result()
            before, _, after = "".join(f"{kind} " for kind in queue_fixture.kinds(job)).partition("cancel_requested ")
            assert answer in ({"cancelling", "committing"} if before.endswith("committed ") else {"cancelling"})
            assert after == ""
            queue_fixture.queue.finish(queue_fixture.find(job), JobState.CANCELLED, counters={})
        queue_fixture.close()


class TestTimeLimits:
    def test_a_job_that_runs_for_too_long_is_asked_to_end(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit(spec={"timeout_seconds": 60})
        queue_fixture.clock.advance(1000)  # waiting does not count
        job = queue_fixture.claim()
        queue_fixture.clock.advance(60)
        assert queue_fixture.queue.heartbeat(job, LEASE, {}) is None
        queue_fixture.clock.advance(1)
        assert queue_fixture.queue.heartbeat(job, LEASE, {}) == "timeout"
        with pytest.raises(StopRequestedError, match="timeout"):
            queue_fixture.commit(job)
        queue_fixture.queue.finish(job, JobState.TIMED_OUT, counters={}, failure={"phase": "compute"})  # type: ignore[arg-type]
        assert queue_fixture.state(job) == "timed_out"

    def test_rest_does_not_count(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit(spec={"timeout_seconds": 60})
        job = queue_fixture.claim()
        queue_fixture.clock.advance(40)
        queue_fixture.queue.release(job, {}, paused=True)
        queue_fixture.clock.advance(10_000)
        change_job(queue_fixture.queue, "resume", job.id)
        again = queue_fixture.claim()
        queue_fixture.clock.advance(20)
        assert queue_fixture.queue.heartbeat(again, LEASE, {}) is None
        queue_fixture.clock.advance(1)
        assert queue_fixture.queue.heartbeat(again, LEASE, {}) == "timeout"

    def test_a_cancel_wins_over_the_time_limit(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit(spec={"timeout_seconds": 60})
        job = queue_fixture.claim()
        change_job(queue_fixture.queue, "cancel", job.id)
        queue_fixture.clock.advance(100)
        assert queue_fixture.queue.heartbeat(job, LEASE, {}) == "cancel"


class TestEnding:
    @pytest.mark.parametrize("state", ["done", "failed", "cancelled", "timed_out"])
    def test_an_end_is_kept_with_its_result_and_reason(self, queue_fixture: QueueFixture, state: str) -> None:
        queue_fixture.submit()
        job = queue_fixture.claim()
        queue_fixture.clock.advance(5)
        result = {"published_version": 4, "note": None}
        failure = {"phase": "compute", "type": "ValueError", "message": "§ \ud800 '\0'", "retryable": False}
        queue_fixture.queue.finish(job, JobState(state), counters={"rows_failed": 1.5}, result=result, failure=failure)  # type: ignore[arg-type]
        ended = queue_fixture.find(job)
        assert (ended.state, ended.result, ended.failure) == (state, result, failure)  # type: ignore[comparison-overlap]
        assert (ended.counters, ended.finished_at) == ({"rows_failed": 1.5}, queue_fixture.clock())
        assert (ended.worker, ended.lease_until) == (None, None)
        assert queue_fixture.events(job)[-1].kind == state
        queue_fixture.clock.advance(1000)
        assert queue_fixture.queue.claim("w2", LEASE) is None

    def test_a_job_cannot_end_as_something_else(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        with pytest.raises(ValueError, match="paused"):
            queue_fixture.queue.finish(queue_fixture.claim(), "paused", counters={})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("stop_request", "state"), [("cancel", "cancelled"), ("pause", "paused"), ("timeout", "timed_out")]
    )
    @pytest.mark.parametrize("how", ["given back", "lost"])
    def test_a_stop_request_is_applied_when_the_worker_stops_first(
        self, queue_fixture: QueueFixture, stop_request: str, state: str, how: str
    ) -> None:
        queue_fixture.submit(spec={"timeout_seconds": 1})
        job = queue_fixture.claim()
        if stop_request == "timeout":
            queue_fixture.clock.advance(2)
            queue_fixture.queue.heartbeat(job, LEASE, {})
        else:
            change_job(queue_fixture.queue, stop_request, job.id)
        if how == "given back":
            queue_fixture.queue.release(job, {"rows_computed": 3})
        else:
            queue_fixture.clock.advance(LEASE + 1)
        assert queue_fixture.queue.claim("w2", LEASE) is None
        assert queue_fixture.state(job) == state
        assert queue_fixture.kinds(job)[-1] == state

    def test_old_jobs_are_forgotten_with_their_events(self, queue_fixture: QueueFixture) -> None:
        old, active = queue_fixture.submit("a"), queue_fixture.submit("b")
        change_job(queue_fixture.queue, "cancel", old.id)
        queue_fixture.clock.advance(100)
        recent = queue_fixture.submit("c")
        change_job(queue_fixture.queue, "cancel", recent.id)
        queue_fixture.queue.sweep(queue_fixture.clock() - 50_000)
        assert queue_fixture.queue.find(old.id) is None
        assert queue_fixture.events(old) == []
        assert [queue_fixture.state(job) for job in (active, recent)] == ["pending", "cancelled"]


class TestEvents:
    def test_they_are_numbered_in_the_order_in_which_they_happened(self, queue_fixture: QueueFixture) -> None:
        queue_fixture.submit()
        job = queue_fixture.claim()
        for number in range(5):
            queue_fixture.clock.advance(1)
            queue_fixture.queue.add_event(job, "claim_complete", f"fragment {number}", {"rows_processed": number})
        found = queue_fixture.events(job)
        assert [event.seq for event in found] == list(range(1, 8))
        assert [event.at for event in found] == sorted(event.at for event in found)
        assert [(event.unit, event.data) for event in found[2:]] == [
            (f"fragment {number}", {"rows_processed": number}) for number in range(5)
        ]

    def test_none_is_lost_or_numbered_twice_by_racing_threads(self, catalog_url: str) -> None:
        queue_fixture = QueueFixture(catalog_url, pool_size=THREADS)
        queue_fixture.submit()
        job = queue_fixture.claim()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda number: queue_fixture.queue.add_event(job, "unit", str(number)), range(100)))
        found = queue_fixture.events(job)
        queue_fixture.close()
        assert [event.seq for event in found] == list(range(1, 103))
        assert {event.unit for event in found[2:]} == {str(number) for number in range(100)}

    def test_an_event_of_a_job_that_was_forgotten_is_dropped(self, queue_fixture: QueueFixture) -> None:
        job = queue_fixture.submit()
        change_job(queue_fixture.queue, "cancel", job.id)
        queue_fixture.queue.sweep(queue_fixture.clock() + 1)
        queue_fixture.queue.add_event(job, "late")
        assert queue_fixture.events(job) == []


@pytest.mark.parametrize("call", ["cancel", "pause", "resume", "retry"])
@pytest.mark.parametrize("job_id", ["0123", "", "\0", "'; --"])
def test_a_missing_job_is_an_error(queue_fixture: QueueFixture, call: str, job_id: str) -> None:
    with pytest.raises(TransactionNotFoundError, match="does not exist"):
        change_job(queue_fixture.queue, call, job_id)
