"""Tasks on Spark: numbered, each run by a Python worker of an executor, each answering with a small JSON document.

Spark only transports numbers to the tasks and answers back; tasks read and write tables themselves. Spark retries a
task that raises, up to four attempts in all; a task that must not be retried returns its failure instead (see
``run_signals.run_task``).

This module is imported by executors: nothing heavy is imported at its top, and nothing of Lance before a worker forked.
"""

from __future__ import annotations

import json
import re
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from pennon import __version__
from pennon.pipeline.environments.environment import DeployedEnvironment, activate
from pennon.spark.python_workers import freeze_garbage_collector

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD
    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame

    from pennon.pipeline.cluster.resources import AnyProfile
    from pennon.pipeline.cluster.session import Session

#: What a task returns: anything that JSON can hold.
Answer = TypeVar("Answer")

#: The schema of a data frame that runs tasks.
ANSWERS = "task long, answer string"
#: How often a cancellation is repeated until Spark has ended the tasks. Not measured.
_CANCEL_SECONDS = 0.2
_LONGEST_MESSAGE = 2000
_LONGEST_TRACE = 4000
_MARK = "pennon-task-error:"
_DAEMON = "PENNON_PYTHON_DAEMON"


class TaskError(Exception):
    """A task failed on an executor: the type, the message and the traceback of its error."""

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message
        self.trace = trace


class TasksCancelledError(Exception):
    """The tasks were cancelled."""


class Collectable(Protocol):
    """Runs tasks when it is collected; an RDD or a data frame."""

    def collect(self) -> list[tuple[int, str]]:
        """Return the numbers of the tasks, with their answers as JSON."""


class TaskRun(Generic[Answer]):
    """A run of tasks, in a thread of its own, so that the driver can watch and cancel it."""

    def __init__(self, session: Session, plan: Callable[[], Collectable], group: str, count: int | None = None) -> None:
        self._session = session
        # The name is unique, so that a cancellation reaches no other run of the same group.
        self._name = f"{group}-{uuid.uuid4().hex}"
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self._answers: dict[int, Answer] = {}
        self._error: Exception | None = None
        self._thread = _thread(session, lambda: self._run(plan, count))
        self._thread.start()

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._session.cluster.name

    def has_started(self) -> bool:
        """Return whether a task has started; True for a Connect server, which does not say."""
        if self._session.cluster.is_remote:
            return True
        tracker = self._session.spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return any(stage.numActiveTasks or stage.numCompletedTasks for stage in stages if stage is not None)

    def done(self) -> bool:
        """Return whether all tasks have ended, successfully or not."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all tasks have ended, and return whether they did before the timeout."""
        return self._ended.wait(timeout)

    def cancel(self) -> None:
        """Cancel the tasks and wait until Spark has ended them; a Python worker may go on for some seconds."""
        self._cancelled.set()
        while not self.done():
            with suppress(Exception):  # if Spark has died, so have the tasks
                _interrupt(self._session, self._name)  # repeated, because it does not reach what is submitted later
            self._ended.wait(_CANCEL_SECONDS)

    def results(self) -> list[Answer]:
        """Wait, and return the answers in the order of the tasks; raise the error that ended them."""
        self._ended.wait()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return [self._answers[number] for number in sorted(self._answers)]

    def _run(self, plan: Callable[[], Collectable], count: int | None) -> None:
        try:
            with _named(self._session, self._name):
                answers = self._collect(plan)
            self._answers = {number: json.loads(answer) for number, answer in answers}
            if self._cancelled.is_set() or (count is not None and len(self._answers) != count):
                self._error = TasksCancelledError("The tasks were cancelled.")
        except Exception as error:  # noqa: BLE001 (raised by results())
            is_cancelled = self._cancelled.is_set()
            self._error = TasksCancelledError("The tasks were cancelled.") if is_cancelled else to_task_error(error)
        finally:
            self._ended.set()

    def _collect(self, plan: Callable[[], Collectable]) -> list[tuple[int, str]]:
        for is_retry in (False, True):
            planned = plan()
            if self._cancelled.is_set():
                break
            try:
                return list(planned.collect())
            except Exception as error:
                if is_retry or not _is_daemon_lost(error) or self._session.cluster.is_remote:
                    raise
            _replace_daemon(self._session)
        return []


