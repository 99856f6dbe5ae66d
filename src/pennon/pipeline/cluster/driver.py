"""What the drivers of all jobs do with Spark: open a session, choose an environment, and wait for tasks."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pennon.pipeline.cluster.clusters import find_cluster
from pennon.pipeline.cluster.tasks import TaskError
from pennon.pipeline.environments.cache import Shelf
from pennon.pipeline.environments.deployment import shipped
from pennon.pipeline.environments.environment import Environment, Shipped

if TYPE_CHECKING:
    from pennon.core.identifiers import Identifier
    from pennon.core.settings import Settings
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.cluster.tasks import TaskRun
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices

_POLL_SECONDS = 0.02
_LONGEST_POLL = 0.5
_TASKS_PER_CORE = 2
_TASKS_OF_CONNECT = 8
#: A job that waits for a cluster says so after this time.
_PATIENCE_SECONDS = 5.0


@contextmanager
def lend(services: WorkerServices, lease: Lease, name: str | None, image: str | None) -> Iterator[Session]:
    """Lend a job the session of a cluster, and tell where its pages are; or that the cluster is slow to answer."""
    if image and not find_cluster(services.settings, name).has_containers:
        lease.note("image_unused", {"image": image, "reason": "only on Kubernetes are executors of an image"})
    patience = min(_PATIENCE_SECONDS, services.settings.cluster_seconds / 2)
    waiting = threading.Timer(patience, lease.note, ("waiting", {"cluster": name, "reason": "it does not answer yet"}))
    waiting.daemon = True
    waiting.start()
    try:
        with services.sessions.use(name, image, lease.check) as session:
            waiting.cancel()
            try:
                if session.ui is not None:
                    lease.note("session", {"spark_ui": session.ui})
                yield session
            except Exception as error:
                loss = session.find_loss() if _is_severed(error) else None
                if loss is None:
                    raise
                raise loss from error
    finally:
        waiting.cancel()


def _is_severed(error: Exception) -> bool:
    """Tell whether an error is of a connection, as PySpark has one to Java."""
    kind = error.kind if isinstance(error, TaskError) else type(error).__name__
    return kind.startswith(("Py4J", "Connection", "BrokenPipe"))


@contextmanager
def prepared(
    session: Session, manifest: str | None, settings: Settings, lease: Lease
) -> Iterator[tuple[Session, Shipped]]:
    """Lend the session in which tasks find what a manifest asks for, and where it is.

    Its Python workers serve no other namespace and no other principal.
    """
    environment = Environment.parse(manifest or "{}", configured_indexes=settings.package_indexes)
    shelf = Shelf(settings.environments, settings.environment_bytes)
    tenant = tenant_of(lease.job.home, lease.job.submitted_by)
    with shipped(session, environment, shelf, lease.check, tenant) as found:
        yield found


def tenant_of(namespace: Identifier, principal: str) -> str:
    """Return what tells the Python workers of a namespace's jobs and a principal from those of others."""
    return hashlib.sha256(json.dumps([namespace, principal]).encode()).hexdigest()[:32]


def task_count(session: Session, asked: int | None) -> int:
    """Return how many tasks work is divided into."""
    if asked:
        return int(asked)
    if session.cluster.is_remote:
        return _TASKS_OF_CONNECT  # whose cores cannot be counted
    cores = int(session.spark.sparkContext.defaultParallelism)
    # Hosts of a cluster differ in speed: with more tasks than cores, the faster ones take on more.
    return cores if session.cluster.is_local else _TASKS_PER_CORE * cores


def wait(run: TaskRun, lease: Lease, look: Callable[[], None], stop: Callable[[], None]) -> None:
    """Wait until tasks ended, and look at what they do meanwhile; when they are not to go on, stop and cancel them."""
    try:
        poll, patient_until = _POLL_SECONDS, time.monotonic() + _PATIENCE_SECONDS
        while not run.wait(poll):
            lease.check()
            look()
            if time.monotonic() > patient_until:
                patient_until = math.inf
                if not run.has_begun():
                    lease.note("waiting", {"cluster": run.cluster, "reason": "no executor has taken on a task yet"})
            poll = min(poll * 1.5, _LONGEST_POLL)
    except BaseException:
        stop()
        run.cancel()
        raise
