"""``python -m tests.chaos.maintenance_worker DIRECTORY STEP TIMES``: a worker that dies at a step of maintenance.

The step ``write`` is each write to storage or to the catalog, before it and after it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pennon.namespace.namespace import PennonNamespace
from tests.chaos.cleanup_process import count_writes
from tests.chaos.faulty_server import Fault
from tests.integration.maintenance.maintenance_harness import MaintenanceHarness


def main() -> None:
    """Claim the job and run it."""
    directory, step, times = sys.argv[1:]
    harness = MaintenanceHarness(PennonNamespace(directory=directory, job_lease_seconds=1))
    with tempfile.TemporaryDirectory() as folder:
        armed = Path(folder) / "armed"
        job = harness.services.queue.claim("mortal", 1)
        assert job is not None
        if step == "write":
            count_writes(harness.services.database, int(times))
        else:
            Fault(step, armed).install()
        armed.write_text(f"{times} {step}", encoding="utf-8")
        harness.worker.run_job(job)
    os._exit(0)


if __name__ == "__main__":
    main()
