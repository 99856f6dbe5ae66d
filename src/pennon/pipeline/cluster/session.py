"""Sessions of Spark: opened once per cluster, kept warm, and opened again when they died."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import tempfile
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pennon.core.settings import Settings
from pennon.pipeline.cancellation import Check, always, attend, taken
from pennon.pipeline.cluster.clusters import Cluster, find_cluster
from pennon.pipeline.cluster.java import find_java
from pennon.pipeline.cluster.jvm import Jvm, JvmError
from pennon.spark.session import accept_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).with_name("log4j2.properties")
_CONF = {
    "spark.app.name": "pennon",
    "spark.driver.memory": "1g",
    # Python workers live long: what they do not need any more goes back, also after rows of many megabytes.
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(32 * 1024 * 1024),
    "spark.python.unix.domain.socket.enabled": "true",  # TCP costs twice as much for each task
    "spark.python.worker.reuse": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",  # tasks write files: a second attempt beside the first would write them twice
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "pennon-spark-warehouse")),
    "spark.task.reaper.enabled": "true",  # a cancelled task that goes on is ended
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DRIVER = "a driver in this process"
#: Between two attempts to reach a Connect server.
_RETRY_MILLIS = 1000
_ANY_CONF = "spark.sql.session.timeZone"
#: Spark ends Python workers that idle for a minute, but never the daemons that fork them, one for each tenant. A
#: session that more tenants than this have used is opened again once no job uses it.
_MOST_TENANTS = 64
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class ClusterBusyError(Exception):
    """Jobs run on another cluster, and one process drives one; another worker, or the same later, can do it."""


class ClusterUnavailableError(Exception):
    """Spark could not be started or reached; the message says which, and why."""


class SparkLostError(Exception):
    """The Java process of Spark ended while a job used it; the message says how."""


class Session:
    """A session of Spark on a cluster."""

    def __init__(self, cluster: Cluster, spark: SparkSession, jvm: Jvm | None = None, seconds: float = 60.0) -> None:
        self.cluster = cluster
        self.spark = spark
        self._seconds = seconds  # that a Connect server has to answer
        self._jvm = jvm
        #: Archives that Spark unpacks for the tasks of this session.
        self.archives: set[str] = set()
        #: What is not to be removed before the session is closed.
        self.borrowed = ExitStack()
        #: What tasks of this session have asked Spark for, by the requests.
        self.profiles: dict[tuple[tuple[str, float], ...], Any] = {}
        #: Functions that were tried on its executors, with the checksums of their environments.
        self.tried: set[tuple[str, str | None]] = set()
        #: Those whose functions ran in it.
        self.tenants: set[str] = set()
        self._lock = threading.Lock()
        self._apart: dict[str, Session] = {}

    def is_alive(self, check: Check = always) -> bool:
        """Return whether Spark still answers; a Connect server that was started anew does not know the session."""
        if self._jvm is not None:
            context: Any = self.spark.sparkContext
            with suppress(Exception):  # of one that dies this very moment
                return self._jvm.alive and not context._jsc.sc().isStopped()  # noqa: SLF001 (nothing public tells)
            return False
        return attend(lambda: self.spark.conf.get(_ANY_CONF), check, seconds=self._seconds).exception() is None

    def find_loss(self) -> SparkLostError | None:
        """Return that the driver's process ended, if it did; a Connect server tells about itself."""
        end = None if self._jvm is None else self._jvm.find_end()
        if end is None:
            return None
        return SparkLostError(f"Spark's Java process ended {end}; see the worker's log, and the memory of its host.")

    @property
    def ui(self) -> str | None:
        """Where a browser finds Spark's own pages; none where they are off, or a Connect server has them."""
        return None if self._jvm is None else self.spark.sparkContext.uiWebUrl

    @contextmanager
    def preparing(self, check: Check = always) -> Iterator[None]:
        """Keep other threads from preparing the session at the same time."""
        with taken(self._lock, check):
            yield

    def apart(self, key: str, check: Check = always) -> Session:
        """Return a session of the same Connect server that shares nothing with this one, nor its Python workers.

        There is one for each key.
        """
        if key not in self._apart:
            spark: Any = self.spark
            self._apart[key] = _greet(self.cluster, spark.newSession(), self._seconds, check)
        return self._apart[key]

    def close(self, *, lost: bool = False) -> None:
        """Let go of Spark; a driver of our own ends. A Connect server that is lost is told nothing: that takes long."""
        while self._apart:
            self._apart.popitem()[1].close(lost=lost)
        self.borrowed.close()
        if self._jvm is None:
            spark: Any = self.spark
            spark.release_session_on_close = not lost
            spark.stop()
            return
        if self._jvm.alive:
            with suppress(Exception):  # whatever it says to being stopped, its process is ended
                self.spark.stop()
        self._jvm.close()
        _forget_driver()


def open_session(cluster: Cluster, seconds: float = 60.0, check: Check = always) -> Session:
    """Open a session on a cluster, through Spark Connect or with a driver of our own, if it answers in time."""
    accept_pandas()
    return _connect(cluster, seconds, check) if cluster.is_remote else _drive(cluster, seconds, check)


