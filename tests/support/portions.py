"""Which tests one process runs, where several processes share the work.

A portion is what shares something that takes long to start, such as a Spark; other tests share at most what their file
has. Long portions come first, so that short ones fill the end of a run.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_PAGE = "tests/integration/test_doc_examples.py::test_every_example_of_a_page_runs"
#: The portions, the longest first, by the beginnings of their paths; of those that fit, the first counts.
PORTIONS = {
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
_TURNS = {name: turn for turn, name in enumerate(dict.fromkeys(PORTIONS.values()))}


def portion_of(test: str) -> str:
    """Return the portion of a test, by its id: a path from the root of the checkout, and what follows it."""
    fitting = (name for start, name in PORTIONS.items() if test.startswith(start))
    return next(fitting, test.partition("::")[0])


def turn_of(test: str) -> int:
    """Return a number by which to sort tests, so that those of the long portions come first."""
    return _TURNS.get(portion_of(test), len(_TURNS))


class Portions(LoadScopeScheduling):  # type: ignore[misc]  # xdist tells no types
    """Gives whole portions to processes, in the order of their tests."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # else those of many tests come first, and these are quick

    def _split_scope(self, nodeid: str) -> str:
        return portion_of(nodeid)
