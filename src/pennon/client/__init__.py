"""The Python SDK: LanceDB's connection and tables, with feature columns, materialized views and jobs."""

from pennon.client.columns import computed
from pennon.client.connection import Connection, connect
from pennon.client.job import Job, JobCancelledError, JobError, JobFailedError, JobTimedOutError
from pennon.client.queries import Query, query
from pennon.client.reports import ColumnState, Freshness, Plan, RefreshPlan
from pennon.client.table import Table
from pennon.client.view import View

__all__ = [
    "ColumnState",
    "Connection",
    "Freshness",
    "Job",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobTimedOutError",
    "Plan",
    "Query",
    "RefreshPlan",
    "Table",
    "View",
    "computed",
    "connect",
    "query",
]
