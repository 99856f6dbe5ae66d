"""Maintenance of tables with feature columns: what was computed stays, and so do the errors of rows."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pennon.catalog import jobs, tables
from pennon.core.job_model import TERMINAL, JobKind
from pennon.functions import ErrorPolicy
from tests.integration.backfill.calls import CallLog
from tests.integration.backfill.sample_tables import failing_on
from tests.integration.jobs.servers import JobServer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.integration.backfill.conftest import NewSample
    from tests.support.server import PennonProcess


def test_a_backfill_finds_nothing_to_do_after_maintenance(
    new_sample: NewSample, log: CallLog, spark_server: PennonProcess
) -> None:
    sample = new_sample(30, 10)
    sample.table.add_columns({"y": failing_on(log, (7, 21), ErrorPolicy.skip())})
    sample.fill()
    sample.table.delete("id in (3, 17)")
    sample.update("id = 11", 5)
    assert sample.state() == (25, 2, 1, 0)
    with closing(JobServer(spark_server)) as server:
        table = server.database.read(lambda connection: tables.find(connection, (sample.name,)))
        assert table is not None
        job = server.database.write(
            lambda connection: server.queue.submit(
                connection, JobKind.COMPACT, table, {}, target="maintenance", priority=-10, submitted_by="test"
            )
        )

        def has_ended() -> bool:
            found = server.database.read(lambda connection: jobs.find(connection, job.id))
            return found is not None and found.state in TERMINAL

        wait_until(has_ended)
        ended = server.queue.find(job.id)
        assert ended is not None
        assert ended.result is not None
        assert ended.result["failures"] == {}  # type: ignore[typeddict-item]
        assert ended.result["fragments_removed"] > 1  # type: ignore[typeddict-item]
    assert len(sample.open().get_fragments()) == 1
    assert sample.state() == (25, 2, 1, 0)
    assert sample.fill() == [11]
    assert sample.fill() == []
    assert sample.values()[12] == 12_000
