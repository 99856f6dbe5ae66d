"""Views that keep themselves up to date: after commits to their sources, and by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pennon.catalog import jobs, views
from pennon.catalog.jobs import Job
from pennon.catalog.views import Watermark
from pennon.core.job_model import ACTIVE, JobState
from pennon.jobs.auto_refresh import AutoRefresh
from pennon.storage.layout import manifest_name
from tests.integration.jobs.queue_fixture import Clock
from tests.integration.views.guards.services import ViewLake

COOLDOWN = 5.0
ROWS = pa.table({"a": [4]})


class Scene:
    """A table ``t``, views over it, and workers whose clock the test moves; refreshes are only recorded."""

    def __init__(self, directory: Path, database: str, **settings: Any) -> None:
        self.lake = ViewLake(directory, database=database, **{"auto_refresh_every_seconds": COOLDOWN, **settings})
        self.services = self.lake.ns.services
        self.clock = Clock()
        self.workers = [self._worker(), self._worker()]
        self.lake("CreateTable", "t", data=pa.table({"a": [1, 2, 3]}))

    def _worker(self) -> AutoRefresh:
        self.services.queue._now = self.clock  # the queue's own clock says when a job was submitted
        return AutoRefresh(self.services, self.clock)

    def view(self, name: str, source: str = "t", **more: Any) -> str:
        """Make a view that is up to date."""
        view_id = self.lake.view(name, source, {"a": "a"}, **more)
        self.refresh(view_id)
        return view_id

    def refresh(self, view_id: str) -> None:
        """Record what a refresh that found nothing to do records."""

        def work(connection: Any) -> None:
            view = views.find(connection, view_id)
            assert view is not None
            source_ids = [source["table_id"] for source in view.definition["sources"]]
            mark = Watermark({found: self._version(found) for found in source_ids})
            assert views.advance(connection, view_id, view.watermark, mark, 1, 0)

        self.services.database.write(work)

    def _version(self, table_id: str) -> int:
        table = next(t for t in map(self.lake.ns.find_table, self._names()) if t.id == table_id)
        return int(self.services.datasets.newest(table, "").version)

    def _names(self) -> list[tuple[str, ...]]:
        return [(name,) for name in self.lake.tables()]

    def tick(self, seconds: float = 0.0) -> list[str]:
        """Let time pass and all workers look; return the tables of the jobs that were submitted."""
        self.clock.advance(seconds)
        before = {job.id for job in self.jobs()}
        for worker in self.workers:
            worker.tick()
        return sorted(job.object[-1] for job in self.jobs() if job.id not in before)

    def jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""
        found: list[Job] = self.services.database.read(lambda c: jobs.page(c, (), before=None, limit=100))
        return found

    def end(self, state: str = "done") -> None:
        """End the jobs that are under way; those that are done have refreshed their view."""
        for job in self.jobs():
            if job.state not in ACTIVE:
                continue
            claimed = self.services.queue.claim("worker", 30)
            assert claimed is not None
            if state == "done":
                self.refresh(claimed.table_id)
            self.services.queue.finish(claimed, JobState(state), counters={})

    def commit(self, table: str = "t", count: int = 1) -> None:
        """Append rows, each in a commit of its own."""
        for _ in range(count):
            self.lake("InsertIntoTable", table, data=ROWS)


@pytest.fixture
def scene(catalog_url: str, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "lake", catalog_url)
    yield made
    made.lake.close()


def test_a_view_follows_commits_to_its_source(scene: Scene) -> None:
    scene.view("v", auto_refresh=True)
    scene.view("still")
    assert scene.tick(60) == []
    scene.commit()
    assert scene.tick() == ["v"]
    assert scene.jobs()[0].submitted_by == "auto_refresh"


def test_refreshes_of_a_view_do_not_overlap_and_keep_their_distance(scene: Scene) -> None:
    scene.view("v", auto_refresh=True)
    scene.commit()
    assert scene.tick() == ["v"]
    scene.commit()
    assert scene.tick(60) == []  # one is under way
    scene.end()
    scene.commit()
    assert scene.tick() == ["v"]
    scene.end()
    scene.commit()
    assert scene.tick(COOLDOWN - 1) == []
    assert scene.tick(1) == ["v"]


def test_a_source_that_cannot_be_read_hinders_no_other_view(scene: Scene) -> None:
    scene.lake("CreateTable", "broken", data=ROWS)
    scene.view("a", "broken", auto_refresh=True)
    scene.view("b", auto_refresh=True)
    scene.commit("broken")
    scene.commit()
    manifest = Path(scene.lake.ns.find_table(("broken",)).location, "_versions", manifest_name(1, "V2"))
    manifest.unlink()
    manifest.symlink_to(manifest.name)  # which no system call gets beyond
    assert scene.tick() == ["b"]


def test_a_view_waits_for_enough_rows(catalog_url: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path / "lake", catalog_url, auto_refresh_min_rows=3)
    scene.view("v", auto_refresh=True)
    scene.commit(count=2)
    assert scene.tick(60) == []
    scene.commit()
    assert scene.tick(60) == ["v"]
    scene.end()
    scene.lake("DeleteFromTable", "t", predicate="a = 4")
    assert scene.tick(60) == ["v"]
    scene.lake.close()


def test_an_index_of_the_source_is_no_reason_to_refresh(scene: Scene) -> None:
    scene.view("v", auto_refresh=True)
    scene.lake.open("t").create_scalar_index("a", "BTREE")
    assert scene.tick(60) == []


def test_an_empty_view_is_filled(scene: Scene) -> None:
    scene.lake.view("v", "t", {"a": "a"}, auto_refresh=True)
    assert scene.tick() == ["v"]


def test_what_failed_is_not_repeated_before_the_source_changes(scene: Scene) -> None:
    scene.view("v", auto_refresh=True)
    scene.commit()
    assert scene.tick() == ["v"]
    scene.end("failed")
    assert scene.tick(3600) == []
    scene.commit()
    assert scene.tick() == ["v"]


def test_a_chain_of_views_settles(scene: Scene) -> None:
    scene.view("v1", auto_refresh=True)
    scene.view("v2", "v1", auto_refresh=True)
    scene.commit()
    assert scene.tick() == ["v1"]
    scene.end()
    v1 = scene.lake.ns.find_table(("v1",))
    more = pa.table({"__source_row_id": pa.array([9], pa.int64()), "a": [4]})
    scene.services.writer.change(v1, "", lambda _: "", lambda dataset: dataset.insert(more))  # as its refresh commits
    assert scene.tick(60) == ["v2"]
    scene.end()
    assert [scene.tick(60) for _ in range(3)] == [[], [], []]


def at(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.millis / 1000, UTC).strftime("%H:%M")


def test_a_schedule_fires_once_although_several_servers_check_it(scene: Scene) -> None:
    scene.view("v", schedule="0 * * * *")
    assert at(scene.clock) == "22:13"
    assert scene.tick() == []
    assert scene.tick(46 * 60) == []
    assert scene.tick(2 * 60) == ["v"]
    assert scene.jobs()[0].submitted_by == "schedule"
    scene.end()
    assert scene.tick(30 * 60) == []
    assert scene.tick(30 * 60) == ["v"]


def test_times_that_were_missed_are_one(scene: Scene) -> None:
    scene.view("v", schedule="0 * * * *")
    scene.tick()
    assert scene.tick(24 * 60 * 60) == ["v"]
    scene.end()
    assert scene.tick(60) == []


def test_changing_the_schedule_restarts_it(scene: Scene) -> None:
    view_id = scene.view("v", schedule="0 * * * *")
    scene.tick()
    change: dict[str, Any] = {"auto_refresh": False, "on_schema_change": "ignore_new"}
    scene.services.database.write(lambda c: views.configure(c, view_id, schedule="30 * * * *", **change))
    assert scene.tick() == []
    assert scene.tick(16 * 60) == []
    assert scene.tick(2 * 60) == ["v"]
    scene.services.database.write(lambda c: views.configure(c, view_id, schedule="", **change))
    scene.end()
    assert scene.tick(24 * 60 * 60) == []


def test_a_time_that_comes_while_a_refresh_runs_is_kept_for_later(scene: Scene) -> None:
    scene.view("v", schedule="0 * * * *")
    scene.tick()
    assert scene.tick(3600) == ["v"]
    running = scene.services.queue.claim("worker", 1e6)
    assert running is not None
    assert scene.tick(3600) == []
    scene.services.queue.finish(running, JobState.DONE, counters={})
    assert scene.tick(1) == ["v"]
    assert scene.tick(3600) == []  # one waits already, and will see all there is


def test_a_time_and_a_commit_together_are_one_refresh(scene: Scene) -> None:
    scene.view("v", schedule="0 * * * *", auto_refresh=True)
    scene.tick()
    scene.commit()
    assert scene.tick(3600) == ["v"]
    assert scene.jobs()[0].submitted_by == "schedule"
    assert scene.tick(60) == []  # it waits, and will see the commit
    scene.end()
    assert scene.tick(60) == []
    scene.commit()
    assert scene.tick() == ["v"]
    assert scene.jobs()[0].submitted_by == "auto_refresh"
    assert scene.tick(3600) == []  # what waits sees all there is when its turn comes


def test_a_time_comes_even_when_commits_never_end(scene: Scene) -> None:
    scene.view("v", schedule="0 * * * *", auto_refresh=True)
    scene.tick()
    scene.commit()
    assert scene.tick(60) == ["v"]
    running = scene.services.queue.claim("worker", 1e6)
    assert running is not None
    scene.commit()
    assert scene.tick(3600) == []  # its time has come, but one runs
    scene.services.queue.finish(running, JobState.DONE, counters={})
    scene.commit()
    assert scene.tick() == ["v"]
    assert scene.jobs()[0].submitted_by == "schedule"


def test_a_time_that_failed_is_not_repeated_before_the_source_changes(scene: Scene) -> None:
    scene.view("v", schedule="0 * * * *", auto_refresh=True)
    scene.tick()
    scene.commit()
    assert scene.tick(3600) == ["v"]
    scene.end("failed")
    assert scene.tick(60) == []
    scene.commit()
    assert scene.tick() == ["v"]
    assert scene.jobs()[0].submitted_by == "auto_refresh"


def test_a_dropped_view_is_forgotten(scene: Scene) -> None:
    scene.view("v", schedule="* * * * *", auto_refresh=True)
    scene.tick()
    scene.lake("DropTable", "v")
    scene.commit()
    assert scene.tick(3600) == []
