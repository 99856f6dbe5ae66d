"""``pennon jobs``: what a server's jobs do, and how to stop and repeat them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennon.cli.examples import examples
from pennon.cli.exit_codes import Exit
from pennon.cli.names import parse_name, parse_table, spell
from pennon.cli.output import Form, FormOption, console, note, show, table_of, time_text
from pennon.cli.servers import with_server
from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from pennon.client.job import Job
    from pennon.client.transport import Transport

app = typer.Typer(no_args_is_help=True)

_COLUMNS = ("Job", "Kind", "Table", "Of", "State", "Rows", "Failed", "Submitted", "By")
#: What became of a wish, for people.
_OUTCOMES = {
    "cancelled": "The job is cancelled.",
    "cancelling": "The job is being cancelled; it commits nothing more.",
    "committing": "The job has just committed something, and stops after that.",
    "paused": "The job is paused.",
    "pausing": "The job is being paused; it commits nothing more until it is resumed.",
    "already_paused": "The job was paused before.",
    "resumed": "The job waits for a worker.",
    "still_pausing": "The job is still being paused; try again once it is.",
    "not_paused": "The job is not paused.",
}

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]


@app.callback()
def describe() -> None:
    """List, watch, stop and repeat the jobs of a server."""


@app.command("list", epilog=examples("pennon jobs list", "pennon jobs list --table shop.reviews --state running"))
@with_server
def list_jobs(
    server: Transport,
    table: Annotated[str | None, typer.Option("--table", help="Only those of a table, such as shop.teas.")] = None,
    state: Annotated[str | None, typer.Option("--state", help="Only those in a state, such as running.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most jobs to list.")] = 50,
    output: FormOption = Form.TABLE,
) -> None:
    """List jobs, the newest first."""
    wanted = {"table": None if table is None else format_identifier(parse_table(table)), "state": state}
    body = {name: value for name, value in wanted.items() if value is not None}
    found = server.ask_all("/v1/jobs/list", body, "jobs", limit)
    if not found and output is Form.TABLE:
        note("There are no such jobs.")
        return
    show(output, found, table_of(_COLUMNS, map(_row, found)))


@app.command("show", epilog=examples("pennon jobs show JOB"))
@with_server
def show_job(server: Transport, job_id: JobArgument, output: FormOption = Form.TABLE) -> None:
    """Show all that is known of a job."""
    found = server.ask("/v1/jobs/describe", {"job_id": job_id})
    show(output, found, table_of(("What", "Value"), _facts(found)))


@app.command(epilog=examples("pennon jobs watch JOB"))
@with_server
def watch(server: Transport, job_id: JobArgument, output: FormOption = Form.TABLE) -> None:
    """Follow a job until it ends; the exit code is 7 unless it is done then."""
    follow(_job(server, job_id).refresh(), output)


@app.command(epilog=examples("pennon jobs cancel JOB"))
@with_server
def cancel(server: Transport, job_id: JobArgument, output: FormOption = Form.TABLE) -> None:
    """Cancel a job; what it has committed stays."""
    _tell(output, job_id, _job(server, job_id).cancel())


@app.command(epilog=examples("pennon jobs pause JOB"))
@with_server
def pause(server: Transport, job_id: JobArgument, output: FormOption = Form.TABLE) -> None:
    """Let a job rest until it is resumed."""
    _tell(output, job_id, _job(server, job_id).pause())


@app.command(epilog=examples("pennon jobs resume JOB"))
@with_server
def resume(server: Transport, job_id: JobArgument, output: FormOption = Form.TABLE) -> None:
    """Let a paused job go on."""
    _tell(output, job_id, _job(server, job_id).resume())


@app.command(epilog=examples("pennon jobs retry JOB", "pennon jobs retry JOB --only-failed"))
@with_server
def retry(
    server: Transport,
    job_id: JobArgument,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Only the rows that failed.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Submit again what a job did not get done, and print the id of the new job."""
    again = _job(server, job_id).retry(only_failed=only_failed)
    if output is Form.TABLE:
        note("The job is submitted again, as:")
    show(output, {"job_id": again.id, "retry_of": job_id}, again.id)


def follow(job: Job, output: Form) -> None:
    """Show how far a job is until it ends; unless it is done then, leave with the exit code for that."""
    from pennon.client.progress import JobProgress

    said = ""
    try:
        with JobProgress() as bar:
            for now in job.follow():
                bar.show(now)
                if output is Form.TABLE and not _seen() and (line := _line(now)) != said:
                    note(line)
                    said = line
    except KeyboardInterrupt:
        note(f"The job goes on: `pennon jobs watch {job.id}` follows it, `pennon jobs cancel {job.id}` ends it.")
        raise
    show(output, _as_data(job), _ending(job))
    if job.state != "done":
        raise typer.Exit(Exit.JOB_FAILED)


def _job(server: Transport, job_id: str) -> Job:
    from pennon.client.job import Job

    return Job(server, job_id)


def _row(job: dict[str, Any]) -> list[object]:
    counters = job["counters"]
    return [
        job["job_id"],
        job["job_type"],
        spell(parse_name(job["table"])),
        job["target"],
        job["state"],
        _rows(counters),
        _number(counters.get("rows_failed")),
        time_text(job["created_at_millis"]),
        job["submitted_by"],
    ]


def _facts(job: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in job.items():
        label = name.removesuffix("_ms").replace("_", " ")
        if name.endswith("_ms"):
            yield label, time_text(value)
        elif isinstance(value, dict):
            yield from ((f"{label}: {inner.replace('_', ' ')}", _plain(found)) for inner, found in value.items())
        elif name == "table":
            yield label, spell(parse_name(value))
        elif value != "":
            yield label, value


def _plain(value: object) -> object:
    return _number(value) if isinstance(value, float) else value


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def _rows(counters: dict[str, float]) -> str:
    if not counters:
        return ""
    return f"{counters.get('rows_computed', 0):,.0f}/{counters.get('rows_planned', 0):,.0f}"


def _seen() -> bool:
    return console(stderr=True).is_terminal


def _line(job: Job) -> str:
    """Return how far a job is, for a log."""
    counters = job.counters
    fragments = f", {_number(counters.get('fragments_committed', 0))} fragments" if counters else ""
    failed = f", {_number(counters['rows_failed'])} failed" if counters.get("rows_failed") else ""
    rows = f", {_rows(counters)} rows" if counters else ""
    waits = f" (waits: {job.waiting_for})" if job.waiting_for else ""
    return f"{job.state}{rows}{fragments}{failed}{waits}"


def _ending(job: Job) -> str:
    why = job.failure or {}
    reason = f": {why['message']}" if why.get("message") else ""
    return f"{job.state}{reason}"


def _as_data(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "state": job.state,
        "counters": job.counters,
        "result": job.result,
        "failure": job.failure,
    }


def _tell(output: Form, job_id: str, outcome: str) -> None:
    """Say what became of a wish: in words, and in the one word that scripts go by."""
    said = _OUTCOMES.get(outcome) or f"The job had ended before: it is {outcome.removeprefix('already_')}."
    if output is Form.TABLE:
        note(said)
    show(output, {"job_id": job_id, "status": outcome}, outcome)
