"""The ``pennon worker`` command."""

from __future__ import annotations

import importlib.util

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
    from pennon.core.logs import configure_logging
    from pennon.pipeline.worker.process import quiet_libraries, run_worker

    quiet_libraries()
    configure_logging(settings.log_level, settings.log_format)
    require_catalog(settings)
    run_worker(settings, lambda: print("Pennon's worker is ready", flush=True))  # noqa: T201
