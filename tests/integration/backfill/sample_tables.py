"""Tables with a column that a function fills, seen through the client and on storage."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import pennon
from pennon.functions import ErrorPolicy, Function
from tests.clients.lakes import ClientTable, Lake
from tests.integration.backfill.calls import CallLog, note
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import lance
    import lance_namespace as ln

    from pennon.client import ColumnState, Connection, Job

SECONDS = 120.0


def rows(start: int, stop: int) -> pa.Table:
    """Return rows with the ids of a range, and a number that functions compute from."""
    ids = range(start, stop)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([100 * number for number in ids], pa.int64())})


class SampleTable:
    """One table."""

    def __init__(self, db: Connection, lake: Lake, client: ln.LanceNamespace, log: CallLog, name: str) -> None:
        self.db = db
        self.table = db.open_table(name)
        self.name = name
        self.log = log
        self.lance = ClientTable(lake, client, name)

    @property
    def route(self) -> str:
        """The address of its operations."""
        return f"/v1/table/{self.name}"

    @property
    def folder(self) -> Path:
        """Where it is stored."""
        return Path(self.lance.location)

    def open(self) -> lance.LanceDataset:
        """Open its newest version."""
        return self.lance.open()

    def add(self, start: int, stop: int) -> None:
        """Append rows, which become a fragment."""
        self.table.add(rows(start, stop))

    def fill(self, column: str = "y", **options: Any) -> list[int]:
        """Backfill a column, and return the ids of the rows that were computed."""
        self.log.new()
        self.table.backfill(column, progress=False, **options)
        return self.log.new()

    def values(self, column: str = "y", branch: str | None = None) -> dict[int, Any]:
        """Return the value of each row by its id."""
        dataset = self.lance.on_branch(branch) if branch else self.open()
        found = dataset.to_table(columns=["id", column])
        return dict(zip(found["id"].to_pylist(), found[column].to_pylist(), strict=True))

    def numbers(self) -> dict[int, int]:
        """Return the input of each row by its id."""
        return self.values("x")

    def state(self, column: str = "y", branch: str | None = None) -> tuple[int, int, int, int]:
        """Return how many rows are computed, failed, stale and missing."""
        found: ColumnState = self.table.column_state(column, branch=branch)
        assert found.computed + found.failed + found.stale + found.missing == found.rows
        return found.computed, found.failed, found.stale, found.missing

    def compact(self) -> None:
        """Have a client merge its small fragments into one."""
        assert self.open().optimize.compact_files().fragments_removed > 0

    def update(self, where: str, x: int) -> None:
        """Change the input of rows."""
        self.table.update(where=where, values={"x": x})

    def upsert(self, changed: pa.Table) -> None:
        """Change and add rows by their ids."""
        self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(changed)

    def checkpoints(self) -> list[str]:
        """Return the files that backfills have kept."""
        return sorted(str(path.name) for path in (self.folder / "_checkpoints").rglob("*") if path.is_file())


def tenfold(log: CallLog, factor: int = 10, **options: Any) -> Function[..., Any]:
    """Return a function that multiplies, and writes down for which rows it was called."""
    path = log.path

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        return x * factor

    return pennon.udf(**options)(multiply)


def failing_on(log: CallLog, bad: Iterable[int], policy: ErrorPolicy, **options: Any) -> Function[..., Any]:
    """Return the function that fails on some rows."""
    path, refused = log.path, frozenset(bad)

    def multiply(id: int, x: int) -> int:  # noqa: A002
        note(path, id)
        if id in refused:
            raise ValueError(f"row {id} is bad")
        return x * 10

    return pennon.udf(error_policy=policy, **options)(multiply)


def slow(log: CallLog, seconds: float, **options: Any) -> Function[..., Any]:
    """Return the function as one that takes its time for each batch."""
    path = log.path

    def multiply(id: pa.Array, x: pa.Array) -> pa.Array:  # noqa: A002
        note(path, *id.to_pylist())
        time.sleep(seconds)
        return pa.array([number * 10 for number in x.to_pylist()], pa.int64())

    return pennon.udf(data_type=pa.int64(), kind="batch", **options)(multiply)


def ended(job: Job) -> Job:
    """Wait until a job has ended, one way or the other."""
    wait_until(lambda: job.refresh().finished, f"the end of {job!r}")
    return job


def new_name() -> str:
    """Return a name that no other test uses."""
    return f"sample_{secrets.token_hex(6)}"
