"""Workers: known while they are heard of, and forgotten when they leave or fall silent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pennon import __version__
from pennon.jobs.worker_registry import Roster

if TYPE_CHECKING:
    from tests.integration.jobs.workshop import Workshop

LEASE = 10.0


def test_a_worker_is_known_from_its_first_day_to_its_last(workshop: Workshop) -> None:
    roster = Roster(workshop.database, LEASE, clock=workshop.clock)
    worker = roster.register(slots=2)
    assert roster.alive() == [worker]
    assert (worker.pid, worker.version, worker.slots, worker.busy) == (os.getpid(), __version__, 2, 0)
    workshop.clock.advance(5)
    roster.heartbeat(worker, busy=1)
    (alive,) = roster.alive()
    assert (alive.busy, alive.heartbeat_at, alive.started_at) == (1, workshop.clock(), worker.started_at)
    roster.leave(worker)
    assert roster.alive() == []


def test_who_is_silent_is_dead_and_forgotten_but_may_come_back(workshop: Workshop) -> None:
    roster = Roster(workshop.database, LEASE, clock=workshop.clock)
    silent, heard = roster.register(), roster.register()
    workshop.clock.advance(3 * LEASE)
    assert len(roster.alive()) == 2
    workshop.clock.advance(1)
    roster.heartbeat(heard, busy=0)
    assert [worker.id for worker in roster.alive()] == [heard.id]
    roster.sweep()
    assert workshop.database.read(lambda connection: connection.all("SELECT id FROM workers")) == [(heard.id,)]
    roster.heartbeat(silent, busy=0)
    assert {worker.id for worker in roster.alive()} == {silent.id, heard.id}
