"""Spark sessions: opened once per cluster, kept open, and opened again after they died."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pennon.core.settings import Settings
from pennon.pipeline.cancellation import Check, acquire, never, run_cancellable
from pennon.pipeline.cluster.clusters import Cluster, find_cluster
from pennon.pipeline.cluster.java import find_java
from pennon.pipeline.cluster.jvm import Jvm, JvmError
from pennon.spark.session import accept_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from pennon.pipeline.cluster.resources import AnyProfile

_LOGGING = Path(__file__).with_name("log4j2.properties")
_CONF = {
    "spark.app.name": "pennon",
    "spark.driver.memory": "1g",
    # Python workers live long, so they return freed memory to the system, even after rows of many megabytes.
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(32 * 1024 * 1024),
    "spark.python.unix.domain.socket.enabled": "true",  # TCP takes twice as long for each task
    "spark.python.worker.reuse": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",  # a second attempt beside the first would write the files of a task twice
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "pennon-spark-warehouse")),
    "spark.task.reaper.enabled": "true",  # kills a cancelled task that goes on
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DRIVER = "a driver in this process"
#: The time between two attempts to reach a Connect server.
_RETRY_MILLIS = 1000
_ANY_CONF = "spark.sql.session.timeZone"
#: Spark ends idle Python workers after a minute, but never the daemons that fork them, one for each tenant. A session
#: that more tenants than this have used is opened again once no job uses it. Not measured.
_MOST_TENANTS = 64
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class ClusterBusyError(Exception):
    """This process drives another cluster, on which jobs run; another worker can run the job, or this one later."""


class ClusterUnavailableError(Exception):
    """Spark could not be started or reached; the message says why."""


class SparkLostError(Exception):
    """Spark's Java process ended while a job used it; the message says how."""


class Session:
    """A Spark session on a cluster."""

    def __init__(self, cluster: Cluster, spark: SparkSession, jvm: Jvm | None = None, seconds: float = 60.0) -> None:
        self.cluster = cluster
        self.spark = spark
        self._timeout = seconds  # of a Connect server's answers
        self._jvm = jvm
        #: The archives that Spark unpacks for the tasks of this session.
        self.archives: set[str] = set()
        #: Holds what must not be removed before the session is closed.
        self.held = ExitStack()
        #: Resource profiles, by their requests.
        self.profiles: dict[tuple[tuple[str, float], ...], AnyProfile] = {}
        #: Functions that passed a preflight in this session, with the checksums of their environments.
        self.tested: set[tuple[str, str | None]] = set()
        #: The tenants whose functions ran in this session.
        self.tenants: set[str] = set()
        self._lock = threading.Lock()
        self._isolated: dict[str, Session] = {}

    def is_alive(self, check: Check = never) -> bool:
        """Return whether Spark still answers; a restarted Connect server does not know the session."""
        if self._jvm is not None:
            context: Any = self.spark.sparkContext
            with suppress(Exception):  # it may die at this moment
                return self._jvm.is_alive and not context._jsc.sc().isStopped()  # noqa: SLF001 (nothing public says so)
            return False
        return run_cancellable(lambda: self.spark.conf.get(_ANY_CONF), check, seconds=self._timeout).exception() is None

    def find_loss(self) -> SparkLostError | None:
        """Return the error if the driver's process has ended; None for a Connect server, whose errors say so."""
        exit_text = None if self._jvm is None else self._jvm.describe_exit()
        if exit_text is None:
            return None
        return SparkLostError(
            f"Spark's Java process ended {exit_text}; see the worker's log, and the memory of its host."
        )

    @property
    def ui(self) -> str | None:
        """The address of Spark's web UI; None if it is off, or belongs to a Connect server."""
        return None if self._jvm is None else self.spark.sparkContext.uiWebUrl

    @contextmanager
    def preparing(self, check: Check = never) -> Iterator[None]:
        """Hold the lock under which threads change the session."""
        with acquire(self._lock, check):
            yield

    def isolated(self, key: str, check: Check = never) -> Session:
        """Return the session of a key on the same Connect server; it shares no state and no Python workers."""
        if key not in self._isolated:
            spark = cast("ConnectSession", self.spark)
            self._isolated[key] = _configure(self.cluster, spark.newSession(), self._timeout, check)
        return self._isolated[key]

    def close(self, *, lost: bool = False) -> None:
        """Close the session and end a driver in this process; a lost Connect server is not contacted, to save time."""
        while self._isolated:
            self._isolated.popitem()[1].close(lost=lost)
        self.held.close()
        if self._jvm is None:
            spark = cast("ConnectSession", self.spark)
            spark.release_session_on_close = not lost
            spark.stop()
            return
        if self._jvm.is_alive:
            with suppress(Exception):  # its process is ended in any case
                self.spark.stop()
        self._jvm.close()
        _forget_driver()


