"""Making Spark warm, so that the first jobs take no longer than others.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.core.caller import ANONYMOUS_ADMIN
from pennon.core.identifiers import ROOT
from pennon.pipeline.cluster.driver import task_count, tenant_of
from pennon.pipeline.cluster.tasks import run_tasks
from pennon.pipeline.environments.environment import Shipped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.pipeline.cluster.session import Session

#: After so many runs of tasks Java has loaded what they take, and compiled the most of it.
_ROUNDS = 40
_LOOK_SECONDS = 0.05
#: The tenant whose Python workers are started: where there are no keys and no namespaces, the only one.
_USUAL = Shipped(None, {}, tenant=tenant_of(ROOT, ANONYMOUS_ADMIN.name))


def warm_up(session: Session, is_wanted: Callable[[], bool]) -> None:
    """Run tasks that do nothing on all cores of this machine, for as long as nobody else wants to run some.

    On a cluster it would be for others to pay.
    """
    for _ in range(_ROUNDS if session.cluster.is_local else 0):
        if is_wanted():
            return
        run = run_tasks(session, _load, task_count(session, None), group="warm-up", environment=_USUAL)
        while not run.wait(_LOOK_SECONDS):
            if is_wanted():
                return
        run.results()


def _load(number: int) -> dict[str, Any]:  # noqa: ARG001 (they are all the same)
    """Import what the tasks of jobs do."""
    import pennon.pipeline.computation
    import pennon.pipeline.refresh.fragments  # noqa: F401

    return {}
