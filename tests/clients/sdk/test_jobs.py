"""Jobs as the client sees them; the test is their worker, on the server's own queue."""

from __future__ import annotations

import base64
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError, TableColumnNotFoundError

import pennon
from pennon.catalog import open_database, tables
from pennon.client import Connection, Job, JobCancelledError, JobFailedError, JobTimedOutError
from pennon.client.columns import column_entries
from pennon.core.job_model import JobKind, JobState
from pennon.jobs.queue import Queue
from tests.clients.remote.data import new_name, rows
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pennon.catalog import Database
    from pennon.catalog.jobs import Job as Row
    from pennon.client import Table

LEASE = 60.0


class Workplace:
    """A server without workers, and its queue."""

    def __init__(self, server: PennonProcess, database: Database) -> None:
        self.db: Connection = pennon.connect(server.url)
        self.url = server.url
        self.queue = Queue(database)
        self._database = database

    def submit(self, target: str = "x") -> Job:
        """Submit a job for a new table and return it as the client knows it."""
        name = new_name()
        self.db.create_table(name, rows(3))

        def work(connection: Any) -> Row:
            table = tables.find(connection, (name,))
            assert table is not None
            return self.queue.submit(
                connection,
                JobKind.BACKFILL,
                table,
                {"column": target},  # type: ignore[typeddict-unknown-key]
                branch="main",
                target=target,
                submitted_by="test",
                context={},
            )

        return self.db.job(self._database.write(work).id)

    def claim(self) -> Row:
        """Take the job that is due, as a worker does."""
        claimed = self.queue.claim("test", LEASE)
        assert claimed is not None
        return claimed


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    directory: Path = tmp_path_factory.mktemp("workplace")
    with PennonProcess(directory, env={"PENNON_WORKERS": "0"}) as server:
        database = open_database(f"sqlite:///{directory}/.pennon/catalog.db")
        yield Workplace(server, database)
        database.close()


def test_a_job_is_followed_while_it_runs(workplace: Workplace) -> None:
    job = workplace.submit()
    assert (job.kind, job.target, job.state, job.finished) == ("backfill", "x", "pending", False)
    assert "worker" in job.waiting_for
    claimed = workplace.claim()
    seen: list[tuple[str, float]] = []
    followed = job.follow()
    next(followed)
    for done in (1, 2):
        workplace.queue.heartbeat(claimed, LEASE, {"rows_planned": 3, "rows_computed": done})
        for now in followed:
            seen.append((now.state, now.counters.get("rows_computed", 0)))
            if now.counters.get("rows_computed") == done:
                break
    workplace.queue.finish(claimed, JobState.DONE, counters={"rows_computed": 3}, result={"published_version": 7})  # type: ignore[arg-type]
    seen += [(now.state, now.counters.get("rows_computed", 0)) for now in followed]
    assert [pair for at, pair in enumerate(seen) if at == 0 or pair != seen[at - 1]][-3:] == [
        ("running", 1),
        ("running", 2),
        ("done", 3),
    ]
    assert job.result == {"published_version": 7}


def test_waiting_ends_with_the_job(workplace: Workplace) -> None:
    job = workplace.submit()
    claimed = workplace.claim()
    waited: list[Job] = []
    waiting = threading.Thread(target=lambda: waited.append(job.wait(60)))
    waiting.start()
    workplace.queue.finish(claimed, JobState.DONE, counters={}, result={"rows_assigned": 3})  # type: ignore[arg-type]
    waiting.join(60)
    assert waited == [job]
    assert job.result == {"rows_assigned": 3}


@pytest.mark.parametrize(
    ("state", "error"), [("failed", JobFailedError), ("timed_out", JobTimedOutError), ("cancelled", JobCancelledError)]
)
def test_a_bad_end_is_an_error(workplace: Workplace, state: str, error: type[Exception]) -> None:
    job = workplace.submit()
    failure = {"phase": "compute", "type": "ValueError", "message": "no such word", "retryable": False}
    workplace.queue.finish(workplace.claim(), state, counters={}, failure=None if state == "cancelled" else failure)  # type: ignore[arg-type]
    with pytest.raises(error, match=job.id) as caught:
        job.wait()
    if isinstance(caught.value, JobFailedError):
        assert "in the phase compute: ValueError: no such word" in str(caught.value)


def test_waiting_for_a_job_without_worker_times_out(workplace: Workplace) -> None:
    job = workplace.submit()
    with pytest.raises(TimeoutError, match=r"still pending after 0\.3 s .waiting: .*worker"):
        job.wait(0.3)
    assert job.cancel() == "cancelled"


def test_stop_requests_return_the_actual_outcome(workplace: Workplace) -> None:
    job = workplace.submit()
    assert (job.pause(), job.state) == ("paused", "paused")
    assert job.pause() == "already_paused"
    assert (job.resume(), job.state) == ("resumed", "pending")
    claimed = workplace.claim()
    assert (job.cancel(), job.state) == ("cancelling", "running")
    assert workplace.queue.heartbeat(claimed, LEASE, {}) == "cancel"
    workplace.queue.finish(claimed, JobState.CANCELLED, counters={})
    assert (job.cancel(), job.state) == ("already_cancelled", "cancelled")
    with pytest.raises(InvalidTableStateError, match=job.id):
        job.pause()


