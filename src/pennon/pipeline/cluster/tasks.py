"""Tasks on Spark: numbered, each run by a Python worker of an executor, each answering with a little JSON.

Spark only carries numbers to the tasks and answers back; tasks read and write tables themselves. A task that raises is
tried again by Spark, four times in all; one that must not be tried again returns what went wrong instead.

This module is imported by executors: nothing heavy is imported at its top, and nothing of Lance before a worker forked.
"""

from __future__ import annotations

import json
import re
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pennon import __version__
from pennon.pipeline.environments.environment import Shipped, activate
from pennon.spark.python_workers import spare_collection

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.pipeline.cluster.session import Session

Answer = dict[str, Any]
Task = Callable[[int], Answer]

#: What a data frame that runs tasks returns.
ANSWERS = "task long, answer string"
_CANCEL_SECONDS = 0.2
_LONGEST_MESSAGE = 2000
_LONGEST_TRACE = 4000
_MARK = "pennon-task-error:"
_DAEMON = "PENNON_PYTHON_DAEMON"


class TaskError(Exception):
    """A task failed on an executor: the type, the message and the trace of what it raised there."""

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message
        self.trace = trace


class TasksCancelledError(Exception):
    """The tasks were cancelled."""


class TaskRun:
    """Tasks under way; they run in a thread of their own, so that others can watch and cancel them."""

    def __init__(self, session: Session, plan: Callable[[], Any], group: str, count: int | None = None) -> None:
        self._session = session
        # A name of its own: cancelling must reach this run and no other of the same group.
        self._name = f"{group}-{uuid.uuid4().hex}"
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self._answers: dict[int, Answer] = {}
        self._error: Exception | None = None
        self._thread = _thread(session, lambda: self._run(plan, count))
        self._thread.start()

    @property
    def cluster(self) -> str:
        """The name of the cluster that they are for."""
        return self._session.cluster.name

    def has_begun(self) -> bool:
        """Return whether some task has begun; a Connect server does not say, so that it may well have."""
        if self._session.cluster.is_remote:
            return True
        tracker = self._session.spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return any(stage.numActiveTasks or stage.numCompletedTasks for stage in stages if stage is not None)

    def done(self) -> bool:
        """Return whether all tasks ended, one way or the other."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all tasks ended, and return whether they did."""
        return self._ended.wait(timeout)

    def cancel(self) -> None:
        """Cancel what runs and return when Spark let go of it; a Python worker may go on for some seconds."""
        self._cancelled.set()
        while not self.done():
            with suppress(Exception):  # of a Spark that died, which ends the tasks as well
                _interrupt(self._session, self._name)  # again and again: what is not submitted yet is not found
            self._ended.wait(_CANCEL_SECONDS)

    def results(self) -> list[Answer]:
        """Wait, and return the answers in the order of the tasks; raise what ended them instead."""
        self._ended.wait()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return [self._answers[number] for number in sorted(self._answers)]

    def _run(self, plan: Callable[[], Any], count: int | None) -> None:
        try:
            with _named(self._session, self._name):
                answers = self._collect(plan)
            self._answers = {number: json.loads(answer) for number, answer in answers}
            if self._cancelled.is_set() or (count is not None and len(self._answers) != count):
                self._error = TasksCancelledError("The tasks were cancelled.")
        except Exception as error:  # noqa: BLE001 (whatever it is, it is raised where results are asked for)
            self._error = TasksCancelledError("The tasks were cancelled.") if self._cancelled.is_set() else plain(error)
        finally:
            self._ended.set()

    def _collect(self, plan: Callable[[], Any]) -> list[Any]:
        for starts_anew in (False, True):
            planned = plan()
            if self._cancelled.is_set():
                break
            try:
                return list(planned.collect())
            except Exception as error:
                if starts_anew or not _lacks_daemon(error) or self._session.cluster.is_remote:
                    raise
            _renew_daemon(self._session)
        return []


def run_tasks(
    session: Session,
    task: Task,
    count: int,
    *,
    group: str,
    environment: Shipped | None = None,
    profile: Any = None,
) -> TaskRun:
    """Start tasks 0 to count - 1 on a cluster, in an environment if given; the group names them for Spark.

    A resource profile says what Spark keeps for each of them.
    """
    return TaskRun(session, lambda: _plan(session, _Partition(task, environment), count, profile), group, count)


def run_frame(session: Session, frame: Callable[[], Any], *, group: str) -> TaskRun:
    """Start what a data frame computes: its rows are the answers of tasks, as many as Spark makes of it."""

    def plan() -> Any:
        with _planning:  # or its functions might get the variables of another job's environment
            return frame()

    return TaskRun(session, plan, group)


