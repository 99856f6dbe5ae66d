"""Deaths of a worker at a chosen step of a refresh: from then on the dead one changes nothing any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pennon.catalog import views
from pennon.catalog.jobs import Job
from pennon.commits import authority
from pennon.commits.authority import CommitAuthority
from pennon.core.job_model import JobKind, JobState
from pennon.jobs.errors import LeaseLostError
from pennon.pipeline.refresh import job
from pennon.pipeline.refresh.commits import ViewCommitter
from pennon.pipeline.refresh.computation import Computation
from pennon.pipeline.refresh.fragments import remove_orphan_files
from pennon.views import pins
from tests.integration.views.refresh.refresh_harness import RefreshHarness

Step = tuple[Any, str, str]


class Killed(BaseException):
    """The worker is dead."""


#: Whose method or function, its name, and whether death comes before or after it.
STEPS: dict[str, Step] = {
    "pinned": (pins, "pin", "after"),
    "computed": (Computation, "run", "after"),
    "before commit": (ViewCommitter, "commit", "before"),
    "files deleted": (ViewCommitter, "_rows_to_delete", "after"),
    "staged": (CommitAuthority, "stage", "after"),
    "watermark moved": (views, "advance", "after"),
    "recorded": (authority, "publish", "before"),
    "published": (authority, "publish", "after"),
    "committed": (ViewCommitter, "commit", "after"),
    "before unpin": (pins, "release", "before"),
}


@contextmanager
def death_at(harness: RefreshHarness, name: str) -> Iterator[Callable[[], bool]]:
    """Let the worker die at a step inside the block; yields whether it died."""
    dead = False
    holder, attribute, when = STEPS[name]
    plain = getattr(holder, attribute)
    lost = Job(name, JobKind.REFRESH, "", "", "", (), JobState.RUNNING, 0, {}, "", {}, 0)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal dead
        if when == "before":
            dead = True
            raise Killed(name)
        plain(*args, **kwargs)
        dead = True
        raise Killed(name)

    def only_alive(call: Callable[..., Any]) -> Callable[..., Any]:
        def alive(*args: Any, **kwargs: Any) -> Any:
            if dead and threading.current_thread().name.startswith("pennon-lease"):
                raise LeaseLostError(lost)  # the heartbeats of a dead worker just stop
            if dead:
                raise Killed(name)
            return call(*args, **kwargs)

        return alive

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, attribute, deadly)
        patch.setattr(harness.services.database, "write", only_alive(harness.services.database.write))
        patch.setattr(job, "remove_orphan_files", only_alive(remove_orphan_files))
        yield lambda: dead
