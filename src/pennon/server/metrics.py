"""Prometheus metrics of requests, labelled by operation, and of jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from pennon import __version__

if TYPE_CHECKING:
    from pennon.catalog.maintenance_totals import Backlog, Totals

#: The environment variable with the folder in which the processes of one server keep their metrics.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

MEDIA_TYPE = CONTENT_TYPE_LATEST.encode()
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of a server process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "pennon_requests", "Responses by operation and status.", ["operation", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "pennon_request_seconds",
            "Seconds from the arrival of a request to the end of its response.",
            ["operation"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "pennon_requests_in_flight",
            "Requests in progress.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        info = Gauge(
            "pennon_build_info", "Version of the server.", ["version"], registry=self._registry, multiprocess_mode="max"
        )
        info.labels(__version__).set(1)
        # The lookup of a labelled metric costs more than its update.
        self._count_of = cache(lambda operation, status: self._requests.labels(operation, str(status)))
        self._seconds_of = cache(self._seconds.labels)

    def observe(self, operation: str, status: int, seconds: float) -> None:
        """Record one response."""
        self._count_of(operation, status).inc()
        self._seconds_of(operation).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics of all processes of the server in Prometheus' format."""
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


#: The metrics of maintenance by kind of job and outcome: the field of its totals, the factor, and the meaning.
_MAINTENANCE = (
    ("runs_total", "runs", 1, "Maintenance jobs that have ended, by kind and outcome."),
    ("seconds_total", "millis", 0.001, "Duration of maintenance jobs."),
    ("rewritten_bytes_total", "bytes_rewritten", 1, "Bytes that compaction has written."),
    ("indexed_rows_total", "rows_indexed", 1, "Rows that maintenance has added to indexes."),
    ("versions_removed_total", "versions_removed", 1, "Versions that cleanup has removed."),
    ("removed_bytes_total", "bytes_removed", 1, "Bytes that cleanup has removed."),
)


def forget_process(pid: int, folder: str) -> None:
    """Drop the gauges of a process that died; its counters stay."""
    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


def jobs_text(counts: Mapping[str, int]) -> bytes:
    """Return the number of jobs by state in Prometheus' format; every process reports the same, from the catalog."""
    head = "# HELP pennon_jobs Jobs in the catalog.\n# TYPE pennon_jobs gauge\n"
    return (head + "".join(f'pennon_jobs{{state="{state}"}} {count}\n' for state, count in counts.items())).encode()


def maintenance_text(totals: Sequence[Totals], backlog: Backlog) -> bytes:
    """Return what maintenance has done and what is due, in Prometheus' format; every process reports the same."""
    lines = []
    for name, field, factor, meaning in _MAINTENANCE:
        lines += [f"# HELP pennon_maintenance_{name} {meaning}", f"# TYPE pennon_maintenance_{name} counter"]
        for total in totals:
            labels = f'kind="{total.kind}",outcome="{total.outcome}"'
            lines.append(f"pennon_maintenance_{name}{{{labels}}} {round(getattr(total, field) * factor, 3)}")
    gauges = (
        ("tables_due", backlog.branches, "Tables and branches on which maintenance is due."),
        ("backlog_seconds", backlog.millis / 1000, "Time for which the oldest of them has waited."),
    )
    for name, value, meaning in gauges:
        lines += [f"# HELP pennon_maintenance_{name} {meaning}", f"# TYPE pennon_maintenance_{name} gauge"]
        lines.append(f"pennon_maintenance_{name} {value}")
    return ("\n".join(lines) + "\n").encode()
