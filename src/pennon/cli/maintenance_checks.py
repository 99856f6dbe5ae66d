"""Checks of ``pennon doctor`` on maintenance, from the counters in the catalog: no file of a table is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pennon.catalog import table_health
from pennon.core.identifiers import ROOT, format_identifier
from pennon.jobs.worker_registry import WorkerRegistry

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.catalog.table_health import TableHealth
    from pennon.core.settings import Settings

_WORST_TABLES = 10


def find_overdue(database: Database, settings: Settings) -> tuple[Literal["OK", "WARN"], str, str | None]:
    """Return the status of maintenance, the tables on which it is behind, the worst first, and what to do."""
    from pennon.maintenance.ranking import overdue, weights_of

    weights = weights_of(settings)
    worst = database.read(lambda connection: table_health.worst(connection, ROOT, weights, _WORST_TABLES))
    late = [(_named(table), reasons) for table in worst if (reasons := overdue(table, weights))]
    if late:
        lines = [f"{name}: {', '.join(reasons)}" for name, reasons in late]
        detail = "\n".join(["behind on these tables, the worst first:", *lines])
        return "WARN", detail, _advice(database, settings)
    if not settings.maintenance_enabled:
        return "WARN", "automatic maintenance is off", "set maintenance_enabled to true"
    return "OK", "no table is behind", None


def _named(table: TableHealth) -> str:
    return format_identifier(table.object) + (f" (branch {table.branch})" if table.branch else "")


def _advice(database: Database, settings: Settings) -> str:
    if not settings.maintenance_enabled:
        return "set maintenance_enabled to true, or run pennon maintenance run TABLE"
    if not WorkerRegistry(database, settings.job_lease_seconds).alive():
        return "start a worker: pennon serve, or pennon worker"
    return "pennon tables health TABLE says what is due and why; pennon maintenance run TABLE does it now"
