"""Sessions stay warm, make room for each other, and are opened again when Spark died."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from pennon.pipeline.cluster.clusters import Cluster
from pennon.pipeline.cluster.session import ClusterBusyError, ClusterUnavailableError, open_session
from pennon.pipeline.cluster.tasks import TasksCancelledError, run_tasks
from tests.integration.spark.running import run

if TYPE_CHECKING:
    from pennon.pipeline.cancellation import Check
    from pennon.pipeline.cluster.session import Sessions
    from tests.support.spark import ConnectServer


def test_a_session_is_opened_once(sessions: Sessions) -> None:
    with sessions.use() as first, sessions.use("default") as second:
        assert first is second


def test_a_session_of_too_many_tenants_is_opened_again_when_it_is_idle(sessions: Sessions) -> None:
    with sessions.use("connect") as first:
        first.tenants.update(map(str, range(100)))
        with sessions.use("connect") as beside:
            assert beside is first
    with sessions.use("connect") as second:
        assert second is not first
        assert run(second, lambda _: {"at": "server"}) == [{"at": "server"}]


def test_an_idle_session_is_closed_and_opened_again(sessions: Sessions) -> None:
    with sessions.use() as used:
        sessions.close_idle(0)
        assert used.is_alive()
    assert used._jvm is not None
    sessions.close_idle(3600)
    assert used.is_alive()
    sessions.close_idle(0)
    assert not used._jvm.is_alive
    with sessions.use() as again:
        assert again is not used
        assert again.spark.range(3).count() == 3


def test_a_driver_is_not_taken_from_those_who_use_it(sessions: Sessions) -> None:
    with (
        sessions.use(),
        pytest.raises(ClusterBusyError, match="while jobs run on 'default'"),
        sessions.use("standalone"),
    ):
        pass


def test_a_connect_server_is_used_beside_a_driver(sessions: Sessions) -> None:
    with sessions.use() as driven, sessions.use("connect") as connected:
        assert run(driven, lambda _: {"at": "driver"}) + run(connected, lambda _: {"at": "server"}) == [
            {"at": "driver"},
            {"at": "server"},
        ]


def test_a_driver_that_died_is_replaced(sessions: Sessions) -> None:
    with sessions.use() as dead:
        assert dead._jvm is not None
        os.kill(dead._jvm.pid, signal.SIGKILL)
        dead._jvm._process.wait()
    interrupt = signal.getsignal(signal.SIGINT)
    with sessions.use() as alive:
        assert alive.spark.range(3).count() == 3
    assert signal.getsignal(signal.SIGINT) is interrupt


def test_a_spark_that_does_not_start_says_why() -> None:
    wrong = Cluster("odd", "local[2,4]", {"spark.driver.memory": "much"})
    with pytest.raises(ClusterUnavailableError, match=r"'odd' \(local\[2,4\]\) cannot be used: Java ended"):
        open_session(wrong)


def test_a_spark_that_does_not_answer_is_given_up_in_time(sessions: Sessions) -> None:
    sessions.close()  # a process has one driver
    with pytest.raises(
        ClusterUnavailableError, match=r"'gone' \(spark://.*\) cannot be used: It did not answer within 1"
    ):
        open_session(Cluster("gone", "spark://127.0.0.1:1"), 1)
    with pytest.raises(ClusterUnavailableError, match=r"'gone' cannot be used: .*127\.0\.0\.1:1"):
        open_session(Cluster("gone", "sc://127.0.0.1:1"), 1)


def test_a_silent_spark_is_abandoned_when_its_job_is_cancelled(sessions: Sessions, silence: int) -> None:
    class UnwantedError(Exception):
        pass

    def refuse() -> None:
        raise UnwantedError

    sessions.close()
    for address in (f"spark://127.0.0.1:{silence}", f"sc://127.0.0.1:{silence}"):
        with pytest.raises(UnwantedError):
            open_session(Cluster("mute", address), 600, _after(0.5, refuse))
    with pytest.raises(ClusterUnavailableError, match=r"'mute' cannot be used: It did not answer within 1 s"):
        open_session(Cluster("mute", f"sc://127.0.0.1:{silence}"), 1)
    with sessions.use() as session:
        assert session.spark.range(3).count() == 3


def _after(seconds: float, check: Check) -> Check:
    since = time.monotonic()
    return lambda: check() if time.monotonic() - since > seconds else None


def test_tasks_whose_spark_died_can_be_cancelled(sessions: Sessions) -> None:
    def sleep(_: int) -> dict[str, Any]:
        time.sleep(3600)
        return {}

    with sessions.use() as session:
        doomed = run_tasks(session, sleep, 1, group="doomed")
        while not doomed.has_started():
            assert not doomed.wait(0.05)
        assert session._jvm is not None
        os.kill(session._jvm.pid, signal.SIGKILL)
        doomed.cancel()
        with pytest.raises(TasksCancelledError):
            doomed.results()


def test_a_session_apart_has_the_configuration_of_its_cluster(connect_server: ConnectServer) -> None:
    session = open_session(Cluster("conf", connect_server.url, {"spark.sql.session.timeZone": "Asia/Tokyo"}))
    try:
        assert session.isolated("tea").spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        session.close()


def test_a_restarted_connect_server_is_used_again(sessions: Sessions, connect_server: ConnectServer) -> None:
    with sessions.use("connect") as known:
        assert known.spark.range(3).count() == 3
    connect_server.restart()
    with sessions.use("connect") as restarted:
        assert restarted.spark.range(3).count() == 3
