"""What the drivers of all jobs do with Spark: borrow a session, prepare an environment, and wait for tasks."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pennon.pipeline.cluster.clusters import find_cluster
from pennon.pipeline.cluster.tasks import TaskError
from pennon.pipeline.environments.cache import EnvironmentCache
from pennon.pipeline.environments.deployment import deployed
from pennon.pipeline.environments.environment import DeployedEnvironment, Environment

if TYPE_CHECKING:
    from pennon.core.identifiers import Identifier
    from pennon.core.settings import Settings
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.cluster.tasks import TaskRun, TaskRuns
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices

# None of these was measured.
#: Tasks are polled often at first, so that short jobs end soon, and less often later.
_FIRST_POLL_SECONDS = 0.02
_LONGEST_POLL_SECONDS = 0.5
_POLL_GROWTH = 1.5
_TASKS_PER_CORE = 2
#: The number of tasks on a Connect server, which does not say how many cores it has.
_CONNECT_TASKS = 8
#: A job that waits for a cluster adds a "waiting" event after this time.
_WAITING_SECONDS = 5.0


@contextmanager
def borrow_session(services: WorkerServices, lease: Lease, name: str | None, image: str | None) -> Iterator[Session]:
    """Yield the session of a cluster to a job, and add an event with Spark's UI, or one if the cluster is slow."""
    if image and not find_cluster(services.settings, name).has_containers:
        lease.add_event("image_unused", {"image": image, "reason": "only executors on Kubernetes have an image"})
    delay = min(_WAITING_SECONDS, services.settings.spark_start_timeout_seconds / 2)
    waiting = threading.Timer(
        delay, lease.add_event, ("waiting", {"cluster": name, "reason": "it does not answer yet"})
    )
    waiting.daemon = True
    waiting.start()
    try:
        with services.sessions.use(name, image, lease.check) as session:
            waiting.cancel()
            try:
                if session.ui is not None:
                    lease.add_event("session", {"spark_ui": session.ui})
                yield session
            except Exception as error:
                loss = session.find_loss() if _is_connection_error(error) else None
                if loss is None:
                    raise
                raise loss from error
    finally:
        waiting.cancel()


def _is_connection_error(error: Exception) -> bool:
    """Return whether an error may mean that PySpark lost its connection to Java."""
    kind = error.kind if isinstance(error, TaskError) else type(error).__name__
    return kind.startswith(("Py4J", "Connection", "BrokenPipe"))


@contextmanager
def prepare_environment(
    session: Session, manifest: str | None, settings: Settings, lease: Lease
) -> Iterator[tuple[Session, DeployedEnvironment]]:
    """Build and deploy the environment of a manifest; yield the session to run tasks in, and the environment.

    The Python workers of these tasks serve no other namespace and no other principal.
    """
    environment = Environment.parse(manifest or "{}", configured_indexes=settings.package_indexes)
    cache = EnvironmentCache(settings.environments, settings.environment_cache_bytes)
    tenant = tenant_of(lease.job.home, lease.job.submitted_by)
    with deployed(session, environment, cache, lease.check, tenant) as found:
        yield found


def tenant_of(namespace: Identifier, principal: str) -> str:
    """Return the name of the tenant that Python workers belong to: a namespace and a principal."""
    return hashlib.sha256(json.dumps([namespace, principal]).encode()).hexdigest()[:32]


def task_count(session: Session, requested: int | None) -> int:
    """Return the number of tasks to divide work into."""
    if requested:
        return int(requested)
    if session.cluster.is_remote:
        return _CONNECT_TASKS
    cores = int(session.spark.sparkContext.defaultParallelism)
    # The hosts of a cluster differ in speed; with more tasks than cores, faster hosts run more of them.
    return cores if session.cluster.is_local else _TASKS_PER_CORE * cores


def wait(run: TaskRun[Any] | TaskRuns[Any], lease: Lease, poll: Callable[[], None], stop: Callable[[], None]) -> None:
    """Wait until tasks have ended, and poll their progress; stop and cancel them when the job must stop or fails."""
    try:
        pause, report_at = _FIRST_POLL_SECONDS, time.monotonic() + _WAITING_SECONDS
        while not run.wait(pause):
            lease.check()
            poll()
            if time.monotonic() > report_at:
                report_at = math.inf
                if not run.has_started():
                    lease.add_event("waiting", {"cluster": run.cluster, "reason": "no executor has started a task yet"})
            pause = min(pause * _POLL_GROWTH, _LONGEST_POLL_SECONDS)
    except BaseException:
        stop()
        run.cancel()
        raise
