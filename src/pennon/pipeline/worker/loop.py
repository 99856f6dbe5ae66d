"""The worker: takes jobs from the queue and carries them out, several at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError, ServiceUnavailableError

from pennon.catalog.jobs import CANCELLED, DONE, FAILED, TIMED_OUT, Job
from pennon.functions.environment_manifest import ManifestError
from pennon.jobs.control import CANCEL, PAUSE
from pennon.jobs.queue import LeaseLostError, StopRequestedError, timed_out
from pennon.pipeline.backfill.job import Backfill
from pennon.pipeline.backfill.plan_run import JobFailedError
from pennon.pipeline.cluster.clusters import UnknownClusterError
from pennon.pipeline.cluster.java import JavaNotFoundError
from pennon.pipeline.cluster.prestart import warm_up
from pennon.pipeline.cluster.resources import ResourcesUnavailableError
from pennon.pipeline.cluster.session import ClusterBusyError, ClusterUnavailableError, SparkLostError
from pennon.pipeline.cluster.tasks import TaskError
from pennon.pipeline.environments.environment import BuildError
from pennon.pipeline.refresh.job import Refresh
from pennon.pipeline.worker.lease import Lease, ShuttingDownError

if TYPE_CHECKING:
    from pennon.jobs.worker_registry import WorkerRegistry
    from pennon.pipeline.worker.worker_services import WorkerServices

logger = logging.getLogger("pennon.worker")

_TRIGGER_SECONDS = 1.0
_BUSY_SECONDS = 5.0
#: Between two looks at a catalog that is out of order.
_AWAY_SECONDS = 1.0
#: By what the wait of a worker without work grows, and up to how many times the setting.
_SLOWER, _LONGEST = 1.05, 10
#: How often it looks meanwhile whether anything was written, where the catalog tells that for next to nothing.
_GLANCE_SECONDS = 0.005
#: Errors of executors, or of a driver of Spark that died, after which trying again may help.
_PASSING = frozenset(
    {
        "PythonWorkerDied",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "BrokenPipeError",
        "Py4JNetworkError",
        "Py4JError",
        "TimeoutError",
        "ServiceUnavailableError",
    }
)


class Runner(Protocol):
    """Carries out one job."""

    phase: str

    def run(self) -> dict[str, Any]:
        """Carry it out and return its result."""


RUNNERS: dict[str, Callable[[WorkerServices, Lease], Runner]] = {"backfill": Backfill, "refresh": Refresh}


def _next_pause(pause: float, shortest: float) -> float:
    """Return how long a worker without work waits: longer each time, so that one that idles for long asks seldom."""
    return min(max(pause * _SLOWER, shortest), shortest * _LONGEST)


class Worker:
    """A process that carries out jobs."""

    def __init__(
        self,
        services: WorkerServices,
        worker_registry: WorkerRegistry,
        triggers: Callable[[], None],
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._services = services
        self._may_write = may_write
        self._worker_registry = worker_registry
        self._triggers = triggers
        self.stopping = threading.Event()
        self._busy = 0
        self._lock = threading.Lock()

    def run(self) -> None:
        """Work until told to stop; a job under way is then left for another worker."""
        settings = self._services.settings
        slots = settings.worker_slots
        me = self._worker_registry.register(slots)
        for name, chore, seconds in (
            ("heartbeat", lambda: self._worker_registry.heartbeat(me, self._busy), settings.job_lease_seconds),
            ("triggers", self._triggers, _TRIGGER_SECONDS),
        ):
            repeat = partial(self._repeat, name, chore, seconds)
            threading.Thread(target=repeat, name=f"pennon-worker-{name}", daemon=True).start()
        if settings.worker_warm:
            self._warm()
        with ThreadPoolExecutor(slots, thread_name_prefix="pennon-job") as threads:
            pause = 0.0
            while not self.stopping.is_set():
                change_token = self._services.database.change_token()
                taken = self._take(me.id, slots, threads)
                pause = 0.0 if taken else _next_pause(pause, settings.worker_poll_seconds)
                self._rest(pause, change_token)
        self._worker_registry.leave(me)
        self._services.sessions.close()

    def _warm(self) -> None:
        """Start Spark before there is a job for it, unless the worker is told to stop."""
        try:
            with self._services.sessions.use(check=self._check) as session:
                warm_up(session, lambda: self.stopping.is_set() or self._services.queue.has_work())
                logger.info("Spark is warm")
        except ShuttingDownError:
            return
        except (ClusterUnavailableError, JavaNotFoundError, TaskError) as error:
            logger.warning("Spark is not warm, and is started with the first job: %s", error)

    def _check(self) -> None:
        if self.stopping.is_set():
            raise ShuttingDownError

    def _rest(self, seconds: float, change_token: Hashable) -> None:
        """Wait for as long, or until something was written to the catalog since its stamp was taken."""
        database, end = self._services.database, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and database.change_token() == change_token:
            if self.stopping.wait(left if change_token is None else min(left, _GLANCE_SECONDS)):
                break

    def _take(self, worker: str, slots: int, threads: ThreadPoolExecutor) -> bool:
        """Start the next job if there is one and a slot for it."""
        if self._busy >= slots or not self._may_write():
            return False
        try:
            job = self._services.queue.claim(worker, self._services.settings.job_lease_seconds)
        except Exception:
            logger.exception("the worker cannot look for jobs; that is tried again")
            self.stopping.wait(_AWAY_SECONDS)
            return False
        if job is None:
            return False
        with self._lock:
            self._busy += 1
        threads.submit(self._work, job)
        return True

    def _work(self, job: Job) -> None:
        try:
            self.carry_out(job)
        except Exception:
            logger.exception("job %s could not be ended; its lease will run out", job.id)
        finally:
            with self._lock:
                self._busy -= 1

    def carry_out(self, job: Job) -> None:
        """Carry out a job that was claimed, and say how it ended."""
        queue, lease = (
            self._services.queue,
            Lease(self._services.queue, job, self._services.settings.job_lease_seconds, self.stopping),
        )
        with lease.held():
            runner = RUNNERS[job.kind](self._services, lease)
            try:
                result = runner.run()
                queue.finish(job, DONE, counters=lease.counters, result=result)
                logger.info("job %s is done: %s", job.id, result)
            except LeaseLostError:
                logger.warning("job %s is not this worker's any more", job.id)
            except ShuttingDownError:
                queue.release(job, "pending", lease.counters)
            except ClusterBusyError as busy:
                logger.info("job %s waits: %s", job.id, busy)
                self.stopping.wait(_BUSY_SECONDS)  # with the lease in hand, or it would be claimed again at once
                queue.release(job, "pending", lease.counters)
            except StopRequestedError as stop:
                self._stop(job, lease, stop.wish)
            except SparkLostError as loss:
                logger.warning("job %s lost its Spark: %s", job.id, loss)
                queue.hand_over(job, failure_of(loss, runner.phase), lease.counters)
            except Exception as error:
                failure = failure_of(error, runner.phase)
                logger.warning("job %s failed: %s", job.id, failure, exc_info=not is_expected(error))
                queue.finish(job, FAILED, counters=lease.counters, failure=failure)

    def _stop(self, job: Job, lease: Lease, wish: str) -> None:
        queue = self._services.queue
        if wish == PAUSE:
            queue.release(job, "paused", lease.counters)
        elif wish == CANCEL:
            queue.finish(job, CANCELLED, counters=lease.counters)
        else:
            queue.finish(job, TIMED_OUT, counters=lease.counters, failure=timed_out(job))

    def _repeat(self, name: str, chore: Callable[[], None], seconds: float) -> None:
        while not self.stopping.wait(seconds):
            try:
                chore()
            except Exception:
                logger.exception("the worker's %s failed; it is tried again", name)


def failure_of(error: Exception, phase: str) -> dict[str, Any]:
    """Return what went wrong as a job tells it."""
    if isinstance(error, JobFailedError):
        return error.failure
    if isinstance(error, TaskError):
        kind, message, retryable = error.kind, error.message, error.kind in _PASSING
    else:
        kind, message = type(error).__name__, str(error) or type(error).__name__
        passing = (ConcurrentModificationError, ServiceUnavailableError, ClusterUnavailableError, SparkLostError)
        retryable = isinstance(error, passing) or kind in _PASSING
    return {"phase": phase, "type": kind, "message": message, "retryable": retryable}


def is_expected(error: Exception) -> bool:
    """Tell whether an error is about the job, not about Pennon."""
    known = (JobFailedError, TaskError, LanceNamespaceError, ManifestError, BuildError, ResourcesUnavailableError)
    return isinstance(error, (*known, ClusterUnavailableError, UnknownClusterError, JavaNotFoundError))
