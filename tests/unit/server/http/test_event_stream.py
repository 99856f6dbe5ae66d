"""The stream of a job: when it says something although nothing happened, and how often it looks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pennon.catalog import tables
from pennon.catalog.tables import Table
from pennon.core.identifiers import new_id
from pennon.core.job_model import JobKind
from pennon.namespace import PennonNamespace
from pennon.server.http.event_stream import JobEventStream
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from pathlib import Path


def test_a_quiet_job_is_polled_less_often_but_its_client_gets_heartbeats(tmp_path: Path) -> None:
    namespace = PennonNamespace(directory=tmp_path)
    services = namespace.services
    table = Table(new_id(), (), "t", "file:///t")
    services.database.write(lambda connection: tables.insert(connection, table))
    job = services.database.write(
        lambda connection: services.queue.submit(
            connection,
            JobKind.BACKFILL,
            table,
            {},
            target="c",
            submitted_by="ada",
            context={},
        )
    )
    now = 0.0
    stream = JobEventStream(namespace, job, 0, clock=lambda: now)
    first = stream.read().decode()
    assert first.startswith("retry: ")
    assert "event: submitted" in first
    pauses, said = [], []
    for _ in range(80):
        now += stream.pause
        said.append(stream.read())
        pauses.append(stream.pause)
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(0.011)
    assert all(later <= 1.1 * pause * (1 + 1e-9) for pause, later in pairwise(pauses))
    assert pauses[-1] == 0.25
    assert set(said) == {b"", b": keep-alive\n\n"}
    assert len([text for text in said if text]) == int(now // 10)
    change_job(services.queue, "pause", job.id)
    assert b"event: paused" in stream.read()
    assert stream.pause == 0.01
    assert not stream.ended
    services.database.write(lambda connection: connection.run("DELETE FROM jobs"))
    assert (stream.read(), stream.ended) == (b"", True)
    namespace.close()
