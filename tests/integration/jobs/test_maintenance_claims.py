"""Which maintenance jobs a worker gets: never in the way of users' jobs, and each namespace in its turn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pennon.catalog import claim_rules, index_builds, namespaces, tables
from pennon.catalog.index_builds import Build
from pennon.catalog.tables import Table
from pennon.core.identifiers import new_id
from pennon.core.job_model import JobKind, JobState
from pennon.jobs.errors import LeaseLostError
from tests.integration.jobs.queue_fixture import LEASE, QueueFixture

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job


def maintain(fixture: QueueFixture, kind: JobKind = JobKind.MAINTAIN, **more: Any) -> Job:
    """Submit a maintenance job."""
    return fixture.submit("maintenance", kind=kind, **{"priority": -10, **more})


def build_index(fixture: QueueFixture, monkeypatch: pytest.MonkeyPatch, branch: str = "") -> Build:
    """Record the build of an index that has just begun."""
    monkeypatch.setattr(index_builds, "now_millis", fixture.clock)
    build = Build(fixture.table().id, branch, "idx", "v", "IVF_PQ")
    assert fixture.database.write(lambda connection: index_builds.begin(connection, build))
    return build


class TestUsersFirst:
    def test_users_come_first(self, queue_fixture: QueueFixture) -> None:
        upkeep = maintain(queue_fixture)
        queue_fixture.clock.advance(1)
        backfill = queue_fixture.submit(table="u")
        assert [queue_fixture.claim().id for _ in range(2)] == [backfill.id, upkeep.id]

    def test_each_group_has_slots_of_its_own(self, queue_fixture: QueueFixture) -> None:
        upkeep, backfill = maintain(queue_fixture), queue_fixture.submit(table="u")
        assert not queue_fixture.queue.has_work(users=False, maintenance=False)
        claimed = queue_fixture.queue.claim("w", LEASE, users=False)
        assert claimed is not None
        assert claimed.id == upkeep.id
        claimed = queue_fixture.queue.claim("w", LEASE, maintenance=False)
        assert claimed is not None
        assert claimed.id == backfill.id

    @pytest.mark.parametrize("kind", [JobKind.COMPACT, JobKind.OPTIMIZE_INDICES, JobKind.CLEANUP, JobKind.MAINTAIN])
    def test_maintenance_waits_for_users_of_its_branch(self, queue_fixture: QueueFixture, kind: JobKind) -> None:
        upkeep, elsewhere = maintain(queue_fixture, kind), maintain(queue_fixture, kind, branch="dev")
        backfill = queue_fixture.submit()
        found = queue_fixture.queue.claim("w", LEASE, users=False)
        assert found is not None
        assert found.id == elsewhere.id
        assert queue_fixture.queue.claim("w", LEASE, users=False) is None
        running = queue_fixture.claim()
        assert running.id == backfill.id
        assert queue_fixture.queue.claim("w", LEASE) is None
        queue_fixture.queue.finish(running, JobState.DONE, counters={})
        assert queue_fixture.claim().id == upkeep.id

    def test_a_users_job_waits_until_maintenance_has_yielded(self, queue_fixture: QueueFixture) -> None:
        maintain(queue_fixture)
        running = queue_fixture.claim()
        assert not queue_fixture.queue.should_yield(running)
        queue_fixture.submit(branch="dev")
        assert not queue_fixture.queue.should_yield(running)
        backfill = queue_fixture.submit()
        assert queue_fixture.queue.should_yield(running)
        other = queue_fixture.claim()
        assert other.branch == "dev"
        assert queue_fixture.queue.claim("w", LEASE) is None
        queue_fixture.queue.release(running, {})
        assert queue_fixture.claim().id == backfill.id
        assert queue_fixture.queue.claim("w", LEASE) is None

    def test_of_paused_jobs_only_compaction_waits(self, queue_fixture: QueueFixture) -> None:
        backfill = queue_fixture.submit()
        queue_fixture.database.write(lambda connection: queue_fixture.queue.pause(connection, backfill, "ada"))
        maintain(queue_fixture, JobKind.COMPACT)
        assert queue_fixture.queue.claim("w", LEASE) is None
        upkeep = maintain(queue_fixture)
        running = queue_fixture.claim()
        assert running.id == upkeep.id
        assert not queue_fixture.queue.may_compact(running)
        assert not queue_fixture.queue.should_yield(running)

    def test_index_builds_count_as_users_while_they_live(
        self, queue_fixture: QueueFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        upkeep = maintain(queue_fixture)
        build_index(queue_fixture, monkeypatch)
        assert queue_fixture.queue.claim("w", LEASE) is None
        queue_fixture.clock.advance(index_builds.STALE_MILLIS / 1000 + 1)
        running = queue_fixture.claim()
        assert running.id == upkeep.id
        build = build_index(queue_fixture, monkeypatch)
        assert queue_fixture.queue.should_yield(running)
        queue_fixture.database.write(lambda connection: index_builds.end(connection, build, "no memory"))
        assert not queue_fixture.queue.should_yield(running)

    def test_they_do_not_wait_for_maintenance_of_a_lost_worker(self, queue_fixture: QueueFixture) -> None:
        upkeep = maintain(queue_fixture)
        lost = queue_fixture.claim()
        backfill = queue_fixture.submit()
        queue_fixture.clock.advance(LEASE + 1)
        claimed = queue_fixture.queue.claim("w2", LEASE, maintenance=False)  # it has no slot to take it over
        assert claimed is not None
        assert claimed.id == backfill.id
        assert queue_fixture.state(upkeep) == "pending"
        assert queue_fixture.find(upkeep).takeovers == 1
        with pytest.raises(LeaseLostError):
            queue_fixture.commit(lost)
        queue_fixture.queue.finish(claimed, JobState.DONE, counters={})
        assert queue_fixture.claim().id == upkeep.id


class TestFairness:
    def test_the_namespace_that_waited_longest_comes_first(self, queue_fixture: QueueFixture) -> None:
        made: dict[str, list[str]] = {}
        for name, count in (("a", 4), ("b", 2)):
            queue_fixture.database.write(partial(namespaces.insert, namespace=(name,), properties=None))
            for number in range(count):
                table = Table(new_id(), (name,), f"t{number}", f"file:///{name}{number}")
                queue_fixture.database.write(partial(tables.insert, table=table))
                queue_fixture._tables[f"{name}{number}"] = table
                made.setdefault(name, []).append(maintain(queue_fixture, table=f"{name}{number}").id)
                queue_fixture.clock.advance(1)
        claimed = []
        for _ in range(6):
            claimed.append(queue_fixture.claim().id)
            queue_fixture.clock.advance(1)
        a, b = made["a"], made["b"]
        assert claimed == [a[0], b[0], a[1], b[1], a[2], a[3]]


class TestLifecycle:
    def test_it_is_paused_cancelled_and_retried_as_any_job(self, queue_fixture: QueueFixture) -> None:
        queue, database = queue_fixture.queue, queue_fixture.database
        job = maintain(queue_fixture, JobKind.COMPACT, spec={"reasons": ["asked"]})
        assert database.write(lambda connection: queue.pause(connection, job, "ada")) == "paused"
        paused = queue_fixture.find(job)
        assert database.write(lambda connection: queue.resume(connection, paused, "ada")) == "resumed"
        pending = queue_fixture.find(job)
        assert database.write(lambda connection: queue.cancel(connection, pending, "ada")) == "cancelled"
        ended = queue_fixture.find(job)
        again = database.write(lambda connection: queue.retry(connection, ended, "ada"))
        assert (again.kind, again.target, again.priority, again.retry_of) == (job.kind, job.target, -10, job.id)
        assert again.maintenance_spec == {"reasons": ["asked"]}

    def test_rows_of_automatic_jobs_do_not_pile_up(self, queue_fixture: QueueFixture) -> None:
        made = []
        for number in range(6):
            made.append(maintain(queue_fixture))
            running = queue_fixture.claim()
            state = JobState.FAILED if number == 1 else JobState.DONE
            queue_fixture.queue.finish(running, state, counters={})
        other = maintain(queue_fixture, branch="dev")
        queue_fixture.queue.finish(queue_fixture.claim(), JobState.DONE, counters={})
        table = queue_fixture.table()
        queue_fixture.database.write(
            lambda connection: claim_rules.delete_superseded(connection, table.id, "", "eve", keep=0)
        )
        queue_fixture.database.write(
            lambda connection: claim_rules.delete_superseded(connection, table.id, "", "ada", keep=2)
        )
        left = [job.id for job in [*made, other] if queue_fixture.queue.find(job.id)]
        assert left == [made[1].id, made[4].id, made[5].id, other.id]
