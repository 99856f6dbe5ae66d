"""A worker without work: it rests, and is up when there is some."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pennon.catalog.jobs import FAILED
from pennon.jobs.roster import Roster
from tests.integration.jobs.servers import LEASE, JobServer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import StartPennon


def test_a_job_wakes_a_worker_that_would_rest_for_an_hour(start_pennon: StartPennon) -> None:
    hour = "3600"  # also between its signs of life, which would wake it too
    process = start_pennon("--workers", "1", "--worker-poll-seconds", hour, "--job-lease-seconds", hour)
    with closing(JobServer(process)) as server:
        roster = Roster(server.database, LEASE)
        wait_until(roster.alive, "the worker signed on")
        job = server.submit(server.new_table())

        def ended() -> bool:
            found = server.queue.find(job.id)
            return found is not None and found.state == FAILED  # for it names no function

        wait_until(ended, "the job was taken")
