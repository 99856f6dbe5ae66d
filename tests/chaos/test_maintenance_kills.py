"""A worker is killed at each step of maintenance: no row is lost, answers stay exact, and the next one finishes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pennon.core.job_model import JobKind
from pennon.namespace.namespace import PennonNamespace
from pennon.views import pins
from tests.chaos.crashing import KILLED, ROOT
from tests.integration.maintenance.maintenance_harness import MaintenanceHarness
from tests.integration.maintenance.test_answers import check_answers, create_indexed, wide_rows

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from pennon.core.job_model import MaintenanceResult

NAME = "table"
#: The rows that the table has throughout.
IDS = {number for number in range(340) if number % 3} | set(range(100, 130))
COMPACTION = "pennon.maintenance.compaction"
STEP = "pennon.pipeline.maintenance.compaction_step:CompactionStep"
INDEX_STEP = "pennon.pipeline.maintenance.index_step:IndexStep"
AUTHORITY = "pennon.commits.authority:CommitAuthority"
#: Each step, and the time that it is reached at which the worker dies.
STEPS = {
    "when an index was folded": ("after pennon.maintenance.index_upkeep:run", 1),
    "before a group is rewritten": (f"before {COMPACTION}:execute", 2),
    "when the files of a group are recorded": (f"after {STEP}._remember", 2),
    "when the commit is recorded": ("after pennon.catalog.versions:insert", 6),
    "before the manifest is published": (f"before {AUTHORITY}.publish", 6),
    "when the commit is reported": (f"after {STEP}._count", 1),
}
FURTHER_STEPS = {
    "before the first index is folded": ("before pennon.maintenance.index_upkeep:run", 1),
    "when all indexes were folded": (f"after {INDEX_STEP}.run", 1),
    "when the version is pinned": ("after pennon.views.pins:pin", 1),
    "before the commit": (f"before {COMPACTION}:commit_what_fits", 1),
    "when fragment numbers are reserved": (f"after {AUTHORITY}.publish", 5),
    "when the manifest is published": (f"after {AUTHORITY}.publish", 6),
    "after the commit": (f"after {COMPACTION}:commit_what_fits", 1),
    "before the pin is removed": ("before pennon.views.pins:remove", 1),
    "before the end is recorded": ("before pennon.jobs.queue:Queue.finish", 1),
}


#: How many writes apart the deaths are at which no step has a name.
STRIDE = 7
#: Versions and their files go at once.
AT_ONCE: dict[str, Any] = {"min_version_seconds": 0, "max_versions": 3, "snapshot_seconds": 0, "min_file_seconds": 0}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that needs all steps, and its job."""
    return prepare(tmp_path_factory.mktemp("prepared"))


def prepare(directory: Path, **policy: Any) -> Path:
    """Make a table that needs all steps, and submit its job."""
    with closing(PennonNamespace(directory=str(directory))) as namespace:
        harness = MaintenanceHarness(namespace)
        create_indexed(harness, NAME, stable=True, kind="IVF_FLAT")
        for start in range(330, 340):
            harness.append(NAME, wide_rows(start, start + 1))
        harness.delete(NAME, "id % 3 = 0")
        harness.upsert(NAME, wide_rows(100, 130, seed=1))
        harness.submit(NAME, JobKind.MAINTAIN, **policy)
    return directory


def take_over(harness: MaintenanceHarness) -> Job:
    """Run the job as another worker does when the lease has expired."""
    queue = harness.services.queue
    deadline = time.monotonic() + 30
    while (job := queue.claim("next", 10)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    harness.worker.run_job(job)
    ended = queue.find(job.id)
    assert ended is not None
    return ended


@pytest.mark.parametrize(("step", "times"), STEPS.values(), ids=STEPS)
def test_the_next_worker_finishes_the_job(prepared: Path, tmp_path: Path, step: str, times: int) -> None:
    kill_and_take_over(prepared, tmp_path / "lake", step, times)


@pytest.mark.long
@pytest.mark.parametrize(("step", "times"), FURTHER_STEPS.values(), ids=FURTHER_STEPS)
def test_the_next_worker_finishes_the_job_at_further_steps(
    prepared: Path, tmp_path: Path, step: str, times: int
) -> None:
    kill_and_take_over(prepared, tmp_path / "lake", step, times)


@pytest.mark.long
def test_the_next_worker_finishes_the_job_wherever_it_was_left(tmp_path: Path) -> None:
    prepared, death = prepare(tmp_path / "prepared", **AT_ONCE), 1
    while die(prepared, tmp_path / str(death), "write", death) == -signal.SIGKILL:
        with closing(PennonNamespace(directory=str(tmp_path / str(death)))) as namespace:
            harness = MaintenanceHarness(namespace)
            check_answers(harness.dataset(NAME), IDS)
            ended = take_over(harness)
            assert ended.state == "done", f"death {death}: {ended.failure}"
            assert ended.result is not None
            assert cast("MaintenanceResult", ended.result)["failures"] == {}, f"death {death}"
            harness.run(NAME, JobKind.CLEANUP, **{**AT_ONCE, "max_versions": 1})
            check_answers(harness.dataset(NAME), IDS)
            named = {file.path for each in harness.dataset(NAME).get_fragments() for file in each.metadata.files}
            assert harness.data_files(NAME) == named, f"death {death}"
        death += STRIDE
    assert death > 10 * STRIDE


def die(prepared: Path, directory: Path, step: str, times: int) -> int:
    """Run the job in a process that dies at a step, and return its exit code."""
    shutil.copytree(prepared, directory, symlinks=True)
    command = [sys.executable, "-m", "tests.chaos.maintenance_worker", str(directory), step, str(times)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120).returncode


def kill_and_take_over(prepared: Path, directory: Path, step: str, times: int) -> None:
    assert die(prepared, directory, step, times) == KILLED
    with closing(PennonNamespace(directory=str(directory))) as namespace:
        harness = MaintenanceHarness(namespace)
        check_answers(harness.dataset(NAME), IDS)
        ended = take_over(harness)
        assert ended.state == "done", ended.failure
        assert ended.result is not None
        check_answers(harness.dataset(NAME), IDS)
        assert harness.health(NAME).due == ()
        # What was written and not committed is gone, and nothing else is.
        assert harness.data_files(NAME) == harness.named_files(NAME)
        folder = harness.services.storage_root.folder(harness.table(NAME).location)
        assert pins.pins(folder, "job") == []
