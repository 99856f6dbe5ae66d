"""Workers: known while they are heard of, and forgotten when they leave or fall silent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pennon import __version__
from pennon.jobs.worker_registry import WorkerRegistry

if TYPE_CHECKING:
    from tests.integration.jobs.queue_fixture import QueueFixture

LEASE = 10.0


def test_a_worker_is_known_from_its_first_day_to_its_last(queue_fixture: QueueFixture) -> None:
    worker_registry = WorkerRegistry(queue_fixture.database, LEASE, clock=queue_fixture.clock)
    worker = worker_registry.register(slots=2)
    assert worker_registry.alive() == [worker]
    assert (worker.pid, worker.version, worker.slots, worker.busy) == (os.getpid(), __version__, 2, 0)
    queue_fixture.clock.advance(5)
    worker_registry.heartbeat(worker, busy=1)
    (alive,) = worker_registry.alive()
    assert (alive.busy, alive.heartbeat_at, alive.started_at) == (1, queue_fixture.clock(), worker.started_at)
    worker_registry.deregister(worker)
    assert worker_registry.alive() == []


def test_a_silent_worker_is_removed_but_may_register_again(queue_fixture: QueueFixture) -> None:
    worker_registry = WorkerRegistry(queue_fixture.database, LEASE, clock=queue_fixture.clock)
    silent, heard = worker_registry.register(), worker_registry.register()
    queue_fixture.clock.advance(3 * LEASE)
    assert len(worker_registry.alive()) == 2
    queue_fixture.clock.advance(1)
    worker_registry.heartbeat(heard, busy=0)
    assert [worker.id for worker in worker_registry.alive()] == [heard.id]
    worker_registry.sweep()
    assert queue_fixture.database.read(lambda connection: connection.all("SELECT id FROM workers")) == [(heard.id,)]
    worker_registry.heartbeat(silent, busy=0)
    assert {worker.id for worker in worker_registry.alive()} == {silent.id, heard.id}