class TaskRuns(Generic[Answer]):
    """Runs of tasks on a cluster, as one: more of them may be started while others still run."""

    def __init__(self) -> None:
        self._runs: list[TaskRun[Answer]] = []

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._runs[0].cluster

    def add(self, run: TaskRun[Answer]) -> None:
        """Add a run."""
        self._runs.append(run)

    def has_started(self) -> bool:
        """Return whether a task of the first run has started."""
        return self._runs[0].has_started()

    def wait(self, timeout: float) -> bool:
        """Wait until all tasks have ended, and return whether they did before the timeout."""
        until = time.monotonic() + timeout
        return all(run.wait(max(until - time.monotonic(), 0.0)) for run in self._runs)

    def cancel(self) -> None:
        """Cancel all tasks, and wait until Spark has ended them."""
        for run in self._runs:
            run.cancel()

    def results(self) -> list[Answer]:
        """Wait, and return the answers in the order of the tasks; raise the first error that ended them."""
        return [answer for run in self._runs for answer in run.results()]


def run_tasks(
    session: Session,
    task: Callable[[int], Answer],
    count: int,
    *,
    group: str,
    environment: DeployedEnvironment | None = None,
    profile: AnyProfile | None = None,
) -> TaskRun[Answer]:
    """Start tasks 0 to count - 1 on a cluster.

    Args:
        session: The session to run them in.
        task: Called with the number of each task, on an executor.
        count: The number of tasks.
        group: The name of their Spark job group, before a unique suffix.
        environment: What they run in; by default, the environment of the executor.
        profile: The resources of each task.
    """
    return TaskRun(session, lambda: _plan(session, _Partition(task, environment), count, profile), group, count)


def run_frame(session: Session, frame: Callable[[], DataFrame], *, group: str) -> TaskRun[Any]:
    """Run a data frame whose rows are the answers of tasks; Spark decides how many there are."""

    def plan() -> Collectable:
        with _planning:  # otherwise it might get the variables of another job's environment
            return cast("Collectable", frame())

    return TaskRun(session, plan, group)


def to_task_error(error: Exception) -> TaskError:
    """Return the error that a task raised, without the pages of text that Spark adds."""
    text = str(error)
    marked = re.search(re.escape(_MARK) + r"(.*)", text)
    if marked:
        report, _ = json.JSONDecoder().raw_decode(marked[1])
        return TaskError(report["type"], report["message"], report["trace"])
    raised = re.findall(r"^(?!Caused by)([\w.]*(?:Error|Exception|Interrupt|Exit)): (.*)$", text, re.MULTILINE)
    python = [(kind, message) for kind, message in raised if not kind.startswith(("org.", "java.", "py4j."))]
    if "Traceback (most recent call last)" in text and python:
        kind, message = python[-1]
        if kind == "ModuleNotFoundError":  # raised before a task began, so no function imports it
            message += f"; executors need the same packages as workers: pip install 'pennon[spark]=={__version__}'"
        return TaskError(kind.rpartition(".")[2], message, text[-_LONGEST_TRACE:])
    if "Python worker exited unexpectedly" in text or "Python worker failed to connect" in text:
        return TaskError("PythonWorkerDied", "the Python worker of an executor died in every attempt")
    lost = re.search(r"most recent failure: (.*)", text)
    return TaskError(type(error).__name__, (lost[1] if lost else text)[:_LONGEST_MESSAGE], text[:_LONGEST_TRACE])


class _ReportedError(Exception):
    """An error of a task, in a form that Spark passes on unchanged."""


