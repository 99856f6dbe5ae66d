"""What need not be tried on every kind of Spark."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import venv
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pennon.pipeline.cluster.prestart import warm_up
from pennon.pipeline.cluster.resources import ResourcesUnavailableError, TaskResources
from pennon.pipeline.cluster.session import Session
from pennon.pipeline.cluster.tasks import TaskError, TasksCancelledError, run_tasks
from pennon.pipeline.environments.cache import EnvironmentCache
from pennon.pipeline.environments.deployment import deployed
from pennon.pipeline.environments.environment import Environment
from tests.integration.spark.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pennon.pipeline.cluster.session import Sessions


@pytest.fixture
def session(sessions: Sessions) -> Iterator[Session]:
    with sessions.use() as opened:
        yield opened


def test_a_worker_that_always_dies_fails_its_run_and_no_other(session: Session) -> None:
    def die(_: int) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    with pytest.raises(TaskError) as raised:
        run(session, die)
    assert raised.value.kind == "PythonWorkerDied"
    assert run(session, lambda number: {"number": number}) == [{"number": 0}]


def test_spark_is_warmed_up_until_somebody_wants_it(session: Session) -> None:
    asked = 0

    def is_wanted() -> bool:
        nonlocal asked
        asked += 1
        return asked == wanted_at

    for wanted_at in (1, 2):
        asked = 0
        warm_up(session, is_wanted)
        assert asked == wanted_at
    asked, wanted_at = 0, -1
    warm_up(session, is_wanted)
    assert asked > 2
    assert run(session, lambda number: {"number": number}) == [{"number": 0}]


def test_spark_gets_another_daemon_when_it_lost_track_of_its_own(session: Session) -> None:
    run(session, lambda _: {})
    jvm: Any = session.spark.sparkContext._jvm

    def private(kind: str, name: str) -> Any:
        field = jvm.java.lang.Class.forName(f"org.apache.spark.{kind}").getDeclaredField(name)
        field.setAccessible(True)
        return field

    environment = private("SparkEnv$", "env").get(private("SparkEnv$", "MODULE$").get(None))
    factories = private("SparkEnv", "pythonWorkers").get(environment).valuesIterator()
    while factories.hasNext():
        factory = factories.next()
        private("api.python.PythonWorkerFactory", "daemonSockPath").set(factory, None)
        factory.idleWorkers().clear()
    assert run(session, lambda number: {"number": number}, 2) == [{"number": 0}, {"number": 1}]


def test_a_run_can_be_cancelled_before_it_reached_spark(session: Session) -> None:
    def sleep(_: int) -> dict[str, Any]:
        time.sleep(3600)
        return {}

    doomed = run_tasks(session, sleep, 2, group="doomed")
    doomed.cancel()
    with pytest.raises(TasksCancelledError):
        doomed.results()


def test_runs_with_and_without_an_environment_do_not_mix(session: Session, tmp_path: Path) -> None:
    environment, plain, blue = Environment(variables={"TEA_CUP": "blue"}), [], []

    def start(_: int) -> None:
        plain.append(run_tasks(session, lambda _: {"cup": os.environ.get("TEA_CUP")}, 2, group="plain"))
        with deployed(session, environment, EnvironmentCache(tmp_path, 0)) as (isolated, found):
            blue.append(
                run_tasks(isolated, lambda _: {"cup": os.environ["TEA_CUP"]}, 2, group="blue", environment=found)
            )

    threads = [threading.Thread(target=start, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer["cup"] for started in plain for answer in started.results()] == [None] * 6
    assert [answer["cup"] for started in blue for answer in started.results()] == ["blue"] * 6


def test_what_a_task_needs_bounds_how_many_run_at_once(session: Session) -> None:
    def at_once(**needs: Any) -> int:
        return TaskResources(**needs).tasks_at_once(session, 8)

    assert (at_once(), at_once(cpus=0.5), at_once(cpus=2), at_once(cpus=9)) == (8, 4, 1, 1)
    assert (at_once(memory=1), at_once(memory=1 << 60)) == (8, 1)
    message = "asks for num_gpus 1, which the cluster 'default' cannot provide"
    with pytest.raises(ResourcesUnavailableError, match=message):
        at_once(gpus=1)


def test_a_machine_has_the_gpus_that_its_conf_says(session: Session) -> None:
    conf = {"spark.executor.resource.gpu.amount": "2"}
    equipped = Session(replace(session.cluster, conf=conf), session.spark)
    assert [TaskResources(gpus=amount).tasks_at_once(equipped, 8) for amount in (0.5, 1, 2)] == [4, 2, 1]
    with pytest.raises(ResourcesUnavailableError, match="says how many GPUs there are, now 2"):
        TaskResources(gpus=3).tasks_at_once(equipped, 8)


def test_tasks_run_with_this_python(session: Session) -> None:
    assert run(session, lambda _: {"python": sys.executable}) == [{"python": sys.executable}]


def test_an_executor_without_pennon_says_what_it_lacks(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(session.spark.sparkContext, "pythonExec", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(TaskError, match=r"No module named .*pip install 'pennon\[spark\]=="):
        run(session, lambda _: {})
