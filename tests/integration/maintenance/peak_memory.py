"""``python -m tests.integration.maintenance.peak_memory DIRECTORY``: run the waiting job, and print its peak memory."""

from __future__ import annotations

import sys
from pathlib import Path

from pennon.namespace.namespace import PennonNamespace
from tests.integration.maintenance.maintenance_harness import MaintenanceHarness


def main() -> None:
    """Run the job, and print the bytes that it rewrote and the most memory that the process had."""
    harness = MaintenanceHarness(PennonNamespace(directory=sys.argv[1]))
    job = harness.services.queue.claim("w", 60)
    assert job is not None
    harness.worker.run_job(job)
    ended = harness.services.queue.find(job.id)
    assert ended is not None
    assert ended.state == "done", ended.failure
    # Not ru_maxrss: that includes the process that started this one.
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(ended.counters["bytes_rewritten"]), int(lines["VmHWM"].split()[0]) * 1024)


if __name__ == "__main__":
    main()