class Sessions:
    """One warm session per cluster, for all threads of a process.

    A process can drive one Spark of its own, so a cluster in use keeps other drivers out; an idle one makes room.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        # Held while a session is opened: one for all drivers, and one for each server, which may be out of reach.
        self._opening: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[str, Session] = {}
        self._users: Counter[str] = Counter()

    @contextmanager
    def use(self, name: str | None = None, image: str | None = None, check: Check = always) -> Iterator[Session]:
        """Lend the session of a cluster, opening it if need be, for as long as the check lets it.

        Where executors are containers, they are of the image.
        """
        cluster = find_cluster(self._settings, name, image)
        with self._lock:
            opening = self._opening[cluster.name if cluster.is_remote else _DRIVER]
        with taken(opening, check):
            session = self._ready(cluster, check)
            self._count(cluster, 1)
        try:
            yield session
        finally:
            self._count(cluster, -1)

    def close(self) -> None:
        """Close all sessions."""
        while self._open:
            self._open.popitem()[1].close()

    def _count(self, cluster: Cluster, change: int) -> None:
        with self._lock:
            self._users[cluster.name] += change

    def _ready(self, cluster: Cluster, check: Check) -> Session:
        session = self._open.get(cluster.name)
        if session is not None:
            alive, idle = session.is_alive(check), not self._users[cluster.name]
            if alive and not (idle and len(session.tenants) > _MOST_TENANTS):
                return session
            self._open.pop(cluster.name).close(lost=not alive)
        if not cluster.is_remote:
            self._make_room(cluster)
        opened = self._open[cluster.name] = open_session(cluster, self._settings.cluster_seconds, check)
        return opened

    def _make_room(self, cluster: Cluster) -> None:
        """Close the driver of another cluster, unless jobs run on it."""
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
    """Return what a driver of a cluster is started with; the settings have the last word."""
    conf = _CONF | (_LOOPBACK if cluster.is_local else {}) | cluster.conf | {"spark.master": cluster.address}
    options = f"-Dlog4j2.configurationFile={shlex.quote(_LOGGING.as_uri())} {conf.get(_JAVA_OPTIONS, '')}"
    return conf | {_JAVA_OPTIONS: options.strip()}


def _connect(cluster: Cluster, seconds: float, check: Check) -> Session:
    from pyspark.sql.connect.session import SparkSession

    return _greet(cluster, SparkSession.builder.remote(cluster.address).create(), seconds, check)


def _greet(cluster: Cluster, spark: Any, seconds: float, check: Check) -> Session:
    """Tell a Connect server, if it answers in time, what a new session of it is to be like."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the error that follows says more
    attempts = math.ceil(seconds * 1000 / _RETRY_MILLIS) - 1  # the last one ends in time
    steady = DefaultPolicy(max_retries=attempts, initial_backoff=_RETRY_MILLIS, backoff_multiplier=1.0)
    spark.client.set_retry_policies([steady])

    def configure() -> None:
        for name, value in cluster.conf.items():
            spark.conf.set(name, value)
        spark.conf.get(_ANY_CONF)  # without conf, nothing was said to the server so far

    outcome = attend(configure, check, spark.client.close, seconds)
    try:
        outcome.result()
    except Exception as error:
        spark.client.close()
        raise _unavailable(cluster, error) from error
    return Session(cluster, spark, seconds=seconds)


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
        with jvm.offered():
            # In a thread of its own, PySpark also leaves alone what a Ctrl-C does.
            outcome = attend(SparkContext, check, jvm.kill, seconds)
        try:
            context = outcome.result()
            context.pythonExec = _python(cluster)
            opened = Session(cluster, SparkSession(context), jvm)
        except Exception as error:  # noqa: BLE001 (it is raised again, in words)
            raise _unavailable(cluster, error) from None  # asked of Java, so before it ends
        failing.pop_all()
        return opened


def _unavailable(cluster: Cluster, error: Exception) -> ClusterUnavailableError:
    """Say why a cluster cannot be used; Java and gRPC say it somewhere in pages."""
    text = str(error)
    told = re.search(r'details = "(.*)"', text) or re.search(r"^: (.*)$", text, re.MULTILINE)
    reason = told[1] if told else text.strip().partition("\n")[0]
    # A Connect address may hold a token.
    named = repr(cluster.name) if cluster.is_remote else f"{cluster.name!r} ({cluster.address})"
    return ClusterUnavailableError(f"The cluster {named} cannot be used: {reason or type(error).__name__}")


def _python(cluster: Cluster) -> str:
    """Return which Python runs the tasks: where they run on this machine, this one."""
    if cluster.is_local:
        return sys.executable
    return cluster.conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or "python3"


def _forget_driver() -> None:
    """Make PySpark forget a driver that ended; left alone it would talk to it for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway  # noqa: SLF001 (PySpark has no public way)
    if gateway is not None:
        with suppress(Exception):  # there may be nobody left at the other end
            gateway.shutdown()
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        setattr(SparkContext, name, None)
    for name in ("_instantiatedSession", "_activeSession"):
        setattr(SparkSession, name, None)
