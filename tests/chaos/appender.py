"""``python -m tests.chaos.appender URL TABLE FIRST COUNT``: a program that appends rows, one commit for each.

It says ``ready`` when it has connected, begins when its standard input says so or ends, and fails if a commit does.
"""

from __future__ import annotations

import sys

import lance
import lance_namespace as ln
import pyarrow as pa


def main() -> None:
    """Append the rows."""
    url, table, first, count = sys.argv[1], sys.argv[2].split("$"), int(sys.argv[3]), int(sys.argv[4])
    client = ln.connect("rest", {"uri": url})
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(first, first + count):
        rows = pa.table({"id": pa.array([number], pa.int64())})
        lance.write_dataset(rows, namespace_client=client, table_id=table, mode="append")


if __name__ == "__main__":
    main()
