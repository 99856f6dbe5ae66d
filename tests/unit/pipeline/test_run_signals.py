"""Signals between a driver and its tasks: progress, failures and stops, the same for backfills and refreshes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pennon.functions.failures import FunctionFailedError, RowError
from pennon.pipeline import run_signals
from pennon.pipeline.run_signals import RunSignals, RunStoppedError, run_task
from pennon.storage.local import LocalFileIO

FOLDER = "_refreshes"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFileIO:
    monkeypatch.setattr(run_signals, "_REPORT_SECONDS", 0)
    return LocalFileIO(str(tmp_path))


def test_signals_carry_progress_failures_and_stops(files: LocalFileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, others = RunSignals(files, FOLDER, "run-1"), RunSignals(files, FOLDER, "run-10")
    task = RunSignals(files, FOLDER, "run-1")
    driver.start()
    others.start()
    task.report_progress(0, 5)
    task.report_progress(1, 7)
    others.report_progress(0, 100)
    assert driver.poll() == (12, None)
    task.report_failure(1, {"type": "ValueError", "message": "no"})
    assert driver.poll() == (12, {"type": "ValueError", "message": "no"})
    task.check()
    driver.stop()
    with pytest.raises(RunStoppedError):
        task.report_progress(0, 6)
    driver.clear()
    with pytest.raises(RunStoppedError):  # also when it checks late
        task.check()
    assert driver.poll() == (0, None)
    assert others.poll() == (100, None)
    monkeypatch.setattr(run_signals, "_EXPIRY_MILLIS", -1000)
    driver.remove_expired()
    assert list(files.files(FOLDER)) == []


def test_a_new_driver_stops_the_runs_of_one_that_died(files: LocalFileIO) -> None:
    lost, new = RunSignals(files, FOLDER, "lost"), RunSignals(files, FOLDER, "new")
    lost.start()
    lost.report_failure(0, {"type": "ValueError", "message": "no"})
    files.replace(f"{FOLDER}/a-run-of-an-earlier-release", b"")
    new.stop_all()
    new.start()
    new.check()
    with pytest.raises(RunStoppedError):
        lost.check()
    assert new.poll() == (0, None)
    assert [file.path for file in files.files(FOLDER)] == [f"{FOLDER}/new.open.0"]


def test_the_first_failure_counts(files: LocalFileIO) -> None:
    signals = RunSignals(files, FOLDER, "run")
    for task in (10, 2):
        signals.report_failure(task, {"type": "ValueError", "message": str(task)})
    assert signals.poll().failure == {"type": "ValueError", "message": "2"}


def test_a_task_answers_with_its_result(files: LocalFileIO) -> None:
    assert run_task(RunSignals(files, FOLDER, "run"), 0, lambda: 7) == {"result": 7, "failure": None}


def test_a_failure_that_a_retry_would_repeat_is_reported_and_answered(files: LocalFileIO) -> None:
    signals, aborted = RunSignals(files, FOLDER, "run"), []

    def fail() -> None:
        raise FunctionFailedError("brew", RowError(0, "ValueError", "too hot", 1))

    answer = run_task(signals, 3, fail, lambda: aborted.append(True))
    assert answer["result"] is None
    assert answer["failure"] is not None
    assert answer["failure"]["type"] == "ValueError"
    assert signals.poll().failure == answer["failure"]
    assert aborted == [True]


def test_other_errors_are_left_to_spark(files: LocalFileIO) -> None:
    signals, aborted = RunSignals(files, FOLDER, "run"), []

    def stop() -> None:
        raise RunStoppedError

    with pytest.raises(RunStoppedError):
        run_task(signals, 0, stop, lambda: aborted.append(True))
    assert signals.poll().failure is None
    assert aborted == [True]
