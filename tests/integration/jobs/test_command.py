"""``pennon jobs`` against a running server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any, Protocol

import nbformat
import pytest
from nbclient import NotebookClient

from pennon.core.caller import Role
from pennon.core.job_model import JobState
from tests.integration.jobs.servers import ALONE, JobServer
from tests.support.command import runner
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from pathlib import Path

    from pennon.catalog.jobs import Job
    from tests.conftest import StartPennon

SECONDS = 120
COUNTERS = {"rows_planned": 1000, "rows_computed": 1000, "rows_failed": 10, "fragments_committed": 2}


def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
    """Start the command in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "pennon.cli.main", "jobs", *arguments],
        env={**os.environ, "COLUMNS": "400", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Pennon(Protocol):
    """Run ``pennon jobs`` with arguments and return what it wrote."""

    def __call__(self, *arguments: str, expect: int = 0, **env: str) -> tuple[str, str]: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Pennon:
    """A function that runs the command in this process, which is much faster than in one of its own."""
    plain = runner(monkeypatch, capsys, tmp_path)

    def call(*arguments: str, expect: int = 0, **env: str) -> tuple[str, str]:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            ended = plain("jobs", *arguments)
        assert ended.code == expect, ended
        return ended.stdout, ended.stderr

    return call


@pytest.fixture
def job(embedded: JobServer) -> Job:
    """A job that rests."""
    return embedded.submit_paused(embedded.new_table(), spec={"column": "c"})


def data(run: Pennon, server: JobServer, *arguments: str, PENNON_API_KEY: str = "") -> Any:  # noqa: N803
    """Run the command and return the JSON it wrote."""
    return json.loads(run(*arguments, "--output", "json", PENNON_URL=server.url, PENNON_API_KEY=PENNON_API_KEY)[0])


def test_jobs_are_listed_for_people_and_for_scripts(run: Pennon, embedded: JobServer, job: Job) -> None:
    table = "$".join(job.object)
    shown, _ = run("list", "--table", table, PENNON_URL=embedded.url)
    for word in (job.id, "backfill", ".".join(job.object), "paused", "ada"):
        assert word in shown
    assert [found["job_id"] for found in data(run, embedded, "list", "--table", table)] == [job.id]
    assert data(run, embedded, "list", "--table", table, "--state", "done") == []
    assert "No jobs found" in run("list", "--table", "nothing", PENNON_URL=embedded.url)[1]
    other = embedded.submit_paused(table, "other")
    assert len(data(run, embedded, "list", "--table", table, "--limit", "1")) == 1
    assert {found["job_id"] for found in data(run, embedded, "list", "--table", table)} == {job.id, other.id}


def test_a_job_is_shown(run: Pennon, embedded: JobServer, job: Job) -> None:
    shown, _ = run("show", job.id, PENNON_URL=embedded.url)
    for word in (job.id, "paused", "column", "IN_PROGRESS"):
        assert word in shown
    assert data(run, embedded, "show", job.id)["spec"] == {"column": "c"}


def test_a_job_is_resumed_paused_cancelled_and_tried_again(run: Pennon, embedded: JobServer, job: Job) -> None:
    assert run("resume", job.id, PENNON_URL=embedded.url)[0] == "resumed\n"
    assert run("pause", job.id, PENNON_URL=embedded.url)[0] == "paused\n"
    assert data(run, embedded, "pause", job.id) == {"job_id": job.id, "status": "already_paused"}
    assert run("cancel", job.id, PENNON_URL=embedded.url)[0] == "cancelled\n"
    answer, said = run("cancel", job.id, PENNON_URL=embedded.url)
    assert (answer, "has already ended" in said) == ("already_cancelled\n", True)
    again = run("retry", job.id, "--only-failed", PENNON_URL=embedded.url)[0].strip()
    found = embedded.queue.find(again)
    assert found is not None
    assert (found.retry_of, found.spec["mode"]) == (job.id, "only_failed")  # type: ignore[typeddict-item]
    change_job(embedded.queue, "cancel", again)


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("failed", 7), ("cancelled", 7), ("timed_out", 7)])
def test_watch_ends_with_the_job_and_prints_its_state(embedded: JobServer, job: Job, state: str, code: int) -> None:
    change_job(embedded.queue, "resume", job.id)
    held = embedded.hold(job)
    failure = None if state == "done" else {"phase": "compute", "type": "ValueError", "message": "seven is too many"}
    with start("watch", job.id, "--url", embedded.url) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("running")
        embedded.queue.heartbeat(held, 600, COUNTERS)
        line = process.stderr.readline()
        assert "1,000/1,000 rows" in line
        assert "10 failed" in line
        embedded.queue.finish(held, JobState(state), counters=COUNTERS, failure=failure)  # type: ignore[arg-type]
        stdout, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert stdout.strip() == (state if failure is None else f"{state}: seven is too many")