class _Partition(Generic[Answer]):
    """What Spark runs for each partition: the tasks with these numbers."""

    def __init__(self, task: Callable[[int], Answer], environment: DeployedEnvironment | None) -> None:
        self._task = task
        self.environment = environment

    def of_numbers(self, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Run tasks, and return their numbers and answers."""
        for number in numbers:
            yield number, json.dumps(self._answer(number))

    def of_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run tasks whose numbers are in Arrow batches, and return their answers in Arrow batches."""
        import pyarrow as pa

        for batch in batches:
            for number, answer in self.of_numbers(cast("list[int]", batch.column(0).to_pylist())):
                yield pa.RecordBatch.from_pydict({"task": [number], "answer": [answer]})

    def _answer(self, number: int) -> Answer:
        def answer() -> Answer:
            if self.environment is not None:
                activate(self.environment)
            return self._task(number)

        return report_errors(answer)


def report_errors(work: Callable[[], Answer]) -> Answer:
    """Do the work of a task; an error is raised in a form that reaches the driver through Spark."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 (raised again in another form)
        raise _ReportedError(_MARK + _report(error)) from None
    finally:
        freeze_garbage_collector()


def _report(error: Exception) -> str:
    """Return an error as one line of JSON."""
    trace = "".join(traceback.format_exception(error))
    message = str(error)[:_LONGEST_MESSAGE]
    return json.dumps({"type": type(error).__name__, "message": message, "trace": trace[-_LONGEST_TRACE:]})


def _is_daemon_lost(error: Exception) -> bool:
    """Return whether Spark has lost the daemon that forks Python workers, and does not start another.

    This happens when the daemon dies as it starts while the task that waits for it is cancelled (Spark 4.3).
    """
    text = str(error)
    return "NullPointerException" in text and "PythonWorkerFactory.createWorker" in text


def _replace_daemon(session: Session) -> None:
    """Make Spark start another daemon: it has one for each set of environment variables."""
    with _planning:
        variables = session.spark.sparkContext.environment
        variables[_DAEMON] = str(int(variables.get(_DAEMON, 0)) + 1)


_planning = threading.Lock()


def _plan(session: Session, partition: _Partition[Answer], count: int, profile: AnyProfile | None) -> Collectable:
    """Return what runs the tasks when it is collected; each partition has one number."""
    if session.cluster.is_remote:
        from pennon.spark.session import accept_pandas

        accept_pandas()
        resources = cast("ResourceProfile | None", profile)  # Connect uses its id alone
        numbers = session.spark.range(0, count, 1, count)
        return cast("Collectable", numbers.mapInArrow(partition.of_batches, ANSWERS, profile=resources))
    # An RDD, because the planning and code generation of a data frame would cost time for nothing.
    context = session.spark.sparkContext
    # Python workers are shared only by tasks with the same variables, so an environment has its own workers.
    marks = partition.environment.marks if partition.environment is not None else {}
    with _planning:
        default = context.environment
        context.environment = default | marks
        try:
            planned: RDD[tuple[int, str]] = context.parallelize(range(count), count).mapPartitions(partition.of_numbers)
            if profile is not None:
                planned = planned.withResources(cast("ResourceProfile", profile))
            planned.id()  # makes Spark copy the variables now
            return planned
        finally:
            context.environment = default


def _thread(session: Session, run: Callable[[], None]) -> threading.Thread:
    if session.cluster.is_remote:
        return threading.Thread(target=run, daemon=True)
    from pyspark import InheritableThread

    thread = InheritableThread(target=run, session=session.spark)
    thread.daemon = True
    return thread


@contextmanager
def _named(session: Session, name: str) -> Iterator[None]:
    """Name what this thread submits, so that it can be cancelled, and give it a fair share of the cluster."""
    if session.cluster.is_remote:
        session.spark.addTag(name)
        try:
            yield
        finally:
            session.spark.removeTag(name)
        return
    context = session.spark.sparkContext
    context.setJobGroup(name, name, interruptOnCancel=True)
    with _pools.acquire() as pool:
        context.setLocalProperty("spark.scheduler.pool", f"pennon-{pool}")
        yield


def _interrupt(session: Session, name: str) -> None:
    if session.cluster.is_remote:
        session.spark.interruptTag(name)
    else:
        session.spark.sparkContext.cancelJobGroup(name)


class _Pools:
    """Numbers of scheduler pools, which share the cores fairly; they are reused, because Spark keeps every pool."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[int] = set()

    @contextmanager
    def acquire(self) -> Iterator[int]:
        with self._lock:
            pool = next(number for number in range(len(self._busy) + 1) if number not in self._busy)
            self._busy.add(pool)
        try:
            yield pool
        finally:
            with self._lock:
                self._busy.remove(pool)


_pools = _Pools()
