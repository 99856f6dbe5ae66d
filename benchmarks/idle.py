"""Measure the share of a core that a server with one worker and without jobs uses, and the memory that it holds.

The server runs on loopback on an empty folder. Nothing here asserts a figure: the exit code is 0 unless it fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from servers import PENNON, start


def _processes(ancestor: int) -> dict[int, tuple[str, float, float]]:
    """Return the name, the processor seconds and the resident MB of a process and its descendants."""
    found, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command's name may hold spaces and brackets: count the fields after it.
            fields = stat.read_text().rpartition(")")[2].split()
            command = stat.with_name("cmdline").read_text().split("\0")
        except OSError:
            continue
        number = int(stat.parent.name)
        parents[number] = int(fields[1])
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        name = next((part for part in command[1:] if "pennon" in part or "spark" in part), command[0])
        found[number] = name[-40:], seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1024**2
    family = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: found[pid] for pid in family & found.keys()}


def main() -> int:
    """Measure and print one line per process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the measurement")
    parser.add_argument("--settle-seconds", type=float, default=45.0, help="wait for the start of Spark first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pennon-idle-", ignore_cleanup_errors=True) as folder:
        server = start(PENNON, Path(folder), {"PENNON_WORKERS": "1"})
        try:
            time.sleep(options.settle_seconds)
            before, began = _processes(server.process.pid), time.monotonic()
            time.sleep(options.seconds)
            after, elapsed = _processes(server.process.pid), time.monotonic() - began
        finally:
            server.stop()
    print(f"{'process':<42}{'% of a core':>12}{'MB before':>11}{'MB after':>10}")
    total = 0.0
    for pid, (name, seconds, held) in sorted(after.items()):
        _, seconds_before, held_before = before.get(pid, ("", 0.0, 0.0))
        share = 100 * (seconds - seconds_before) / elapsed
        total += share
        print(f"{name:<42}{share:>12.2f}{held_before:>11.0f}{held:>10.0f}")
    print(f"{'total':<42}{total:>12.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
