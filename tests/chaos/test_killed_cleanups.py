"""Cleanups that die at any step, and that race with whatever begins to need a version."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import lance
from lance_namespace.errors import LanceNamespaceError

from pennon.core.job_model import JobState
from pennon.views import pins
from tests.chaos.crashing import ROOT
from tests.integration.catalog.cleanups import clean, table_of, values
from tests.integration.catalog.lakes import Lake
from tests.integration.catalog.test_retention import contents, fill, needed_files, stored_files

if TYPE_CHECKING:
    from pennon.catalog import Connection

#: How many steps apart the deaths are: those within the removal of one file after another are alike.
STRIDE = 3
WRITERS, VERSIONS = 4, 40


def run_until(folder: Path, step: int) -> int | None:
    """Run a cleanup that dies at a step; return the number of its steps if it ends before."""
    arguments = [str(folder), f"sqlite:///{folder}/.pennon/catalog.db", str(step)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.cleanup_process", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    return int(done.stdout) if done.stdout else None


def end_jobs(lake: Lake) -> None:
    """Take the job of a dead process over, and end it."""
    services = lake.ns.services

    def expire(connection: Connection) -> None:
        connection.run("UPDATE jobs SET lease_until = 0 WHERE state IN ('running', 'committing')")

    services.database.write(expire)
    job = services.queue.claim("heir", 60)
    assert job is not None
    services.queue.finish(job, JobState.DONE, counters={})


def test_a_cleanup_is_finished_by_the_next_whenever_it_dies(tmp_path: Path) -> None:
    made = Lake(tmp_path / "made")
    fill(made, versions=6)
    made("CreateTableTag", "t", tag="good", version=2)
    before = contents(made)
    made.settle()
    made.close()
    # Locations in the catalog are relative to the root, but links to tables are not: copy them to the same place.
    kept = shutil.copytree(tmp_path / "made", tmp_path / "kept", symlinks=True)
    step, ended = 1, None
    while ended is None:
        shutil.rmtree(tmp_path / "made")
        shutil.copytree(kept, tmp_path / "made", symlinks=True)
        ended = run_until(tmp_path / "made", step)
        lake = Lake(tmp_path / "made")
        try:
            end_jobs(lake)
            for number in lake.numbers("t"):  # whatever is listed can be read
                assert values(lance.dataset(lake.folder("t"), version=number)) == before[number]
            clean(lake, "t", max_versions=2)
            assert contents(lake) == {number: before[number] for number in (2, 5, 6)}
            assert {path for path in stored_files(lake) if not path.startswith("_removed_versions/")} == needed_files(
                lake
            )
        finally:
            lake.close()
        step += STRIDE
    assert ended > 10 * STRIDE


def test_what_begins_to_need_a_version_has_it_or_hears_that_it_is_gone(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    fill(lake, versions=VERSIONS)
    before = contents(lake)
    services, table = lake.ns.services, table_of(lake, "t")
    folder, started = services.storage_root.folder(table.location), threading.Barrier(WRITERS + 1)

    def need(writer: int) -> dict[str, int]:
        """Tag, pin, branch from and clone versions while they are cleaned up; return what was promised."""
        promised: dict[str, int] = {}
        started.wait()
        for number in range(writer + 1, VERSIONS - 1, WRITERS):
            name = f"n{number}"
            try:
                if writer == 0:
                    lake("CreateTableTag", "t", tag=name, version=number)
                elif writer == 1:
                    pins.pin(folder, name, number)
                elif writer == 2:
                    lake("CreateTableBranch", "t", name=name, from_version=number)
                else:
                    lake.ns.clones.clone_table((name,), table.location, number, None, shallow=True)
            except LanceNamespaceError:
                continue  # it is gone
            promised[name] = number
        return promised

    with ThreadPoolExecutor(WRITERS) as pool:
        running = [pool.submit(need, writer) for writer in range(WRITERS)]
        started.wait()
        clean(lake, "t", max_versions=1)
        promised = [each.result() for each in running]
    clean(lake, "t", max_versions=1)
    assert any(promised)
    for number in {number for each in promised for number in each.values()}:
        assert values(lance.dataset(lake.folder("t"), version=number)) == before[number]
    for name, number in promised[2].items():
        assert values(lake.open("t").checkout_version((name, None))) == before[number]
    for name, number in promised[3].items():
        assert values(lake.open(name)) == before[number]
    lake.close()