def open_session(cluster: Cluster, seconds: float = 60.0, check: Check = never) -> Session:
    """Open a session on a cluster, through Spark Connect or with a driver in this process; raise after the timeout."""
    accept_pandas()
    return _connect(cluster, seconds, check) if cluster.is_remote else _drive(cluster, seconds, check)


class Sessions:
    """One open session per cluster, for all threads of a process.

    A process can have one driver, so a cluster in use keeps other drivers out; an idle one is closed for them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        # Held while a session is opened: one lock for all drivers, and one for each Connect server.
        self._opening: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[str, Session] = {}
        self._users: Counter[str] = Counter()
        #: When a job last began or ended to use each session.
        self._used_at: dict[str, float] = {}

    @contextmanager
    def use(self, name: str | None = None, image: str | None = None, check: Check = never) -> Iterator[Session]:
        """Yield the session of a cluster, opened if necessary; the check can cancel that.

        Executors that are containers have the given image.
        """
        cluster = find_cluster(self._settings, name, image)
        with acquire(self._opening_lock(cluster), check):
            session = self._open_or_reuse(cluster, check)
            self._count(cluster, 1)
        try:
            yield session
        finally:
            self._count(cluster, -1)

    def close_idle(self, seconds: float) -> None:
        """Close the sessions that no job has used for a time."""
        for name, session in list(self._open.items()):
            opening = self._opening_lock(session.cluster)
            if not opening.acquire(blocking=False):
                continue  # it is about to be used
            try:
                is_idle = not self._users[name] and time.monotonic() - self._used_at[name] >= seconds
                if is_idle and self._open.get(name) is session:
                    del self._open[name]
                    session.close()
            finally:
                opening.release()

    def close(self) -> None:
        """Close all sessions."""
        while self._open:
            self._open.popitem()[1].close()

    def _opening_lock(self, cluster: Cluster) -> threading.Lock:
        with self._lock:
            return self._opening[cluster.name if cluster.is_remote else _DRIVER]

    def _count(self, cluster: Cluster, change: int) -> None:
        with self._lock:
            self._users[cluster.name] += change
            self._used_at[cluster.name] = time.monotonic()

    def _open_or_reuse(self, cluster: Cluster, check: Check) -> Session:
        session = self._open.get(cluster.name)
        if session is not None:
            is_alive, is_idle = session.is_alive(check), not self._users[cluster.name]
            if is_alive and not (is_idle and len(session.tenants) > _MOST_TENANTS):
                return session
            self._open.pop(cluster.name).close(lost=not is_alive)
        if not cluster.is_remote:
            self._close_idle_driver(cluster)
        opened = self._open[cluster.name] = open_session(cluster, self._settings.spark_start_timeout_seconds, check)
        return opened

    def _close_idle_driver(self, cluster: Cluster) -> None:
        """Close the driver of another cluster; raise ClusterBusyError if jobs run on it."""
        for name, other in list(self._open.items()):
            if other.cluster.is_remote:
                continue
            if self._users[name]:
                raise ClusterBusyError(
                    f"The cluster {cluster.name!r} cannot be opened while jobs run on {name!r}: a process drives one "
                    "cluster at a time. Start another worker, or use Spark Connect addresses."
                )
            self._open.pop(name).close()


def configuration(cluster: Cluster) -> dict[str, str]:
    """Return the configuration of a driver; that of the settings overrides Pennon's defaults."""
    conf = _CONF | (_LOOPBACK if cluster.is_local else {}) | cluster.conf | {"spark.master": cluster.address}
    options = f"-Dlog4j2.configurationFile={shlex.quote(_LOGGING.as_uri())} {conf.get(_JAVA_OPTIONS, '')}"
    return conf | {_JAVA_OPTIONS: options.strip()}


