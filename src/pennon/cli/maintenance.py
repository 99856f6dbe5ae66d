"""``pennon maintenance``: maintain tables now, show what maintenance did, and change its policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from lance_namespace.errors import InvalidInputError

from pennon.cli.examples import examples
from pennon.cli.job_options import TimeoutOption, WaitOption
from pennon.cli.jobs import follow_or_print
from pennon.cli.names import format_name, namespace_route, parse_name, parse_table, table_route
from pennon.cli.output import (
    OutputFormat,
    OutputOption,
    build_table,
    format_time,
    print_fields,
    print_list,
    print_result,
)
from pennon.cli.servers import (
    BranchOption,
    TableArgument,
    complete_namespaces,
    complete_tables,
    with_server,
    without_none,
)
from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from rich.table import Table

    from pennon.client.transport import JsonObject, Transport

app = typer.Typer(no_args_is_help=True)

#: Repeated here because the client's modules are imported only when a command runs.
Kind = Literal["maintain", "compact", "optimize_indices", "cleanup"]

_RESULTS = ("fragments_removed", "fragments_added", "bytes_rewritten", "rows_indexed", "versions_removed")
_COLUMNS = (
    *("Job", "Kind", "Table", "State", "Submitted", "Seconds"),
    *("Fragments removed", "Added", "Bytes rewritten", "Rows indexed", "Versions removed", "By"),
)

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Value of a field of the policy; may be repeated."),
]


@app.callback()
def describe() -> None:
    """Maintain tables now, show what maintenance did, and change its policies."""


@app.command(
    epilog=examples(
        "pennon maintenance run shop.teas",
        "pennon maintenance run shop.teas --dry-run",
        "pennon maintenance run shop.teas --kind cleanup --set max_version_seconds=3600",
    )
)
@with_server
def run(
    server: Transport,
    table: TableArgument,
    kind: Annotated[Kind, typer.Option("--kind", help="All steps, or one of them.")] = "maintain",
    values: SetOption = None,
    timeout: TimeoutOption = None,
    branch: BranchOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and why.")] = False,
    wait: WaitOption = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Maintain a table now, and wait for the job; if one is active already, wait for that one.

    The exit code is 7 if the job fails. Ctrl-C stops waiting; the job continues.
    """
    from pennon.client.job import job_from_response
    from pennon.client.transport import new_key

    identifier = parse_table(table)
    policy = _parse_values(values)
    body = without_none({"kind": kind, "policy": policy or None, "timeout_seconds": timeout, "branch": branch})
    route = table_route(identifier, "maintain")
    if dry_run:
        _print_plan(output, server.read(route, {**body, "dry_run": True}))
        return
    response = server.post(route, body, idempotency_key=new_key())
    job = job_from_response(server, response, job_type=kind, table=format_identifier(identifier))
    follow_or_print(job, output, wait=wait)


@app.command(
    epilog=examples(
        "pennon maintenance policy shop.teas",
        "pennon maintenance policy shop.teas --set max_versions=20 --set quiet_hours=08:00-18:00",
        "pennon maintenance policy --namespace shop --reset max_versions",
    )
)
@with_server
def policy(
    server: Transport,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="Table; without it, --namespace or the root.", autocompletion=complete_tables
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", metavar="NAME", help="Namespace to use instead.", autocompletion=complete_namespaces
        ),
    ] = None,
    values: SetOption = None,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="FIELD", help="Field to reset to the inherited value; may be repeated."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show or change the policy of a table, or the one that the tables of a namespace inherit."""
    if table is not None and namespace is not None:
        raise InvalidInputError("Name a table or --namespace, not both.")
    changes = {**_parse_values(values), **dict.fromkeys(reset or ())}
    if table is not None:
        name = parse_table(table)
        find = table_route
    else:
        name = parse_name(namespace or "$")
        find = namespace_route
    if changes:
        found = server.post(find(name, "maintenance_policy/alter"), {"policy": changes})
    else:
        found = server.read(find(name, "maintenance_policy/describe"))
    fields = cast("dict[str, dict[str, Any]]", found["policy"])
    rows = [(field, value["value"], _origin(value)) for field, value in fields.items()]
    print_result(output, {"name": format_name(name), "policy": fields}, build_table(("Field", "Value", "Set by"), rows))


@app.command(epilog=examples("pennon maintenance status", "pennon maintenance status shop.teas"))
@with_server
def status(
    server: Transport,
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Only jobs of this table.", autocompletion=complete_tables),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most jobs to list.")] = 20,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List maintenance jobs with what they have done, the newest first."""
    wanted = {"kind": "maintenance", "table": None if table is None else format_identifier(parse_table(table))}
    listed = server.read_all("/v1/jobs/list", without_none(wanted), "jobs", limit)
    found = [server.read("/v1/jobs/describe", {"job_id": job["job_id"]}) for job in listed]
    print_list(output, found, _COLUMNS, map(_job_row, found), "No maintenance jobs found.")


def _parse_values(given: Sequence[str] | None) -> dict[str, object]:
    """Parse FIELD=VALUE; the server knows the types of the fields."""
    values: dict[str, object] = {}
    for text in given or ():
        field, separator, value = text.partition("=")
        if not separator or not field:
            raise InvalidInputError(f"Invalid --set {text!r}: use FIELD=VALUE, such as max_versions=20.")
        values[field.strip().replace("-", "_")] = value.strip()
    return values


def _origin(value: Mapping[str, Any]) -> str:
    if value["level"] != "namespace":
        return str(value["level"])
    name = value.get("namespace")
    return "a namespace" if name is None else f"namespace {format_name(parse_name(name))}"


def _print_plan(output: OutputFormat, plan: JsonObject) -> None:
    due = [(step["action"], step["reason"]) for step in cast("list[dict[str, str]]", plan["due"])]
    cleanup = cast("dict[str, Any]", plan.get("cleanup") or {})
    kept = [(entry["count"], entry["reason"]) for entry in cleanup.get("kept", ())]
    facts = [("Kind", plan["kind"]), ("Version", plan["version"])]
    if cleanup:
        facts += [("Versions to remove", cleanup["versions_to_remove"])]
        facts += [("Recent versions, which are kept", cleanup["versions_recent"])]
    more: list[Table | str] = [build_table(("Step", "Reason"), due)] if due else ["Nothing is due."]
    if kept:
        more += ["", build_table(("Versions kept", "Reason"), kept)]
    print_fields(output, plan, facts, "", *more)


def _job_row(job: Mapping[str, Any]) -> list[object]:
    result = job.get("result") or {}
    started, ended = job.get("started_ms"), job.get("finished_ms")
    seconds = f"{(ended - started) / 1000:.1f}" if started and ended else None
    facts = [job["job_id"], job["job_type"], format_name(parse_name(job["table"])), job["state"]]
    return [
        *facts,
        format_time(job["creation_ms"]),
        seconds,
        *(result.get(name) for name in _RESULTS),
        job["submitted_by"],
    ]
