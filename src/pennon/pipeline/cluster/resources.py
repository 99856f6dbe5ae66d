"""The resources that a function declares for each task, and how Spark is asked for them."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.resource import ResourceProfile
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from pennon.functions.options import Options
    from pennon.pipeline.cluster.session import Session
    from pennon.views.model.definition import Expansion

#: The number of GPUs of an executor; on a local master, which does not track them, those of the machine.
_EXECUTOR_GPUS = "spark.executor.resource.gpu.amount"
_EXECUTOR_CORES = "spark.executor.cores"
#: The memory of an executor that Python uses: all but that of Java.
_EXECUTOR_MEMORY = "spark.executor.memoryOverhead"
_UNITS = "kmgtp"


class ResourcesUnavailableError(Exception):
    """A cluster cannot provide the resources of a task."""


@dataclass(frozen=True)
class ConnectProfile:
    """A resource profile of a Connect server: the part of PySpark's class that ``mapInArrow`` uses."""

    id: int


#: A resource profile of a driver in this process, or of a Connect server.
AnyProfile: TypeAlias = "ResourceProfile | ConnectProfile"


@dataclass(frozen=True)
class TaskResources:
    """The cores, the GPUs and the bytes of memory of one task."""

    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, declared: Sequence[Expansion | Options]) -> TaskResources:
        """Return the resources of a task with several functions: of each resource, the most that one declares."""
        return cls(
            max((each.num_cpus for each in declared if each.num_cpus is not None), default=None),
            max((each.num_gpus for each in declared if each.num_gpus is not None), default=None),
            max((each.memory for each in declared if each.memory is not None), default=None),
        )

    def tasks_at_once(self, session: Session, wanted: int) -> int:
        """Return how many tasks may run at once: a local master does not limit them by their resources."""
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

    def profile(self, session: Session) -> AnyProfile | None:
        """Return the resource profile of the tasks; None on a local master, and for tasks that need just one core."""
        if session.cluster.is_local:
            self._local_gpus(session)
            return None
        requests = self._requests(session)
        if not requests:
            return None
        with session.preparing():
            key = tuple(sorted(requests.items()))
            if key not in session.profiles:  # Spark never removes one
                session.profiles[key] = self._create_profile(session, requests)
            return session.profiles[key]

    def _requests(self, session: Session) -> dict[str, float]:
        """Return the requests by Spark's names; memory, which Spark does not track, is turned into cores."""
        conf = session.spark.conf
        cores, memory = conf.get(_EXECUTOR_CORES, None), conf.get(_EXECUTOR_MEMORY, None)
        share = self.memory * int(cores) / _bytes_of(memory) if self.memory and cores and memory else 1
        cpus = math.ceil(max(self.cpus or 1, share))
        return ({"cpus": cpus} if cpus > 1 else {}) | ({"gpu": self.gpus} if self.gpus is not None else {})

    def _create_profile(self, session: Session, requests: dict[str, float]) -> AnyProfile:
        """Create a resource profile; Spark checks whether its tasks can run."""
        try:
            return _remote_profile(session, requests) if session.cluster.is_remote else _profile(session, requests)
        except Exception as error:  # noqa: BLE001 (raised again as an error of its own)
            found = re.search(r"(?:\w+\.)+\w*(?:Exception|Error): (.*)", str(error))
            raise self._unavailable(session, found[1] if found else str(error).partition("\n")[0]) from None

    def _local_gpus(self, session: Session) -> float:
        amount = float(session.cluster.conf.get(_EXECUTOR_GPUS, 0))
        if self.gpus is not None and amount < self.gpus:
            reason = f"on a local master, {_EXECUTOR_GPUS} in its conf says how many GPUs there are, now {amount:g}"
            raise self._unavailable(session, reason)
        return amount

    def _unavailable(self, session: Session, reason: str) -> ResourcesUnavailableError:
        declared = {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": self.memory}
        listed = ", ".join(f"{name} {value:g}" for name, value in declared.items() if value is not None)
        return ResourcesUnavailableError(
            f"Each task asks for {listed}, which the cluster {session.cluster.name!r} cannot provide: "
            f"{reason.rstrip('.')}."
        )


def _profile(session: Session, requests: dict[str, float]) -> ResourceProfile:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    tasks = TaskResourceRequests()
    for name, amount in requests.items():
        if name == "cpus":
            tasks.cpus(int(amount))
        else:
            tasks.resource(name, amount)
    profile = ResourceProfileBuilder().require(tasks).build
    session.spark.sparkContext.emptyRDD().withResources(profile)  # Spark checks the profile only here
    return profile


def _remote_profile(session: Session, requests: dict[str, float]) -> ConnectProfile:
    """Create a profile on a Connect server; PySpark would create it on the server that was connected last."""
    from pyspark.sql.connect import proto

    tasks = {name: proto.TaskResourceRequest(resource_name=name, amount=amount) for name, amount in requests.items()}
    spark = cast("ConnectSession", session.spark)
    profile = proto.ResourceProfile(task_resources=tasks)
    return ConnectProfile(spark.client._create_profile(profile))  # noqa: SLF001 (no public function takes a session)


def _bytes_of(size: str) -> int:
    """Return a size as Spark writes it: ``4g``, ``512m``, or a plain number of MiB."""
    number, unit = re.fullmatch(r"(\d+)\s*([kmgtp]?)b?", size.strip().lower()).groups()  # type: ignore[union-attr]
    return int(number) * int(1024 ** (_UNITS.index(unit or "m") + 1))
