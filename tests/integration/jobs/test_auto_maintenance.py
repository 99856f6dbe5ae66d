"""Automatic maintenance: what commits start, when, how often, and what costs nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from pennon.catalog import job_events, jobs, maintenance_state, namespaces, tables, versions
from pennon.catalog.tables import Table
from pennon.catalog.versions import Statistics, Version
from pennon.core.identifiers import new_id
from pennon.core.job_model import JobKind, JobState, MaintenanceResult
from pennon.core.settings import load_settings
from pennon.jobs.auto_maintenance import AutoMaintenance
from tests.integration.jobs.queue_fixture import QueueFixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog.jobs import Job
    from pennon.storage.root import StorageRoot

#: No table has a storage here: decisions are made from the catalog alone.
NO_STORAGE = cast("StorageRoot", None)
CLEAN = Statistics(fragments=1, rows=10, data_bytes=1000)
MESSY = replace(CLEAN, fragments=9, small_fragments=9)


class Scene:
    """Tables that get versions, and two workers that look at them; jobs are only recorded."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.fixture = QueueFixture(url)
        self.database, self.clock = self.fixture.database, self.fixture.clock
        self.settings = load_settings(**settings)
        self.workers = [self.worker(), self.worker()]
        self._numbers: dict[tuple[str, str], int] = {}

    def worker(self) -> AutoMaintenance:
        return AutoMaintenance(self.settings, self.database, NO_STORAGE, self.fixture.queue, self.clock)

    def commit(self, statistics: Statistics = CLEAN, table: str = "t", branch: str = "", times: int = 1) -> int:
        """Record versions of a table; return the number of the last."""
        found = self.fixture.table(table)
        number = self._numbers.get((table, branch), 0)
        for _ in range(times):
            number += 1
            version = Version(
                found.id, branch, number, f"{number}", 1, "", recorded_at=self.clock.millis, statistics=statistics
            )
            assert self.database.write(partial(versions.insert, version=version))
        self._numbers[table, branch] = number
        return number

    def tick(self, seconds: float = 0.0) -> list[Job]:
        """Let time pass and all workers look; return the jobs that were submitted."""
        self.clock.advance(seconds)
        before = {job.id for job in self.jobs()}
        for worker in self.workers:
            worker.tick()
        return [job for job in self.jobs() if job.id not in before]

    def jobs(self) -> list[Job]:
        return self.database.read(lambda connection: jobs.page(connection, (), before=None, limit=1000))

    def run(self, job: Job, left: Statistics = CLEAN, *, seconds: float = 0.1, **more: Any) -> None:
        """Run a job that leaves these statistics."""
        claimed = self.fixture.claim()
        assert claimed.id == job.id
        self.clock.advance(seconds)
        version = self.commit(left, job.object[-1], job.branch)
        counts = dict.fromkeys(MaintenanceResult.__annotations__, 0)
        result = cast("MaintenanceResult", {**counts, "version": version, "failures": {}, **more})
        self.fixture.queue.finish(claimed, JobState.DONE, counters={}, result=result)

    def set(self, table: str = "t", **fields: str) -> None:
        properties = {f"pennon.maintenance.{name}": text for name, text in fields.items()}
        found = self.fixture.table(table)
        self.database.write(partial(tables.set_properties, table_id=found.id, properties=properties))

    def due(self, table: str = "t") -> tuple[float | None, str]:
        """Return in how many seconds a table is looked at again, and why."""
        found = self.database.read(
            lambda connection: maintenance_state.find(connection, self.fixture.table(table).id, "")
        )
        assert found is not None
        at = found.state.due_at
        return None if at is None else (at - self.clock.millis) / 1000, found.state.due


@pytest.fixture
def scene(catalog_url: str) -> Iterator[Scene]:
    made = Scene(catalog_url)
    yield made
    made.fixture.close()


@pytest.fixture
def sqlite_scene(tmp_path: Any) -> Iterator[Scene]:
    made = Scene(f"sqlite:///{tmp_path / 'catalog.db'}")
    yield made
    made.fixture.close()


