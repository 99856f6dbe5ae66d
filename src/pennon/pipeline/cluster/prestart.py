"""The warm-up of Spark, so that first jobs take no longer than later ones.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.core.caller import ANONYMOUS_ADMIN
from pennon.core.identifiers import ROOT
from pennon.pipeline.cluster.driver import task_count, tenant_of
from pennon.pipeline.cluster.tasks import run_tasks
from pennon.pipeline.environments.environment import DeployedEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.pipeline.cluster.session import Session

#: After this many runs, Java has loaded the classes that tasks need, and compiled most of the code. An estimate.
_WARM_UP_RUNS = 40
_POLL_SECONDS = 0.05
#: Python workers are started for this tenant, the only one in a server without keys and namespaces.
_DEFAULT_TENANT = DeployedEnvironment(None, {}, tenant=tenant_of(ROOT, ANONYMOUS_ADMIN.name))


def warm_up(session: Session, is_needed: Callable[[], bool]) -> None:
    """Run empty tasks on all cores of this machine, until ``is_needed`` says that something else needs Spark.

    On a cluster this does nothing: it would take executors away from others.
    """
    for _ in range(_WARM_UP_RUNS if session.cluster.is_local else 0):
        if is_needed():
            return
        run = run_tasks(session, _load, task_count(session, None), group="warm-up", environment=_DEFAULT_TENANT)
        while not run.wait(_POLL_SECONDS):
            if is_needed():
                return
        run.results()


def _load(number: int) -> dict[str, object]:  # noqa: ARG001 (all tasks do the same)
    """Import what the tasks of jobs import."""
    import pennon.pipeline.function_execution
    import pennon.pipeline.refresh.fragments  # noqa: F401

    return {}
