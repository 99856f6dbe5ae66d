"""The process of a worker: started by ``pennon worker``, or by the supervisor of a server."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable

from pennon.core.logs import configure_logging
from pennon.core.process import READY, exit_with_parent, omit_centroids
from pennon.core.settings import Settings


def run_worker(settings: Settings, announce: Callable[[], object]) -> None:
    """Run jobs until the process receives SIGTERM or SIGINT."""
    from pennon.jobs.auto_backfill import AutoBackfill
    from pennon.jobs.auto_maintenance import AutoMaintenance
    from pennon.jobs.auto_refresh import AutoRefresh
    from pennon.jobs.pin_sweep import PinSweep
    from pennon.jobs.triggers import Triggers
    from pennon.pipeline.cluster.session import Sessions
    from pennon.pipeline.worker.loop import Worker
    from pennon.pipeline.worker.worker_services import WorkerServices
    from pennon.services import build_services

    omit_centroids()
    services = WorkerServices(**vars(build_services(settings)), sessions=Sessions(settings))
    triggers = Triggers(
        AutoBackfill(services),
        AutoRefresh(services),
        AutoMaintenance(settings, services.database, services.storage_root, services.queue),
        PinSweep(services.database, services.storage_root),
    )

    def tick() -> None:
        if not services.ownership.is_due or services.ownership.check() is None:
            triggers.tick()

    # Jobs write to tables, so none is claimed while the storage root belongs to another catalog.
    worker = Worker(services, services.worker_registry, tick, lambda: services.ownership.refusal is None)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: worker.stopping.set())
    announce()
    try:
        worker.run()
    finally:
        services.indexer.close()
        services.deferred_flush.close()
        services.database.close()


def quiet_libraries() -> None:
    """Silence what libraries log for every job; must be called before they are imported."""
    os.environ.setdefault("LANCE_LOG", "error")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Py4J logs the traceback of a stopped Spark to the root logger, below the level of a warning.
    logging.getLogger().addFilter(lambda record: record.levelno >= logging.WARNING)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def run_child() -> None:
    """Run the worker of a server: its parent's process id is the argument, its settings are on standard input."""
    quiet_libraries()
    exit_with_parent(int(sys.argv[1]))
    settings = Settings.model_validate_json(sys.stdin.readline())
    configure_logging(settings.log_level, settings.log_format)
    ready = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    run_worker(settings, lambda: ready.write(READY))


if __name__ == "__main__":
    run_child()