class TestTriggers:
    @pytest.mark.parametrize(
        ("statistics", "kind", "reason"),
        [
            (MESSY, JobKind.MAINTAIN, "9 small fragments"),
            (replace(CLEAN, rows=70, deleted_rows=30), JobKind.MAINTAIN, "30 deleted rows"),
            (replace(CLEAN, indices=1, unindexed_rows=1000), JobKind.OPTIMIZE_INDICES, "1000 rows outside an index"),
            (replace(CLEAN, indices=1, stale_since=1), JobKind.OPTIMIZE_INDICES, "stale index entries"),
            (
                replace(CLEAN, has_auto_cleanup=True),
                JobKind.CLEANUP,
                "a client has configured lance.auto_cleanup",
            ),
        ],
    )
    def test_a_commit_starts_it(self, scene: Scene, statistics: Statistics, kind: JobKind, reason: str) -> None:
        scene.commit(statistics)
        (job,) = scene.tick()
        assert (job.kind, job.priority, job.target, job.submitted_by) == (kind, -10, "maintenance", "auto_maintenance")
        assert job.maintenance_spec == {"reasons": [reason], "seen_version": 1}
        assert scene.tick(5) == []
        scene.run(job)
        assert scene.tick() == scene.tick(5) == []

    def test_little_waits_until_it_is_old_or_much(self, sqlite_scene: Scene) -> None:
        scene, outside = sqlite_scene, replace(CLEAN, indices=1, unindexed_rows=5)
        scene.commit(outside)
        assert scene.tick() == []
        for _ in range(5):
            scene.commit(outside)
            assert scene.tick(10) == []
        (job,) = scene.tick(10)
        assert (job.kind, job.spec["reasons"]) == (  # type: ignore[typeddict-item]  # the spec of maintenance
            JobKind.OPTIMIZE_INDICES,
            ["5 rows outside an index for a while"],
        )

    def test_what_a_run_could_not_change_starts_no_other(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        left = replace(MESSY, indices=1, unindexed_rows=2000, deleted_rows=7)
        scene.commit(left)
        (job,) = scene.tick()
        scene.run(job, left)
        assert [scene.tick(seconds) for seconds in (0, 5, 100, 4000)] == [[], [], [], []]
        scene.commit(replace(left, small_fragments=17))
        (job,) = scene.tick()
        assert job.maintenance_spec["reasons"] == ["17 small fragments"]

    def test_rows_committed_during_a_run_are_indexed_by_the_next(self, sqlite_scene: Scene) -> None:
        scene, outside = sqlite_scene, replace(CLEAN, indices=1, unindexed_rows=1000)
        scene.commit(outside)
        (job,) = scene.tick()
        scene.run(job, replace(outside, unindexed_rows=48), rows_indexed=1000)
        assert scene.tick() == []
        (job,) = scene.tick(61)
        assert job.maintenance_spec["reasons"] == ["48 rows outside an index for a while"]

    def test_stale_entries_that_appear_during_a_run_are_repaired_by_the_next(self, sqlite_scene: Scene) -> None:
        scene, repaired = sqlite_scene, replace(CLEAN, indices=1)
        scene.commit(replace(MESSY, indices=1))
        (job,) = scene.tick()
        number = scene.commit(stale := replace(repaired, stale_since=2))
        assert number == 2
        scene.run(job, stale)
        (job,) = scene.tick(5)
        assert job.maintenance_spec["reasons"] == ["stale index entries"]
        scene.run(job, stale)  # it is still known, because another index has the old segments
        assert [scene.tick(seconds) for seconds in (0, 5, 100)] == [[], [], []]

    def test_a_run_of_one_step_leaves_the_others_due(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        left = replace(CLEAN, indices=1, fragments=5, small_fragments=5, unindexed_rows=9, has_auto_cleanup=True)
        scene.set(max_unindexed_seconds="10")
        scene.commit(left)
        (job,) = scene.tick()
        assert job.kind == JobKind.CLEANUP
        scene.run(job, left := replace(left, has_auto_cleanup=False))
        (job,) = scene.tick(11)
        assert (job.kind, job.maintenance_spec["reasons"]) == (
            JobKind.OPTIMIZE_INDICES,
            ["9 rows outside an index for a while"],
        )
        scene.run(job, left := replace(left, unindexed_rows=0), rows_indexed=9)
        scene.commit(replace(left, small_fragments=9))
        (job,) = scene.tick(2)
        assert job.maintenance_spec["reasons"] == ["9 small fragments"]

    def test_a_branch_at_rest_is_merged_further(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(replace(CLEAN, fragments=3, small_fragments=3))
        assert scene.tick() == []
        (job,) = scene.tick(60)
        assert job.maintenance_spec["policy"] == {"max_small_fragments": 2}
        scene.run(job, replace(CLEAN, fragments=2, small_fragments=2))
        assert [scene.tick(seconds) for seconds in (1, 60, 600)] == [[], [], []]

    def test_the_fragments_that_a_run_made_are_merged_further(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(replace(CLEAN, fragments=5000, small_fragments=5000))
        (job,) = scene.tick()
        scene.run(job, replace(CLEAN, fragments=20, small_fragments=20), fragments_added=20)
        (job,) = scene.tick(1)
        scene.run(job, replace(CLEAN, fragments=3, small_fragments=3), fragments_added=1)
        assert scene.tick(1) == []
        (job,) = scene.tick(60)
        assert job.maintenance_spec["policy"] == {"max_small_fragments": 2}
        scene.run(job, replace(CLEAN, fragments=3, small_fragments=3))
        assert [scene.tick(seconds) for seconds in (1, 60, 600)] == [[], [], []]

    def test_an_earlier_releases_tables_are_looked_at_once(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(MESSY)
        scene.clock.advance(7 * 24 * 3600)
        scene.database.write(lambda connection: maintenance_state.follow(connection, scene.clock.millis))
        late = [scene.worker()]
        scene.workers = late
        assert scene.tick() == []
        scene.database.write(
            lambda connection: maintenance_state.save(
                connection, maintenance_state.MaintenanceState(scene.fixture.table().id, "", due_at=0)
            )
        )
        assert len(scene.tick(1)) == 1

    def test_commits_while_no_worker_ran_are_followed(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.tick()
        scene.commit(MESSY)
        scene.clock.advance(30 * 24 * 3600)
        scene.workers = [scene.worker()]
        assert len(scene.tick()) == 1


class TestCleanup:
    def test_versions_beyond_the_limits_go_when_they_are_old_enough(self, scene: Scene) -> None:
        scene.commit(times=140)
        assert scene.tick() == []
        assert scene.due()[0] == 60
        (job,) = scene.tick(61)
        assert (job.kind, job.maintenance_spec["reasons"]) == (
            JobKind.CLEANUP,
            ["40 versions that the policy does not keep"],
        )

    def test_versions_that_something_needs_start_no_second_run(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(times=140)
        scene.tick()
        (job,) = scene.tick(61)
        table_id = scene.fixture.table().id
        scene.database.write(lambda connection: maintenance_state.record_kept(connection, table_id, "", 41))
        scene.run(job)
        assert [scene.tick(seconds) for seconds in (0, 10, 100, 1000)] == [[], [], [], []]

    def test_a_table_that_was_written_once_costs_nothing(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit()
        assert scene.tick() == []
        row = scene.database.read(lambda connection: connection.one("SELECT COUNT(*) FROM maintenance_state"))
        assert row == (0,)

    def test_an_old_version_goes_although_nothing_is_committed(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(times=2)
        assert scene.tick() == []
        scene.set(max_version_seconds=str(30 * 24 * 3600))
        (job,) = scene.tick(7 * 24 * 3600 + 3 * 3600)
        assert job.maintenance_spec["reasons"] == ["files that no version needs are looked for"]
        scene.fixture.queue.finish(scene.fixture.claim(), JobState.DONE, counters={})
        scene.database.write(
            lambda connection: connection.run("UPDATE maintenance_state SET orphans_at = ?", scene.clock.millis)
        )
        assert scene.tick(60) == []
        (job,) = scene.tick(30 * 24 * 3600)
        assert job.maintenance_spec["reasons"] == ["1 versions that the policy does not keep"]


class TestPolicies:
    def test_the_tables_value_wins_over_its_namespaces(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        for path, limit in ((("a",), "20"), (("a", "b"), "30")):
            properties = {"pennon.maintenance.max_small_fragments": limit}
            scene.database.write(partial(namespaces.insert, namespace=path, properties=properties))
        found = Table(new_id(), ("a", "b"), "u", "file:///u")
        scene.database.write(lambda connection: tables.insert(connection, found))
        scene.fixture._tables["u"] = found
        scene.commit(replace(CLEAN, small_fragments=25), "u")
        assert scene.tick() == []
        scene.set("u", max_small_fragments="25")
        scene.commit(replace(CLEAN, small_fragments=25), "u")
        assert len(scene.tick()) == 1

    def test_a_disabled_table_waits_until_its_policy_changes(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.set(enabled="false")
        scene.commit(MESSY)
        assert scene.tick() == scene.tick(100) == []
        scene.set(enabled="true")
        table_id = scene.fixture.table().id
        scene.database.write(lambda connection: maintenance_state.wake(connection, table_id, scene.clock.millis))
        assert len(scene.tick(1)) == 1

    def test_nothing_starts_in_quiet_hours(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.set(quiet_hours="22:00-23:30")  # the clock begins at 22:13:20
        scene.commit(MESSY)
        assert scene.tick() == scene.tick(3600) == []
        assert scene.due() == (1000.0, "9 small fragments")
        assert len(scene.tick(1001)) == 1

    def test_a_server_without_maintenance_starts_none(self, tmp_path: Any) -> None:
        scene = Scene(f"sqlite:///{tmp_path / 'catalog.db'}", maintenance_enabled=False)
        scene.commit(MESSY)
        assert scene.tick() == []
        scene.fixture.close()

    def test_tables_of_others_are_left_alone(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        found = Table(new_id(), (), "u", "file:///u", managed=False)
        scene.database.write(lambda connection: tables.insert(connection, found))
        scene.fixture._tables["u"] = found
        scene.commit(MESSY, "u")
        assert scene.tick() == []


class TestPace:
    def test_runs_take_a_fifth_of_the_time(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(MESSY)
        (job,) = scene.tick()
        scene.run(job, seconds=10)
        scene.commit(MESSY)
        assert scene.tick() == scene.tick(39) == []
        assert len(scene.tick(2)) == 1

    def test_a_clock_that_was_set_back_does_not_prolong_a_pause(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(MESSY)
        (job,) = scene.tick()
        scene.run(job)
        scene.clock.advance(-3600)
        scene.commit(MESSY)
        assert len([job for _ in range(3) for job in scene.tick(1)]) == 1

    def test_a_backlog_does_not_hide_the_branches_that_become_due(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(replace(CLEAN, indices=1, unindexed_rows=5), "late")
        for number in range(120):
            scene.commit(MESSY, f"t{number}")
        assert len(scene.tick()) == 120
        (job,) = scene.tick(61)
        assert job.object == ("late",)

    def test_failures_are_retried_less_and_less_often(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(MESSY)
        waits = []
        assert len(scene.tick()) == 1
        for _ in range(12):
            scene.fixture.queue.finish(scene.fixture.claim(), JobState.FAILED, counters={})
            waited = 0
            while not scene.tick(5):
                waited += 5
            waits.append(waited + 5)
        assert waits == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]

    def test_a_job_of_a_user_is_not_doubled(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        mine = scene.fixture.submit("maintenance", kind=JobKind.COMPACT)
        scene.commit(MESSY)
        assert scene.tick() == scene.tick(10) == []
        scene.fixture.queue.finish(scene.fixture.claim(), JobState.DONE, counters={})
        assert mine.id != scene.tick(10)[0].id

    def test_a_dropped_table_is_forgotten(self, sqlite_scene: Scene) -> None:
        scene = sqlite_scene
        scene.commit(MESSY)
        (job,) = scene.tick()
        scene.fixture.drop()
        assert scene.tick(10) == []
        events = scene.database.read(lambda connection: job_events.after(connection, job.id, 0, 10))
        assert [event.kind for event in events] == ["submitted"]
