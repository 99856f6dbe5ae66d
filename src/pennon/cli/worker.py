"""The ``pennon worker`` command."""

from __future__ import annotations

import importlib.util

from pennon.cli.catalog import require_catalog
from pennon.cli.exit_codes import CommandError, ExitCode
from pennon.cli.options import with_settings
from pennon.core.settings import Settings


@with_settings()
def worker(settings: Settings) -> None:
    """Run jobs (backfills, refreshes, maintenance) on Spark, on any host with access to the catalog and the storage.

    Every option can also be set by an environment variable, such as PENNON_WORKER_SLOTS for --worker-slots, or in the
    settings file of --config.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError("Jobs need Spark, which is not installed: pip install 'pennon[all]'.", ExitCode.FAILED)
    from pennon.core.logs import configure_logging
    from pennon.pipeline.worker.process import quiet_libraries, run_worker

    quiet_libraries()
    configure_logging(settings.log_level, settings.log_format)
    require_catalog(settings)
    run_worker(settings, lambda: print("Pennon's worker is ready", flush=True))  # noqa: T201