def plain(error: Exception) -> Exception:
    """Return an error of Spark as what the task raised, without the pages that Spark adds."""
    text = str(error)
    marked = re.search(re.escape(_MARK) + r"(.*)", text)
    if marked:
        told, _ = json.JSONDecoder().raw_decode(marked[1])
        return TaskError(told["type"], told["message"], told["trace"])
    raised = re.findall(r"^(?!Caused by)([\w.]*(?:Error|Exception|Interrupt|Exit)): (.*)$", text, re.MULTILINE)
    python = [(kind, message) for kind, message in raised if not kind.startswith(("org.", "java.", "py4j."))]
    if "Traceback (most recent call last)" in text and python:
        kind, message = python[-1]
        if kind == "ModuleNotFoundError":  # before a task began, so it is nothing that a function needs
            message += f"; an executor needs what a worker has: pip install 'pennon[spark]=={__version__}'"
        return TaskError(kind.rpartition(".")[2], message, text[-_LONGEST_TRACE:])
    if "Python worker exited unexpectedly" in text or "Python worker failed to connect" in text:
        return TaskError("PythonWorkerDied", "the Python worker of an executor died, every time it was tried")
    lost = re.search(r"most recent failure: (.*)", text)
    return TaskError(type(error).__name__, (lost[1] if lost else text)[:_LONGEST_MESSAGE], text[:_LONGEST_TRACE])


class _ReportedError(Exception):
    """What a task raised, in a form that survives its way through Spark."""


class _Partition:
    """What Spark runs for each partition: the tasks whose numbers are in it."""

    def __init__(self, task: Task, environment: Shipped | None) -> None:
        self._task = task
        self.environment = environment

    def of_numbers(self, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Run tasks, and return each with its answer."""
        for number in numbers:
            yield number, json.dumps(self._answer(number))

    def of_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run tasks whose numbers come as Arrow, and return their answers so."""
        import pyarrow as pa

        for batch in batches:
            for number, answer in self.of_numbers(batch.column(0).to_pylist()):
                yield pa.RecordBatch.from_pydict({"task": [number], "answer": [answer]})

    def _answer(self, number: int) -> Answer:
        def answer() -> Answer:
            if self.environment is not None:
                activate(self.environment)
            return self._task(number)

        return reported(answer)


def reported(work: Callable[[], Answer]) -> Answer:
    """Do the work of a task; what it raises reaches the driver in a form that survives its way through Spark."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 (it is raised again, in another form)
        raise _ReportedError(_MARK + _report(error)) from None
    finally:
        spare_collection()


def _report(error: Exception) -> str:
    """Write down an exception as one line."""
    trace = "".join(traceback.format_exception(error))
    told = {"type": type(error).__name__, "message": str(error)[:_LONGEST_MESSAGE], "trace": trace[-_LONGEST_TRACE:]}
    return json.dumps(told)


def _lacks_daemon(error: Exception) -> bool:
    """Tell whether Spark believes that a daemon runs which forks Python workers, and does not know where.

    So it is for ever when the daemon dies as it starts while the task that waits for it is cancelled (Spark 4.3).
    """
    text = str(error)
    return "NullPointerException" in text and "PythonWorkerFactory.createWorker" in text


def _renew_daemon(session: Session) -> None:
    """Have Spark start another daemon: each set of variables has its own."""
    with _planning:
        variables = session.spark.sparkContext.environment
        variables[_DAEMON] = str(int(variables.get(_DAEMON, 0)) + 1)


_planning = threading.Lock()


def _plan(session: Session, partition: _Partition, count: int, profile: Any) -> Any:
    """Return what runs the tasks when it is collected: one number a partition."""
    if session.cluster.is_remote:
        from pennon.spark.session import accept_pandas

        accept_pandas()
        return session.spark.range(0, count, 1, count).mapInArrow(partition.of_batches, ANSWERS, profile=profile)
    # Not a data frame: nothing of what Spark SQL does to plan and compile one is needed here.
    context = session.spark.sparkContext
    # Python workers are shared only by functions with the same variables: so an environment has its own.
    marks = partition.environment.marks if partition.environment is not None else {}
    with _planning:
        usual = context.environment
        context.environment = usual | marks
        try:
            planned = context.parallelize(range(count), count).mapPartitions(partition.of_numbers)
            if profile is not None:
                planned = planned.withResources(profile)
            planned.id()  # the variables are taken over only when Spark makes something of it
            return planned
        finally:
            context.environment = usual


def _thread(session: Session, run: Callable[[], None]) -> threading.Thread:
    if session.cluster.is_remote:
        return threading.Thread(target=run, daemon=True)
    from pyspark import InheritableThread

    thread = InheritableThread(target=run, session=session.spark)
    thread.daemon = True
    return thread


@contextmanager
def _named(session: Session, name: str) -> Iterator[None]:
    """Give what this thread submits a name by which it can be cancelled, and a fair share of the cluster."""
    if session.cluster.is_remote:
        session.spark.addTag(name)
        try:
            yield
        finally:
            session.spark.removeTag(name)
        return
    context = session.spark.sparkContext
    context.setJobGroup(name, name, interruptOnCancel=True)
    with _pools.taken() as pool:
        context.setLocalProperty("spark.scheduler.pool", f"pennon-{pool}")
        yield


def _interrupt(session: Session, name: str) -> None:
    if session.cluster.is_remote:
        session.spark.interruptTag(name)
    else:
        session.spark.sparkContext.cancelJobGroup(name)


class _Pools:
    """Numbers of scheduler pools: runs in different ones share the cores fairly. Spark never forgets a pool."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[int] = set()

    @contextmanager
    def taken(self) -> Iterator[int]:
        with self._lock:
            pool = next(number for number in range(len(self._busy) + 1) if number not in self._busy)
            self._busy.add(pool)
        try:
            yield pool
        finally:
            with self._lock:
                self._busy.remove(pool)


_pools = _Pools()
