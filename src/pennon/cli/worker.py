"""The ``pennon worker`` command, and the worker that ``pennon serve`` keeps beside the server."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable

from pennon.cli.catalog import require_catalog
from pennon.cli.exit_codes import CommandError, Exit
from pennon.cli.options import with_settings
from pennon.core.settings import Settings


@with_settings()
def worker(settings: Settings) -> None:
    """Carry out jobs from the catalog's queue, on any host that reaches the catalog and the tables.

    Each option is also an environment variable, as PENNON_WORKER_SLOTS is for --worker-slots, and a name in the file
    of --config.
    """
    if importlib.util.find_spec("pyspark") is None:
        said = "Jobs run on Spark, which is not installed: run pip install 'pennon[all]'."
        raise CommandError(said, Exit.FAILED)
    _quieten()
    from pennon.server.process import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    run_worker(settings, lambda: print("Pennon's worker is ready", flush=True))  # noqa: T201


def run_worker(settings: Settings, announce: Callable[[], object]) -> None:
    """Work until the process is told to stop."""
    require_catalog(settings)
    from pennon.jobs.auto_backfill import AutoBackfill, Triggers
    from pennon.jobs.auto_refresh import AutoRefresh
    from pennon.jobs.pin_sweep import PinSweep
    from pennon.jobs.worker_registry import WorkerRegistry
    from pennon.pipeline.cluster.session import Sessions
    from pennon.pipeline.worker.loop import Worker
    from pennon.pipeline.worker.services import Tools
    from pennon.services import build_services

    services = build_services(settings)
    tools = Tools(
        settings=settings,
        database=services.database,
        storage_root=services.storage_root,
        datasets=services.datasets,
        writer=services.writer,
        column_state_store=services.column_state_store,
        queue=services.queue,
        sessions=Sessions(settings),
    )
    triggers = Triggers(
        AutoBackfill(settings, services.database, services.datasets, services.column_state_store, services.queue),
        AutoRefresh(settings, services.database, services.datasets, services.queue),
        PinSweep(services.database, services.storage_root),
    )

    def tick() -> None:
        if not services.ownership.is_due or services.ownership.check() is None:
            triggers.tick()

    worker_registry = WorkerRegistry(services.database, settings.job_lease_seconds)
    # Where the root is another catalog's, jobs wait: they would write to its tables.
    carrier = Worker(tools, worker_registry, tick, lambda: services.ownership.refusal is None)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: carrier.stopping.set())
    announce()
    try:
        carrier.run()
    finally:
        services.indexer.close()
        services.database.close()


def _quieten() -> None:
    """Keep out of the log what the libraries say of themselves at every job; before they are imported."""
    os.environ.setdefault("LANCE_LOG", "error")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # What is below a warning and has no name of its own is Py4J's trace of a Spark that was told to end.
    logging.getLogger().addFilter(lambda record: record.levelno >= logging.WARNING)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def run_child() -> None:
    """Be the worker of a server: told by whom it was started, and its settings on standard input."""
    _quieten()
    from pennon.core.process import exit_with_parent
    from pennon.server.process import configure_logging
    from pennon.server.supervisor import READY

    exit_with_parent(int(sys.argv[1]))
    settings = Settings.model_validate_json(sys.stdin.readline())
    configure_logging(settings.log_level, settings.log_format)
    ready = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    run_worker(settings, lambda: ready.write(READY))


if __name__ == "__main__":
    run_child()
