"""The loop of a worker: claims jobs from the queue and runs them, several at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError, ServiceUnavailableError

from pennon.catalog.jobs import Job
from pennon.core.job_model import MAINTENANCE, Failure, JobKind, JobResult, JobState, StopRequest
from pennon.functions.environment_manifest import ManifestError
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.jobs.queue import timeout_failure
from pennon.pipeline.backfill.job import Backfill
from pennon.pipeline.cluster.clusters import UnknownClusterError
from pennon.pipeline.cluster.java import JavaNotFoundError
from pennon.pipeline.cluster.prestart import warm_up
from pennon.pipeline.cluster.resources import ResourcesUnavailableError
from pennon.pipeline.cluster.session import ClusterBusyError, ClusterUnavailableError, SparkLostError
from pennon.pipeline.cluster.tasks import TaskError
from pennon.pipeline.environments.environment import BuildError
from pennon.pipeline.job_failure import JobAbortedError
from pennon.pipeline.maintenance.job import Maintenance
from pennon.pipeline.maintenance.table_work import YieldedError
from pennon.pipeline.refresh.job import Refresh
from pennon.pipeline.worker.lease import Lease, ShuttingDownError

if TYPE_CHECKING:
    from pennon.jobs.worker_registry import WorkerRegistry
    from pennon.pipeline.worker.worker_services import WorkerServices

logger = logging.getLogger("pennon.worker")

# Intervals; none was measured.
_TRIGGER_SECONDS = 1.0
_IDLE_SPARK_SECONDS = 10.0
#: How long a job stays claimed when its cluster cannot be opened beside another.
_BUSY_SECONDS = 5.0
#: The pause after the catalog could not be read.
_CATALOG_RETRY_SECONDS = 1.0
#: The pause of an idle worker grows by this factor, up to this many times the setting.
_PAUSE_GROWTH, _LONGEST_PAUSE = 1.05, 10
#: How often an idle worker checks for writes to the catalog, where that is cheap: every 5 ms at first, then after a
#: hundredth of the time since its last job, so that checks do not keep a core busy. A job after a long idle time may
#: start this much later.
_MIN_CHECK_SECONDS, _MAX_CHECK_SECONDS, _CHECK_SHARE = 0.005, 0.1, 0.01
#: Errors of executors, or of a Spark driver that died, after which a retry may succeed.
_TRANSIENT_ERRORS = frozenset(
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
    """Runs one job."""

    phase: str

    def run(self) -> JobResult:
        """Run the job and return its result."""


RUNNERS: dict[JobKind, Callable[[WorkerServices, Lease], Runner]] = {
    JobKind.BACKFILL: Backfill,
    JobKind.REFRESH: Refresh,
    JobKind.COMPACT: Maintenance,
    JobKind.OPTIMIZE_INDICES: Maintenance,
    JobKind.CLEANUP: Maintenance,
    JobKind.MAINTAIN: Maintenance,
}


def _next_pause(pause: float, shortest: float) -> float:
    """Return how long an idle worker waits: longer each time, so that it polls less often."""
    return min(max(pause * _PAUSE_GROWTH, shortest), shortest * _LONGEST_PAUSE)


def check_interval(idle_seconds: float) -> float:
    """Return how often a worker checks the catalog after this time without a job."""
    return min(max(_CHECK_SHARE * idle_seconds, _MIN_CHECK_SECONDS), _MAX_CHECK_SECONDS)


class Worker:
    """Claims jobs and runs them in threads."""

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
        #: The number of running jobs of users, and of maintenance.
        self._busy, self._maintaining = 0, 0
        self._last_claim = time.monotonic()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run jobs until the worker must stop; another worker continues those that run then."""
        settings = self._services.settings
        slots = settings.worker_slots
        me = self._worker_registry.register(slots)
        for name, action, seconds in (
            ("heartbeat", lambda: self._worker_registry.heartbeat(me, self._busy), settings.job_lease_seconds),
            ("triggers", self._triggers, _TRIGGER_SECONDS),
            ("idle-spark", self._close_idle_spark, _IDLE_SPARK_SECONDS),
        ):
            repeat = partial(self._repeat, name, action, seconds)
            threading.Thread(target=repeat, name=f"pennon-worker-{name}", daemon=True).start()
        if settings.spark_prestart:
            self._prestart()
        with ThreadPoolExecutor(slots + settings.maintenance_slots, thread_name_prefix="pennon-job") as threads:
            pause = 0.0
            while not self.stopping.is_set():
                change_token = self._services.database.change_token()
                claimed = self._claim(me.id, threads)
                pause = 0.0 if claimed else _next_pause(pause, settings.worker_poll_interval_seconds)
                self._pause(pause, change_token)
        self._worker_registry.deregister(me)
        self._services.sessions.close()

    def _prestart(self) -> None:
        """Start Spark before there is a job for it, unless the worker must stop."""
        try:
            with self._services.sessions.use(check=self._check) as session:
                warm_up(session, lambda: self.stopping.is_set() or self._services.queue.has_work(maintenance=False))
                logger.info("Spark has started")
        except ShuttingDownError:
            return
        except (ClusterUnavailableError, JavaNotFoundError, TaskError) as error:
            logger.warning("Spark did not start; the first job will start it: %s", error)

    def _close_idle_spark(self) -> None:
        seconds = self._services.settings.spark_idle_timeout_seconds
        if seconds:
            self._services.sessions.close_idle(seconds)

    def _check(self) -> None:
        if self.stopping.is_set():
            raise ShuttingDownError

    def _pause(self, seconds: float, change_token: Hashable) -> None:
        """Wait, at most until something is written to the catalog after the change token was read."""
        database, end = self._services.database, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and database.change_token() == change_token:
            interval = check_interval(time.monotonic() - self._last_claim)
            if self.stopping.wait(left if change_token is None else min(left, interval)):
                break

    def _claim(self, worker: str, threads: ThreadPoolExecutor) -> bool:
        """Claim the next job and start it, if a slot is free; return whether there was one."""
        settings = self._services.settings
        users, maintenance = self._busy < settings.worker_slots, self._maintaining < settings.maintenance_slots
        if not (users or maintenance) or not self._may_write():
            return False
        try:
            job = self._services.queue.claim(worker, settings.job_lease_seconds, users=users, maintenance=maintenance)
        except Exception:
            logger.exception("could not claim a job; retrying")
            self.stopping.wait(_CATALOG_RETRY_SECONDS)
            return False
        if job is None:
            return False
        self._last_claim = time.monotonic()
        self._count(job, 1)
        threads.submit(self._work, job)
        return True

    def _work(self, job: Job) -> None:
        try:
            self.run_job(job)
        except Exception:
            logger.exception("could not record the end of job %s; its lease will expire", job.id)
        finally:
            self._count(job, -1)

    def _count(self, job: Job, change: int) -> None:
        with self._lock:
            if job.kind in MAINTENANCE:
                self._maintaining += change
            else:
                self._busy += change

    def run_job(self, job: Job) -> None:
        """Run a claimed job, and record how it ended."""
        queue = self._services.queue
        lease = Lease(queue, job, self._services.settings.job_lease_seconds, self.stopping)
        with lease.heartbeats():
            runner = RUNNERS[job.kind](self._services, lease)
            try:
                result = runner.run()
                queue.finish(job, JobState.DONE, counters=lease.counters, result=result)
                logger.info("job %s is done: %s", job.id, result)
            except LeaseLostError:
                logger.warning("the lease on job %s was lost", job.id)
            except (ShuttingDownError, YieldedError):
                queue.release(job, lease.counters)
            except ClusterBusyError as busy:
                logger.info("job %s waits: %s", job.id, busy)
                self.stopping.wait(_BUSY_SECONDS)  # before the release, because it would be claimed again at once
                queue.release(job, lease.counters)
            except StopRequestedError as stop:
                self._stop(job, lease, stop.stop_request)
            except SparkLostError as loss:
                logger.warning("job %s lost Spark: %s", job.id, loss)
                queue.requeue(job, failure_of(loss, runner.phase), lease.counters)
            except Exception as error:
                failure = failure_of(error, runner.phase)
                logger.warning("job %s failed: %s", job.id, failure, exc_info=not is_expected(error))
                queue.finish(job, JobState.FAILED, counters=lease.counters, failure=failure)

    def _stop(self, job: Job, lease: Lease, request: StopRequest) -> None:
        queue = self._services.queue
        if request == StopRequest.PAUSE:
            queue.release(job, lease.counters, paused=True)
        elif request == StopRequest.CANCEL:
            queue.finish(job, JobState.CANCELLED, counters=lease.counters)
        else:
            queue.finish(job, JobState.TIMED_OUT, counters=lease.counters, failure=timeout_failure(job))

    def _repeat(self, name: str, action: Callable[[], None], seconds: float) -> None:
        while not self.stopping.wait(seconds):
            try:
                action()
            except Exception:
                logger.exception("the worker's %s failed; retrying", name)


def failure_of(error: Exception, phase: str) -> Failure:
    """Return the failure to record for an error."""
    if isinstance(error, JobAbortedError):
        return error.failure
    if isinstance(error, TaskError):
        kind, message, retryable = error.kind, error.message, error.kind in _TRANSIENT_ERRORS
    else:
        kind, message = type(error).__name__, str(error) or type(error).__name__
        transient = (ConcurrentModificationError, ServiceUnavailableError, ClusterUnavailableError, SparkLostError)
        retryable = isinstance(error, transient) or kind in _TRANSIENT_ERRORS
    return Failure(phase=phase, type=kind, message=message, retryable=retryable)


def is_expected(error: Exception) -> bool:
    """Return whether an error is about the job, not about Pennon."""
    known = (JobAbortedError, TaskError, LanceNamespaceError, ManifestError, BuildError, ResourcesUnavailableError)
    return isinstance(error, (*known, ClusterUnavailableError, UnknownClusterError, JavaNotFoundError))
