"""The JSON records that tasks send to the driver.

A task runs in a Python worker that may be on another host, with the same version of Pennon. Its answer travels through
Spark as one line of JSON, and signals and receipts are JSON files on storage, so all of these are plain dictionaries.

Executors import this module: it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from lance.fragment import DataFile

Result = TypeVar("Result")


class TaskFailure(TypedDict):
    """An error that ends the job, because a second attempt would fail in the same way."""

    type: str
    message: str


class TaskAnswer(TypedDict, Generic[Result]):
    """What a task returns: its result, or the failure that ended it."""

    result: Result | None
    failure: TaskFailure | None


class TaskCounters(TypedDict):
    """What the work of a task amounted to; the driver adds these up, except for the peak of memory."""

    rows_computed: int
    rows_failed: int
    bytes_read: int
    bytes_written: int
    read_seconds: float
    udf_seconds: float
    write_seconds: float
    peak_memory_bytes: int


class DataFileRecord(TypedDict):
    """A data file as Lance needs it for a commit: the arguments of ``lance.fragment.DataFile``."""

    path: str
    fields: list[int]
    column_indices: list[int]
    file_major_version: int
    file_minor_version: int
    file_size_bytes: int | None


def record_data_file(file: DataFile) -> DataFileRecord:
    """Return the record of a data file."""
    return {
        "path": file.path,
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.file_major_version,
        "file_minor_version": file.file_minor_version,
        "file_size_bytes": file.file_size_bytes,
    }


def add_counters(totals: dict[str, float], counters: TaskCounters, skip: Container[str] = ()) -> None:
    """Add the counters of a task to those of its job, except for some."""
    for name, amount in cast("dict[str, float]", counters).items():
        if name in skip:
            continue
        if name == "peak_memory_bytes":
            totals[name] = max(totals.get(name, 0), amount)
        else:
            totals[name] = totals.get(name, 0) + amount
