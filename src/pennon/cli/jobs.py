"""``pennon jobs``: list, watch, stop and retry jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, cast

import typer

from pennon.cli.examples import examples
from pennon.cli.exit_codes import ExitCode
from pennon.cli.names import format_name, parse_name, parse_table
from pennon.cli.output import (
    OutputFormat,
    OutputOption,
    console,
    format_time,
    print_fields,
    print_list,
    print_note,
    print_result,
)
from pennon.cli.servers import with_server, without_none
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import MAINTENANCE_TARGET

if TYPE_CHECKING:
    from pennon.client.job import Job, JobFields
    from pennon.client.transport import Transport

app = typer.Typer(no_args_is_help=True)

_COLUMNS = ("Job", "Kind", "Table", "Column", "State", "Rows", "Failed", "Submitted", "By")
#: The outcomes of stop and resume requests, for people.
_OUTCOMES = {
    "cancelled": "The job is cancelled.",
    "cancelling": "The job is being cancelled and commits nothing more.",
    "committing": "The job is committing, and stops after that.",
    "paused": "The job is paused.",
    "pausing": "The job is being paused and commits nothing more until it is resumed.",
    "already_paused": "The job was already paused.",
    "resumed": "The job is resumed and waits for a worker.",
    "still_pausing": "The job is still being paused; try again when it is paused.",
    "not_paused": "The job is not paused.",
}

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Job id.")]


@app.callback()
def describe() -> None:
    """List, watch, cancel, pause, resume and retry jobs."""


@app.command("list", epilog=examples("pennon jobs list", "pennon jobs list --table shop.reviews --state running"))
@with_server
def list_jobs(
    server: Transport,
    table: Annotated[str | None, typer.Option("--table", help="Only jobs of this table, such as shop.teas.")] = None,
    state: Annotated[str | None, typer.Option("--state", help="Only jobs in this state, such as running.")] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only jobs of this kind, such as backfill or maintenance.")
    ] = None,
    include_maintenance: Annotated[
        bool, typer.Option("--include-maintenance", help="List automatic maintenance, too.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most jobs to list.")] = 50,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List jobs, the newest first; automatic maintenance only if it is included or a kind is named."""
    name = None if table is None else format_identifier(parse_table(table))
    wanted = {"table": name, "state": state, "kind": kind, "include_maintenance": include_maintenance or None}
    found = server.read_all("/v1/jobs/list", without_none(wanted), "jobs", limit)
    print_list(output, found, _COLUMNS, map(_row, cast("list[JobFields]", found)), "No jobs found.")


@app.command("show", epilog=examples("pennon jobs show JOB"))
@with_server
def show_job(server: Transport, job_id: JobArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the full description of a job."""
    found = server.read("/v1/jobs/describe", {"job_id": job_id})
    print_fields(output, found, _description(found))


@app.command(epilog=examples("pennon jobs watch JOB"))
@with_server
def watch(server: Transport, job_id: JobArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Follow a job until it ends; the exit code is 7 if it does not succeed."""
    follow_job(_job(server, job_id).refresh(), output)


@app.command(epilog=examples("pennon jobs cancel JOB"))
@with_server
def cancel(server: Transport, job_id: JobArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Cancel a job; what it has committed stays."""
    _print_outcome(output, job_id, _job(server, job_id).cancel())


@app.command(epilog=examples("pennon jobs pause JOB"))
@with_server
def pause(server: Transport, job_id: JobArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Pause a job until it is resumed."""
    _print_outcome(output, job_id, _job(server, job_id).pause())


@app.command(epilog=examples("pennon jobs resume JOB"))
@with_server
def resume(server: Transport, job_id: JobArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Resume a paused job."""
    _print_outcome(output, job_id, _job(server, job_id).resume())


@app.command(epilog=examples("pennon jobs retry JOB", "pennon jobs retry JOB --only-failed"))
@with_server
def retry(
    server: Transport,
    job_id: JobArgument,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Retry only the failed rows.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Submit a job again for what it has not completed, and print the id of the new job."""
    again = _job(server, job_id).retry(only_failed=only_failed)
    if output is OutputFormat.TABLE:
        print_note("Submitted as a new job:")
    print_result(output, {"job_id": again.id, "retry_of": job_id}, again.id)


def follow_or_print(job: Job, output: OutputFormat, *, wait: bool) -> None:
    """Follow a submitted job until it ends, or print its id."""
    if wait:
        follow_job(job, output)
        return
    if output is OutputFormat.TABLE:
        print_note("The job is submitted. Follow it with `pennon jobs watch`. Its id:")
    print_result(output, {"job_id": job.id}, job.id)


def follow_job(job: Job, output: OutputFormat) -> None:
    """Show the progress of a job until it ends; exit with code 7 if it does not succeed."""
    from pennon.client.progress import JobProgress

    has_bar = console(stderr=True).is_terminal
    printed = ""
    try:
        with JobProgress() as bar:
            for now in job.follow():
                bar.show(now)
                if output is OutputFormat.TABLE and not has_bar and (line := _progress_line(now)) != printed:
                    print_note(line)
                    printed = line
    except KeyboardInterrupt:
        print_note(
            f"The job continues. Follow it with `pennon jobs watch {job.id}`, or end it with "
            f"`pennon jobs cancel {job.id}`."
        )
        raise
    print_result(output, _as_data(job), _final_line(job))
    if job.state != "done":
        raise typer.Exit(ExitCode.JOB_FAILED)


def _job(server: Transport, job_id: str) -> Job:
    from pennon.client.job import Job

    return Job(server, job_id)


def _row(job: JobFields) -> list[object]:
    counters = job["counters"]
    return [
        job["job_id"],
        job["job_type"],
        format_name(parse_name(job["table"])),
        "" if job["target"] == MAINTENANCE_TARGET else job["target"],
        job["state"],
        _rows(counters),
        _number(counters.get("rows_failed")),
        format_time(job["created_at_millis"]),
        job["submitted_by"],
    ]


def _description(job: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in job.items():
        label = name.removesuffix("_ms").replace("_", " ")
        if name.endswith("_ms"):
            yield label, format_time(value)
        elif isinstance(value, dict):
            yield from ((f"{label}: {inner.replace('_', ' ')}", _plain(found)) for inner, found in value.items())
        elif name == "table":
            yield label, format_name(parse_name(str(value)))
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


def _progress_line(job: Job) -> str:
    """Return the progress of a job as a line for a log."""
    counters = job.counters
    fragments = f", {_number(counters.get('fragments_committed', 0))} fragments" if counters else ""
    failed = f", {_number(counters['rows_failed'])} failed" if counters.get("rows_failed") else ""
    rows = f", {_rows(counters)} rows" if counters else ""
    waits = f" (waiting: {job.waiting_for})" if job.waiting_for else ""
    return f"{job.state}{rows}{fragments}{failed}{waits}"


def _final_line(job: Job) -> str:
    message = (job.failure or {}).get("message")
    return f"{job.state}: {message}" if message else job.state


def _as_data(job: Job) -> dict[str, object]:
    return {
        "job_id": job.id,
        "state": job.state,
        "counters": job.counters,
        "result": job.result,
        "failure": job.failure,
    }


def _print_outcome(output: OutputFormat, job_id: str, outcome: str) -> None:
    """Print the outcome of a stop or resume request: a sentence for people, the status for scripts."""
    if output is OutputFormat.TABLE:
        print_note(_OUTCOMES.get(outcome) or f"The job has already ended: {outcome.removeprefix('already_')}.")
    print_result(output, {"job_id": job_id, "status": outcome}, outcome)