def test_a_job_is_tried_again(workplace: Workplace) -> None:
    job = workplace.submit()
    workplace.queue.finish(workplace.claim(), JobState.FAILED, counters={})
    again = job.retry()
    assert (again.id != job.id, again.target, again.state) == (True, "x", "pending")
    assert again.cancel() == "cancelled"
    with pytest.raises(InvalidTableStateError, match="has not ended"):
        workplace.submit().retry()
    assert workplace.db.jobs(limit=1)[0].cancel() == "cancelled"


def test_jobs_are_listed_latest_first(workplace: Workplace) -> None:
    first, second = workplace.submit("a"), workplace.submit("b")
    assert [job.id for job in workplace.db.jobs(limit=2)] == [second.id, first.id]
    assert [job.id for job in workplace.db.jobs(table=first.table)] == [first.id]
    assert {first.id, second.id} <= {job.id for job in workplace.db.jobs(state="pending")}
    assert [job.cancel() for job in (first, second)] == ["cancelled", "cancelled"]
    assert {first.id, second.id} <= {job.id for job in workplace.db.jobs(state="cancelled")}
    listed = workplace.db.jobs(table=second.table)[0]
    assert listed.created_at is not None
    assert listed.failure is None


def test_events_describe_a_job(workplace: Workplace) -> None:
    job = workplace.submit()
    claimed = workplace.claim()
    workplace.queue.add_event(claimed, "fragment_committed", "0", {"rows_processed": 3})
    workplace.queue.finish(claimed, JobState.DONE, counters={})
    kinds = job.events()["kind"].to_pylist()
    assert kinds[0] == "submitted"
    assert kinds[-2:] == ["fragment_committed", "done"]


@pennon.udf(version="1")
def length(text: str) -> int:
    return len(text)


@pennon.udf(version="1")
def longer(length: int) -> int:
    return length + 1


class TestColumns:
    """What is known of a column, and asked for, without anyone who fills it."""

    @pytest.fixture
    def table(self, workplace: Workplace) -> Table:
        table = workplace.db.create_table(new_name(), rows(100))
        table.add_columns({"length": length, "longer": longer})
        return table

    def test_the_state_of_a_column(self, table: Table) -> None:
        state = table.column_state("length")
        assert repr(state) == "<length: 0 of 100 rows computed, 100 missing (per row)>"
        assert (state.function, state.function_version, state.active_job, state.more) == ("length", "1", None, {})
        assert table.errors("length").num_rows == table.errors().num_rows == 0

    def test_the_plan_of_a_backfill(self, table: Table) -> None:
        plan = table.backfill("length", where="id < 10", dry_run=True)
        assert (plan.column, plan.rows, plan.udf_calls, plan.before) == ("length", 10, 10, ())
        assert table.backfill("longer", cascade=True, dry_run=True).before == ("length",)
        with pytest.raises(InvalidTableStateError, match="Backfill 'length' first"):
            table.backfill("longer", dry_run=True)
        by_byte = pennon.udf(data_type=pa.int64(), kind="batch", input_columns=["text"], batch_bytes=1)(length.plain)
        table.add_columns({"by_byte": by_byte})
        assert table.backfill("by_byte", dry_run=True).udf_calls == 100

    def test_a_backfill_that_is_asked_for_waits_for_a_worker(self, workplace: Workplace, table: Table) -> None:
        job = table.backfill_async("length", mode="all", priority=5, timeout=60, concurrency=2)
        assert repr(job) == f"<Job {job.id}: backfill {table.name} length, pending>"
        assert table.column_state("length").active_job == job.id
        spec = workplace.db.job(job.id)._fields["spec"]
        assert (spec["mode"], spec["timeout_seconds"], spec["concurrency"]) == ("all", 60, 2)
        assert job.cancel() == "cancelled"

    def test_a_backfill_that_is_asked_for_again_under_its_key_is_the_same_job(self, table: Table) -> None:
        route, body = f"/v1/table/{table.name}/backfill_column", {"column": "length"}
        first, again = (table._transport.post(route, body, idempotency_key="once") for _ in range(2))
        assert first["job_id"] == again["job_id"]

    def test_what_cannot_be_is_refused(self, table: Table) -> None:
        with pytest.raises(TableColumnNotFoundError, match="lenght"):
            table.backfill("lenght")
        with pytest.raises(TableColumnNotFoundError, match="lenght"):
            table.column_state("lenght")
        maker = pennon.chunker(output_schema=pa.schema({"word": pa.string()}))(length.plain)
        (entry,) = column_entries({"word": length})
        entry["virtual_column"]["udf"] = base64.b64encode(maker.pack()).decode()
        table._change("add_columns", {"new_columns": [entry]})
        with pytest.raises(InvalidInputError, match="'word' is a chunker; here it must be a udf"):
            table.backfill("word")
        with pytest.raises(InvalidInputError, match="cluster"):
            table.backfill("length", cluster="nowhere")
        with pytest.raises(InvalidInputError, match="mode"):
            table.backfill("length", mode="some")  # type: ignore[call-overload]
