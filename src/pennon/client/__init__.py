"""The Python SDK: LanceDB's connection and tables, with columns that functions fill and the jobs that fill them."""

from pennon.client.columns import computed
from pennon.client.connection import Connection, connect
from pennon.client.job import Job, JobCancelledError, JobError, JobFailedError, JobTimedOutError
from pennon.client.reports import ColumnState, Plan
from pennon.client.table import Table

__all__ = [
    "ColumnState",
    "Connection",
    "Job",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobTimedOutError",
    "Plan",
    "Table",
    "computed",
    "connect",
]
