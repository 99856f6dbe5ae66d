"""What a function needs of a host for each of its tasks, as Spark is asked for it."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pennon.functions.options import Options
    from pennon.pipeline.cluster.session import Session
    from pennon.views.model.definition import Expansion

#: How many GPUs an executor has; on a local master, which keeps no account of them, how many the machine has.
_EXECUTOR_GPUS = "spark.executor.resource.gpu.amount"
_EXECUTOR_CORES = "spark.executor.cores"
#: Beside the memory of Java: what Python has on an executor.
_EXECUTOR_MEMORY = "spark.executor.memoryOverhead"
_UNITS = "kmgtp"


class ResourcesUnavailableError(Exception):
    """A cluster cannot give tasks what they need; the message says what, and why."""


@dataclass(frozen=True)
class Needs:
    """The cores, the GPUs and the bytes of memory that one task takes."""

    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, asked: Sequence[Expansion | Options]) -> Needs:
        """Return what the functions of a task need: of each resource, the most that one of them asks for."""

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
        if self.gpus is not None:
            most = min(most, int(self._local_gpus(session) // self.gpus))
        if self.memory is not None:
            most = min(most, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // self.memory)
        return max(most, 1)

    def profile(self, session: Session) -> Any:
        """Return what Spark is asked for each task; none where it is not asked, or a task needs a core and no more."""
        if session.cluster.is_local:
            self._local_gpus(session)
            return None
        requests = self._requests(session.spark.conf)
        if not requests:
            return None
        with session.preparing():
            key = tuple(sorted(requests.items()))
            if key not in session.profiles:  # Spark never forgets one
                session.profiles[key] = self._ask(session, requests)
            return session.profiles[key]

    def _requests(self, conf: Any) -> dict[str, float]:
        """Return the requests by Spark's names; for memory, which Spark keeps none of, the cores that go with it."""
        cores, memory = conf.get(_EXECUTOR_CORES, None), conf.get(_EXECUTOR_MEMORY, None)
        share = self.memory * int(cores) / _bytes_of(memory) if self.memory and cores and memory else 1
        cpus = math.ceil(max(self.cpus or 1, share))
        return ({"cpus": cpus} if cpus > 1 else {}) | ({"gpu": self.gpus} if self.gpus is not None else {})

    def _ask(self, session: Session, requests: dict[str, float]) -> Any:
        """Make a resource profile, and have Spark say whether its tasks can run."""
        try:
            return _remote_profile(session, requests) if session.cluster.is_remote else _profile(session, requests)
        except Exception as error:  # noqa: BLE001 (it is raised again, in words)
            told = re.search(r"(?:\w+\.)+\w*(?:Exception|Error): (.*)", str(error))
            raise self._refused(session, told[1] if told else str(error).partition("\n")[0]) from None

    def _local_gpus(self, session: Session) -> float:
        amount = float(session.cluster.conf.get(_EXECUTOR_GPUS, 0))
        if self.gpus is not None and amount < self.gpus:
            reason = f"on a local master, {_EXECUTOR_GPUS} in its conf says how many GPUs there are, now {amount:g}"
            raise self._refused(session, reason)
        return amount

    def _refused(self, session: Session, reason: str) -> ResourcesUnavailableError:
        asked = {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": self.memory}
        told = ", ".join(f"{name} {value:g}" for name, value in asked.items() if value is not None)
        return ResourcesUnavailableError(
            f"Each task asks for {told}, which the cluster {session.cluster.name!r} cannot give: {reason.rstrip('.')}."
        )


def _profile(session: Session, requests: dict[str, float]) -> Any:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    asked = TaskResourceRequests()
    for name, amount in requests.items():
        if name == "cpus":
            asked.cpus(int(amount))
        else:
            asked.resource(name, amount)
    profile = ResourceProfileBuilder().require(asked).build
    session.spark.sparkContext.emptyRDD().withResources(profile)  # Spark looks at it only now
    return profile


def _remote_profile(session: Session, requests: dict[str, float]) -> Any:
    """Make a profile on a Connect server; PySpark would make it on whichever server was connected to last."""
    from pyspark.sql.connect import proto

    tasks = {name: proto.TaskResourceRequest(resource_name=name, amount=amount) for name, amount in requests.items()}
    spark: Any = session.spark
    profile = proto.ResourceProfile(task_resources=tasks)
    return SimpleNamespace(id=spark.client._create_profile(profile))  # noqa: SLF001 (nothing public takes a session)


def _bytes_of(size: str) -> int:
    """Return a size as Spark writes it: ``4g``, ``512m``, or a plain number of MiB."""
    number, unit = re.fullmatch(r"(\d+)\s*([kmgtp]?)b?", size.strip().lower()).groups()  # type: ignore[union-attr]
    return int(number) * int(1024 ** (_UNITS.index(unit or "m") + 1))
