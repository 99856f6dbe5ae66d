"""Groups of tests for pytest-xdist: one process runs all tests of a group.

The tests of a group share something that takes long to start, such as a Spark session; any other file is a group of its
own. Long groups come first, so that short ones fill the end of a run.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_PAGE = "tests/integration/test_doc_examples.py::test_every_example_of_a_page_runs"
#: The groups, the longest first, by the prefixes of their paths; the first match counts.
GROUPS = {
    "tests/integration/backfill/test_clusters.py": "clusters",
    "tests/integration/backfill/": "worker",
    "tests/integration/cli/test_backfill.py": "worker",
    "tests/integration/test_notebooks.py": "worker",
    "tests/integration/views/refresh/test_served.py": "worker",
    "tests/integration/views/test_": "worker",
    "tests/clients/sdk/test_backfill.py": "worker",
    "tests/smoke/": "worker",
    "tests/integration/views/refresh/": "driver",
    "tests/integration/spark_source/test_connect.py": "clusters",
    "tests/integration/spark_source/": "driver",
    f"{_PAGE}[docs/how-to/spark-cluster.md]": "clusters",
    "tests/integration/test_doc_examples.py": "pages",
    "tests/chaos/test_fuzz_view_sql.py": "driver",
    "tests/chaos/test_backfill_chaos.py": "storms",
    "tests/chaos/test_view_chaos.py": "storms",
    "tests/integration/spark/": "clusters",
    "tests/console/": "console",
    "tests/integration/cli/test_demo.py": "demo",
}
_ORDER = {name: order for order, name in enumerate(dict.fromkeys(GROUPS.values()))}


def group_of(test: str) -> str:
    """Return the group of a test, by its id: a path from the root of the checkout, and what follows it."""
    matches = (name for start, name in GROUPS.items() if test.startswith(start))
    return next(matches, test.partition("::")[0])


def order_of(test: str) -> int:
    """Return the sort key of a test: the tests of long groups come first."""
    return _ORDER.get(group_of(test), len(_ORDER))


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist tells no types
    """Gives whole groups to processes, in the order of their tests."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # else those of many tests come first, and these are quick

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
