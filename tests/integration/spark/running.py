"""Run tasks to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.pipeline.cluster.tasks import run_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.pipeline.cluster.session import Session


def run(session: Session, task: Callable[[int], dict[str, Any]], count: int = 1, **more: Any) -> list[dict[str, Any]]:
    return run_tasks(session, task, count, group="test", **more).results()
