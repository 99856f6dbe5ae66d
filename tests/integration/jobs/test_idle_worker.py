"""An idle worker: it polls rarely, starts at once when a job is submitted, and stops on request."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pennon.catalog import open_database
from pennon.catalog.schema import migrate
from pennon.core.job_model import JobState
from pennon.core.settings import load_settings
from pennon.jobs.worker_registry import WorkerRegistry
from tests.chaos.spark_processes import is_running, javas_of
from tests.integration.jobs.servers import LEASE, JobServer
from tests.support.waiting import SECONDS, wait_until

if TYPE_CHECKING:
    from tests.conftest import StartPennon


def test_a_job_wakes_a_worker_that_would_rest_for_an_hour_also_after_trouble(start_pennon: StartPennon) -> None:
    hour = "3600"  # also between its signs of life, which would wake it too
    process = start_pennon("--workers", "1", "--worker-poll-interval-seconds", hour, "--job-lease-seconds", hour)
    with closing(JobServer(process)) as server:
        worker_registry = WorkerRegistry(server.database, LEASE)
        before = wait_until(worker_registry.alive, "the worker signed on")
        server.database.write(lambda connection: connection.run("ALTER TABLE jobs RENAME TO lost"))
        wait_until(lambda: "could not claim a job" in process.stderr, "the worker noticed")
        server.database.write(lambda connection: connection.run("ALTER TABLE lost RENAME TO jobs"))
        job = server.submit(server.new_table())

        def ended() -> bool:
            found = server.queue.find(job.id)
            return found is not None and found.state == JobState.FAILED  # for it names no function

        wait_until(ended, "the job was taken")
        assert [worker.id for worker in worker_registry.alive()] == [worker.id for worker in before]


@pytest.mark.parametrize(("command", "ending"), [("serve", signal.SIGTERM), ("worker", signal.SIGINT)])
def test_a_worker_can_be_stopped_while_it_starts_spark(
    tmp_path: Path, silence: int, command: str, ending: signal.Signals
) -> None:
    with closing(open_database(load_settings(directory=tmp_path).database_url)) as database:
        migrate(database)
    flags = ["--spark-prestart", "--spark-master", f"spark://127.0.0.1:{silence}"]  # which never has it warm
    flags += ["--port", "0", "--processes", "1"] if command == "serve" else []
    running = subprocess.Popen(
        [sys.executable, "-m", "pennon.cli.main", command, str(tmp_path), *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        javas = wait_until(lambda: javas_of(running.pid), "Java was started")
        with closing(open_database(load_settings(directory=tmp_path).database_url)) as database:
            assert len(WorkerRegistry(database, 3600).alive()) == 1  # also beside a server that was not asked for one
        running.send_signal(ending)
        _, said = running.communicate(timeout=SECONDS)
    finally:
        running.kill()
    assert (running.returncode, "Traceback" in said) == (0, False)
    wait_until(lambda: not any(map(is_running, javas)), "Java ended")
    with closing(open_database(load_settings(directory=tmp_path).database_url)) as database:
        assert WorkerRegistry(database, 3600).alive() == []  # who is killed does not sign off
