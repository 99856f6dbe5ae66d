"""Tasks and environments do the same on every kind of Spark."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pennon.core.settings import load_settings
from pennon.pipeline.cluster.driver import prepare_environment
from pennon.pipeline.cluster.tasks import TaskError, TasksCancelledError, run_tasks
from pennon.pipeline.environments.cache import EnvironmentCache
from pennon.pipeline.environments.deployment import deployed
from pennon.pipeline.environments.environment import Environment
from tests.integration.spark.running import run
from tests.support.wheels import make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.pipeline.cluster.session import Session, Sessions


@pytest.fixture(scope="module", params=["standalone", "connect", "default"])
def session(sessions: Sessions, request: pytest.FixtureRequest) -> Iterator[Session]:
    with sessions.use(request.param) as opened:
        yield opened


def test_answers_come_in_the_order_of_the_tasks_from_other_processes(session: Session) -> None:
    answers = run(session, lambda number: {"number": number, "square": number**2, "pid": os.getpid()}, 9)
    assert [(answer["number"], answer["square"]) for answer in answers] == [(n, n * n) for n in range(9)]
    assert os.getpid() not in {answer["pid"] for answer in answers}


def test_the_error_of_a_task_is_reported_without_sparks_stack_trace(session: Session) -> None:
    def fail(number: int) -> dict[str, Any]:
        raise KeyError(f"no 'tea'\nin cup {number} ☕")

    with pytest.raises(TaskError) as raised:
        run(session, fail)
    assert (raised.value.kind, raised.value.message) == ("KeyError", str(KeyError("no 'tea'\nin cup 0 ☕")))
    assert "in fail" in raised.value.trace
    assert "java" not in str(raised.value)


def test_a_task_whose_worker_is_killed_is_tried_again(session: Session, tmp_path: Path) -> None:
    killed = str(tmp_path / "killed")

    def die_once(number: int) -> dict[str, Any]:
        if number == 1 and not Path(killed).exists():
            Path(killed).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"number": number}

    assert run(session, die_once, 4) == [{"number": number} for number in range(4)]
    assert Path(killed).exists()


def test_cancelling_a_run_does_not_affect_another(session: Session, tmp_path: Path) -> None:
    begun, released = str(tmp_path / "begun"), str(tmp_path / "released")

    def wait_for_ever(_: int) -> dict[str, Any]:
        Path(begun).touch()
        while True:
            time.sleep(0.05)

    def wait_for_release(number: int) -> dict[str, Any]:
        while not Path(released).exists():
            time.sleep(0.05)
        return {"number": number}

    doomed = run_tasks(session, wait_for_ever, 1, group="doomed")
    other = run_tasks(session, wait_for_release, 1, group="other")
    while not Path(begun).exists():
        assert not doomed.wait(0.05)
    doomed.cancel()
    assert doomed.done()
    with pytest.raises(TasksCancelledError):
        doomed.results()
    assert not other.done()
    Path(released).touch()
    assert other.results() == [{"number": 0}]


def test_no_tenant_sees_what_functions_of_another_did_to_modules(session: Session, tmp_path: Path) -> None:
    settings = load_settings(directory=tmp_path)
    for namespace, principal in [(("a",), "ann"), (("b",), "ann"), (("a",), "bob")]:
        tenant = f"{namespace} {principal}"

        def poison(_: int, tenant: str = tenant) -> dict[str, Any]:
            import colorsys

            found = getattr(colorsys, "OWNER", tenant)
            colorsys.OWNER = tenant  # type: ignore[attr-defined]
            return {"found": found}

        job = SimpleNamespace(home=namespace, submitted_by=principal)
        lease: Any = SimpleNamespace(job=job, check=lambda: None)
        with prepare_environment(session, None, settings, lease) as (own, environment):
            assert run(own, poison, 4, environment=environment) == [{"found": tenant}] * 4


def test_each_environment_has_its_own_version_of_a_package(session: Session, tmp_path: Path) -> None:
    def brew(_: int) -> dict[str, Any]:
        import importlib

        return {"version": importlib.import_module("pennon_test_tea").VERSION, "cup": os.environ.get("TEA_CUP")}

    def look(_: int) -> dict[str, Any]:
        import importlib.util

        found = importlib.util.find_spec("pennon_test_tea")
        return {"found": found is not None, "cup": os.environ.get("TEA_CUP")}

    for version in ("1.0", "2.0"):
        wheel = make_wheel(tmp_path, "pennon_test_tea", version)
        environment = Environment(modules={wheel.name: wheel.read_bytes()}, variables={"TEA_CUP": version})
        with deployed(session, environment, EnvironmentCache(tmp_path / "environments", 0)) as (isolated, found):
            answers = run(isolated, brew, 3, environment=found)
        assert answers == [{"version": version, "cup": version}] * 3
    assert run(session, look, 3) == [{"found": False, "cup": None}] * 3
