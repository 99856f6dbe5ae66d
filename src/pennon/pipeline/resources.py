"""What a function needs of a host for each of its tasks, as Spark is asked for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pennon.functions.options import Options
    from pennon.pipeline.session import Session
    from pennon.views.definition import Definition


@dataclass(frozen=True)
class Needs:
    """The cores, the GPUs and the bytes of memory that one task takes."""

    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, definition: Definition, options: Sequence[Options]) -> Needs:
        """Return what the functions of a view need: as the view was asked for, else as their authors said."""
        asked = [definition.expansion] if definition.expansion is not None else options

        def most(name: str) -> Any:
            return max((value for each in asked if (value := getattr(each, name)) is not None), default=None)

        return cls(most("num_cpus"), most("num_gpus"), most("memory"))

    def tasks_at_once(self, session: Session, wanted: int) -> int:
        """Return how many tasks run side by side; on this machine alone Spark does not see to it."""
        if not session.cluster.is_local:
            return max(wanted, 1)
        most = wanted
        if self.cpus is not None:
            most = min(most, int(session.spark.sparkContext.defaultParallelism // self.cpus))
        if self.memory is not None:
            most = min(most, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // self.memory)
        return max(most, 1)

    def profile(self, session: Session) -> Any:
        """Return what Spark is asked for each task; none where it is not asked, or nothing is needed."""
        if session.cluster.is_local or session.cluster.is_remote or (self.cpus is None and self.gpus is None):
            return None
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        requests = TaskResourceRequests()
        if self.cpus is not None:
            requests.cpus(max(int(-(-self.cpus // 1)), 1))
        if self.gpus is not None:
            requests.resource("gpu", self.gpus)
        return ResourceProfileBuilder().require(requests).build