def _connect(cluster: Cluster, seconds: float, check: Check) -> Session:
    from pyspark.sql.connect.session import SparkSession

    return _configure(cluster, SparkSession.builder.remote(cluster.address).create(), seconds, check)


def _configure(cluster: Cluster, spark: ConnectSession, seconds: float, check: Check) -> Session:
    """Configure a new session on a Connect server; raise if the server does not answer in time."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the error that follows is more precise
    attempts = math.ceil(seconds * 1000 / _RETRY_MILLIS) - 1  # the last one ends before the timeout
    policy = DefaultPolicy(max_retries=attempts, initial_backoff=_RETRY_MILLIS, backoff_multiplier=1.0)
    spark.client.set_retry_policies([policy])

    def configure() -> None:
        for name, value in cluster.conf.items():
            spark.conf.set(name, value)
        spark.conf.get(_ANY_CONF)  # contacts the server even if conf is empty

    outcome = run_cancellable(configure, check, spark.client.close, seconds)
    try:
        outcome.result()
    except Exception as error:
        spark.client.close()
        raise _unavailable(cluster, error) from error
    # Connect's session has the methods of the classic one, but is no subclass for the type checker.
    return Session(cluster, cast("SparkSession", spark), seconds=seconds)


def _drive(cluster: Cluster, seconds: float, check: Check) -> Session:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        jvm = Jvm(find_java(), configuration(cluster), check)
    except JvmError as error:
        raise _unavailable(cluster, error) from error
    with ExitStack() as failing:
        failing.callback(_forget_driver)
        failing.callback(jvm.close)
        with jvm.as_gateway():
            # In a thread of its own, PySpark does not install a handler for Ctrl-C.
            outcome = run_cancellable(SparkContext, check, jvm.kill, seconds)
        try:
            context = outcome.result()
            context.pythonExec = _python(cluster)
            opened = Session(cluster, SparkSession(context), jvm)
        except Exception as error:  # noqa: BLE001 (raised again as an error of its own)
            raise _unavailable(cluster, error) from None  # its text comes from Java, which must still run
        failing.pop_all()
        return opened


def _unavailable(cluster: Cluster, error: Exception) -> ClusterUnavailableError:
    """Return the error with the reason alone, from the pages of text that Java and gRPC report."""
    text = str(error)
    found = re.search(r'details = "(.*)"', text) or re.search(r"^: (.*)$", text, re.MULTILINE)
    reason = found[1] if found else text.strip().partition("\n")[0]
    # A Connect address may contain a token.
    named = repr(cluster.name) if cluster.is_remote else f"{cluster.name!r} ({cluster.address})"
    return ClusterUnavailableError(f"The cluster {named} cannot be used: {reason or type(error).__name__}")


def _python(cluster: Cluster) -> str:
    """Return the Python that runs the tasks: on this machine, that of the worker."""
    if cluster.is_local:
        return sys.executable
    return cluster.conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or "python3"


def _forget_driver() -> None:
    """Reset PySpark's references to a driver that ended; otherwise PySpark would keep using it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway  # noqa: SLF001 (PySpark has no public way)
    if gateway is not None:
        with suppress(Exception):  # the other end may be gone
            gateway.shutdown()
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        setattr(SparkContext, name, None)
    for name in ("_instantiatedSession", "_activeSession"):
        setattr(SparkSession, name, None)