@pytest.mark.parametrize(
    "program",
    [
        ("-m", "pennon.cli.main", "jobs", "watch", "JOB", "--url", "URL"),
        ("-c", "import pennon; pennon.connect('URL').job('JOB').wait()"),
    ],
    ids=["command", "client"],
)
def test_a_terminal_shows_a_progress_bar(embedded: JobServer, job: Job, program: tuple[str, ...]) -> None:
    change_job(embedded.queue, "resume", job.id)
    held = embedded.hold(job)
    terminal, far_end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, *(word.replace("JOB", job.id).replace("URL", embedded.url) for word in program)],
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=far_end,
        stderr=far_end,
    )
    os.close(far_end)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        assert "running" in _read_until(screen, "rows")
        embedded.queue.heartbeat(held, 600, COUNTERS | {"rows_computed": 400})
        assert "━" in _read_until(screen, "400/1,000 rows")
        embedded.queue.finish(held, JobState.DONE, counters=COUNTERS)
        _read_until(screen, "1,000/1,000 rows")
        assert process.wait(SECONDS) == 0


def _read_until(screen: IO[bytes], text: str) -> str:
    """Return what is drawn until a text is."""
    drawn = b""
    while text.encode() not in drawn:
        drawn += screen.read(1024)
    return drawn.decode(errors="replace")


def test_waiting_in_a_notebook_draws_a_bar(embedded: JobServer, job: Job) -> None:
    change_job(embedded.queue, "resume", job.id)
    embedded.queue.finish(embedded.hold(job), JobState.DONE, counters=COUNTERS)
    source = f"import pennon; pennon.connect({embedded.url!r}).job({job.id!r}).wait()"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute()
    shown = json.dumps(notebook.cells[0].outputs, ensure_ascii=False)
    assert "━" in shown
    assert "1,000/1,000 rows" in shown


def test_watching_a_job_that_has_ended_gives_its_result_to_scripts(run: Pennon, embedded: JobServer, job: Job) -> None:
    change_job(embedded.queue, "resume", job.id)
    embedded.queue.finish(embedded.hold(job), JobState.DONE, counters=COUNTERS, result={"published_version": 3})  # type: ignore[arg-type]
    found = data(run, embedded, "watch", job.id)
    assert (found["state"], found["counters"], found["result"]) == ("done", COUNTERS, {"published_version": 3})


def test_a_key_is_sent_along(run: Pennon, start_pennon: StartPennon) -> None:
    server = JobServer(start_pennon(*ALONE))
    job = server.submit_paused(server.new_table())
    key = server.key(Role.READER)
    _, said = run("show", job.id, expect=5, PENNON_URL=server.url)
    assert "API key" in said
    assert data(run, server, "show", job.id, PENNON_API_KEY=key)["job_id"] == job.id
    assert data(run, server, "show", job.id, "--api-key", key)["job_id"] == job.id
    assert "requires the role writer" in run("cancel", job.id, "--api-key", key, expect=5, PENNON_URL=server.url)[1]
    server.close()


@pytest.mark.parametrize("verb", ["show", "watch", "cancel", "pause", "resume", "retry"])
def test_a_missing_job_is_an_error(run: Pennon, embedded: JobServer, verb: str) -> None:
    assert "Job 'nothing' does not exist" in run(verb, "nothing", expect=3, PENNON_URL=embedded.url)[1]


def test_an_unreachable_server_is_an_error(run: Pennon, embedded: JobServer) -> None:
    _, said = run("list", "--url", "http://127.0.0.1:1", expect=6, PENNON_URL=embedded.url)
    assert "http://127.0.0.1:1" in said
