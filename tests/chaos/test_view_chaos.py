"""Refreshes while rows change and processes die: the view ends as a rebuild would compute it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from tests.chaos import spark_processes as processes
from tests.clients.lakes import ClientTable
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pennon.client import Job
    from tests.clients.lakes import Lake

ROWS = 120
GUSTS = ("kill_python", "kill_daemon")
BOLTS = ("kill_worker", "kill_java")


class Storm:
    """A source, a slow chunker over it, and what happens while it is refreshed."""

    def __init__(self, lake: Lake, seed: int, folder: Path) -> None:
        self._lake = lake
        self._chance = random.Random(seed)  # noqa: S311 (a test that can be repeated)
        self._log = folder / "calls"
        self._log.touch()
        path = str(self._log)

        @pennon.chunker
        def piece(id: int, size: int) -> Iterator[str]:  # noqa: A002
            import time

            with open(path, "a") as log:  # noqa: PTH123
                log.write(".")
            for number in range(size):
                time.sleep(0.005)
                yield f"{id}/{size}/{number}"

        db = pennon.connect(lake.url)
        self._name = f"storm_view_{seed}_{folder.name.replace('-', '_')}"
        self._next = 0
        self._table = db.create_table(self._name, self._rows(ROWS))
        self._view = db.create_chunk_view(f"{self._name}_pieces", self._name, piece, columns=["id"], with_no_data=True)

    def run(self, actions: list[str]) -> None:
        for action in actions:
            begun = self._log.stat().st_size
            job: Job = self._view.refresh(wait=False, progress=False)
            wait_until(lambda: self._log.stat().st_size > begun or job.refresh().finished, "the refresh has begun")  # noqa: B023
            getattr(self, f"_{action}")()
            self._change()
            while not self._ended(job):
                job = job.retry()
            self._check(job)
            self._change()
        self._check(self._view.refresh(progress=False))

    def _ended(self, job: Job) -> bool:
        wait_until(lambda: job.refresh().finished, f"{job!r} has ended")
        assert job.state == "done" or (job.failure or {}).get("retryable"), job.failure
        return job.state == "done"

    def _rows(self, count: int) -> pa.Table:
        ids = range(self._next, self._next + count)
        self._next += count
        return pa.table({"id": pa.array(ids), "size": pa.array([self._chance.randint(0, 4) for _ in ids])})

    def _change(self) -> None:
        for _ in range(self._chance.randint(1, 3)):
            number = self._chance.randint(0, 16)
            match self._chance.choice(["append", "update", "delete", "compact", "update_in_place"]):
                case "append":
                    self._table.add(self._rows(1 + number))
                case "update":
                    self._table.update(where=f"id % 17 = {number}", values_sql={"size": "(size + 1) % 5"})
                case "delete":
                    self._table.delete(f"id % 31 = {number}")
                case "update_in_place":
                    rows = self._open(self._name).to_table(filter=f"id % 17 = {number}")
                    changed = rows.set_column(1, "size", pc.add(rows["size"], 1))
                    ClientTable(self._lake, self._lake.connect(), self._name).update_in_place("id", changed)
                case "compact":
                    self._open(self._name).optimize.compact_files()

    def _kill_python(self) -> None:
        for pid in processes.python_workers_of(self._lake.server.pid)[:1]:
            processes.kill(pid)

    def _kill_daemon(self) -> None:
        for pid in processes.daemons_of(self._lake.server.pid):
            processes.kill(pid)

    def _kill_java(self) -> None:
        for pid in processes.javas_of(self._lake.server.pid):
            processes.kill(pid)

    def _kill_worker(self) -> None:
        for pid in processes.workers_of(self._lake.server.pid):
            processes.kill(pid)

    def _open(self, name: str, version: int | None = None) -> Any:
        import lance

        return lance.dataset(namespace_client=self._lake.connect(), table_id=[name], version=version)

    def _check(self, job: Job) -> None:
        """Check that the view is what its source at the version it tells makes, and that no file is left over."""
        result = job.result or {}
        source = self._open(self._name, result["source_version"]).to_table().to_pylist()
        view = self._open(f"{self._name}_pieces")
        wanted = sorted(
            (row["id"], number, f"{row['id']}/{row['size']}/{number}")
            for row in source
            for number in range(row["size"])
        )
        found = view.to_table(columns=["id", "__child_index", "piece"]).to_pylist()
        assert sorted((row["id"], row["__child_index"], row["piece"]) for row in found) == wanted, result
        named = {
            file.path
            for version in range(1, view.version + 1)
            for fragment in self._open(f"{self._name}_pieces", version).get_fragments()
            for file in fragment.metadata.files
        }
        wait_until(lambda: self._files(view) <= named, "files that nobody needs are gone")

    def _files(self, view: Any) -> set[str]:
        """Return the view's files; without those Lance had just begun when it was killed: its clean-up is for them."""
        return {name for name in self._lake.files(view.uri, "data") if not name.startswith(".tmp")}


@pytest.mark.parametrize("seed", range(3))
def test_views_end_as_in_calm_weather(stormy: Lake, tmp_path: Path, seed: int) -> None:
    Storm(stormy, seed, tmp_path).run([GUSTS[seed % 2], BOLTS[0]] if seed == 2 else [GUSTS[seed % 2]])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_views_end_as_in_calm_weather_for_long(stormy: Lake, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (a test that can be repeated)
    Storm(stormy, seed, tmp_path).run(chance.choices([*GUSTS, *BOLTS], k=3))
