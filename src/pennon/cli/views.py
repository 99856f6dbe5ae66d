"""``pennon views``: create, show, refresh and drop materialized views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.job_options import ClusterOption, ConcurrencyOption, PriorityOption, TimeoutOption, WaitOption
from pennon.cli.jobs import follow_or_print
from pennon.cli.names import format_name, namespace_route, parse_name, parse_table
from pennon.cli.output import (
    OutputFormat,
    OutputOption,
    build_table,
    format_time,
    print_fields,
    print_list,
    print_result,
)
from pennon.cli.servers import YesOption, complete_namespaces, complete_tables, with_server, without_none
from pennon.core.identifiers import format_identifier
from pennon.core.settings import SettingsError

if TYPE_CHECKING:
    from pennon.client.queries import Query
    from pennon.client.reports import ViewSource
    from pennon.client.transport import JsonObject, Transport
    from pennon.client.view_requests import RefreshOptions
    from pennon.core.identifiers import Identifier

app = typer.Typer(no_args_is_help=True)

_LABELS = {
    "kind": "Kind",
    "query": "Query",
    "incremental": "Incremental refresh",
    "rebuild_reason": "Rebuild reason",
    "state": "State",
    "reason": "Reason",
    "version": "Version",
    "auto_refresh": "Auto refresh",
    "schedule": "Schedule (UTC)",
    "on_schema_change": "On schema change",
    "active_job": "Running job",
    "failed_job": "Failed job",
}
_PLAN = ("mode", "reason", "rows_to_add", "rows_to_update", "rows_to_remove", "udf_calls", "source_version")

ViewArgument = Annotated[
    str, typer.Argument(metavar="VIEW", help="Name of the view, such as shop.joy.", autocompletion=complete_tables)
]
ScheduleOption = Annotated[
    str | None,
    typer.Option("--schedule", metavar="CRON", help="Cron schedule of its refreshes in UTC, such as '0 3 * * *'."),
]


@app.callback()
def describe() -> None:
    """List, create, refresh, alter and drop materialized views."""


@app.command("list", epilog=examples("pennon views list", "pennon views list shop --output json"))
@with_server
def list_views(
    server: Transport,
    namespace: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE",
            help="Only views directly in this namespace; by default the root.",
            autocompletion=complete_namespaces,
        ),
    ] = "$",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most views to list.")] = 100,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the materialized views in the root or in a namespace, and their freshness."""
    above = parse_name(namespace)
    names = server.get_all(namespace_route(above, "materialized_view/list"), "views", limit)
    found = [_summary(server, (*above, name)) for name in names]
    rows = [(row["name"], row["kind"], row["state"], format_time(row["refreshed_at_millis"])) for row in found]
    empty = "No materialized views. Create one with `pennon views create VIEW`."
    print_list(output, found, ("View", "Kind", "State", "Refreshed"), rows, empty)


@app.command("show", epilog=examples("pennon views show shop.joyful"))
@with_server
def show_view(server: Transport, view: ViewArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the query, the freshness and the sources of a materialized view."""
    found = server.read(_route(parse_table(view), "describe"))
    facts = [(label, found.get(name)) for name, label in _LABELS.items() if found.get(name) is not None]
    refreshed = ("Refreshed", format_time(found.get("refreshed_at_millis")) or "never")
    sources = [
        (source["table"], ", ".join(source["columns"]), source.get("version"), source.get("newest_version"))
        for source in cast("list[ViewSource]", found["sources"])
    ]
    headings = ("Source", "Columns", "Holds version", "Newest version")
    print_fields(output, found, [*facts, refreshed], "", build_table(headings, sources))


@app.command(
    epilog=examples(
        "pennon views create shop.joyful --source shop.reviews --columns tea,text --where 'joy > 0.5'",
        "pennon views create shop.counts --sql 'SELECT tea, count(*) AS n FROM shop.reviews GROUP BY tea'",
        "pennon views create shop.joyful --file joyful.sql --schedule '0 3 * * *' --no-data",
    )
)
@with_server
def create(
    server: Transport,
    view: ViewArgument,
    sql: Annotated[str | None, typer.Option("--sql", help="SELECT statement in Spark SQL.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="File with a SELECT statement.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="TABLE", help="Source table, instead of SQL.")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Columns of the source, comma-separated.")] = None,
    where: Annotated[str | None, typer.Option("--where", "-w", help="SQL filter for the source.")] = None,
    auto_refresh: Annotated[
        bool, typer.Option("--auto-refresh", help="Refresh it after commits to its sources.")
    ] = False,
    schedule: ScheduleOption = None,
    data: Annotated[
        bool, typer.Option("--data/--no-data", help="Compute it now, or leave it empty until its first refresh.")
    ] = True,
    wait: WaitOption = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create a materialized view of one table or of a SELECT, compute it, and wait for the job."""
    from pennon.client.transport import new_key
    from pennon.client.view_requests import query_body

    text = file.read_text(encoding="utf-8") if file is not None else sql
    if (sql is not None and file is not None) or (text is None) == (source is None):
        raise SettingsError("Define the view by exactly one of --sql, --file and --source.")
    if source is None and (columns is not None or where is not None):
        raise SettingsError("--columns and --where need --source; a SELECT has its own.")
    identifier = parse_table(view)
    body = query_body(_query_of(source, columns, where) if source is not None else None, text)
    body |= {"with_no_data": not data, "auto_refresh": auto_refresh}
    body |= {"schedule": schedule} if schedule is not None else {}
    response = server.post(_route(identifier, "create"), body, idempotency_key=new_key())
    if response.get("job_id"):
        _follow_or_print(server, identifier, response, wait, output)
        return
    name = format_name(identifier)
    print_result(output, {"name": name, "version": response.get("version")}, f"View {name} created, without rows.")


@app.command(epilog=examples("pennon views refresh shop.joyful", "pennon views refresh shop.joyful --full --no-wait"))
@with_server
def refresh(
    server: Transport,
    view: ViewArgument,
    full: Annotated[bool, typer.Option("--full", help="Recompute the whole view.")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="First refresh the views that it reads.")] = False,
    src_version: Annotated[
        int | None, typer.Option("--src-version", min=1, help="Version of the source to refresh to.")
    ] = None,
    priority: PriorityOption = 0,
    timeout: TimeoutOption = None,
    concurrency: ConcurrencyOption = None,
    cluster: ClusterOption = None,
    wait: WaitOption = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Refresh a materialized view, incrementally where its query allows it, and wait for the job.

    The exit code is 7 if the job fails; the view then keeps its rows. Ctrl-C stops waiting; the job continues.
    """
    from pennon.client.transport import new_key
    from pennon.client.view_requests import refresh_body

    identifier = parse_table(view)
    options: RefreshOptions = {"full": full, "cascade": cascade, "src_version": src_version, "priority": priority}
    options |= {"timeout": timeout, "concurrency": concurrency, "cluster": cluster}
    response = server.post(_route(identifier, "refresh"), refresh_body(options), idempotency_key=new_key())
    _follow_or_print(server, identifier, response, wait, output)


@app.command(epilog=examples("pennon views plan shop.joyful"))
@with_server
def plan(
    server: Transport,
    view: ViewArgument,
    full: Annotated[bool, typer.Option("--full", help="Plan to recompute the whole view.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what a refresh would do: incremental or not, why, and how many rows change."""
    found = server.read(_route(parse_table(view), "refresh"), {"full": full, "dry_run": True})
    rows = [(name.replace("_", " "), found[name]) for name in _PLAN if found.get(name) is not None]
    print_fields(output, found, rows)


@app.command(
    epilog=examples(
        "pennon views alter shop.joyful --auto-refresh", "pennon views alter shop.joyful --schedule '0 3 * * *'"
    )
)
@with_server
def alter(
    server: Transport,
    view: ViewArgument,
    auto_refresh: Annotated[
        bool | None, typer.Option("--auto-refresh/--no-auto-refresh", help="Refresh it after commits to its sources.")
    ] = None,
    schedule: ScheduleOption = None,
    no_schedule: Annotated[bool, typer.Option("--no-schedule", help="Remove its schedule.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Change how a materialized view is kept up to date."""
    identifier = parse_table(view)
    body = without_none({"auto_refresh": auto_refresh, "schedule": "" if no_schedule else schedule})
    view_now = server.post(_route(identifier, "alter"), body)
    data = {
        "name": format_name(identifier),
        "auto_refresh": view_now["auto_refresh"],
        "schedule": view_now.get("schedule"),
    }
    print_fields(output, data, [(_LABELS.get(key, "View"), value) for key, value in data.items()])


@app.command(epilog=examples("pennon views drop shop.joyful --yes", "pennon views drop shop.joyful --cascade --yes"))
@with_server
def drop(
    server: Transport,
    view: ViewArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop the views over it.")] = False,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Drop a materialized view; its sources stay."""
    identifier = parse_table(view)
    name = format_name(identifier)
    views = " and every view over it" if cascade else ""
    confirm(f"This drops the view {name}{views}.", yes=yes)
    server.post(_route(identifier, "drop"), {"cascade": cascade})
    print_result(output, {"name": name, "dropped": True}, f"View {name} dropped.")


def _route(identifier: Identifier, verb: str) -> str:
    from pennon.client.view import view_route

    return view_route(identifier, verb)


def _summary(server: Transport, identifier: Identifier) -> dict[str, object]:
    described = server.read(_route(identifier, "describe"))
    fields = {name: described.get(name) for name in ("kind", "state", "reason", "version", "refreshed_at_millis")}
    return {"name": format_name(identifier), "id": format_identifier(identifier), **fields}


def _query_of(source: str, columns: str | None, where: str | None) -> Query:
    from pennon.client.queries import Query

    query = Query(parse_table(source))
    if columns is not None:
        query = query.select([name.strip() for name in columns.split(",")])
    return query if where is None else query.where(where)


def _follow_or_print(
    server: Transport, view: Identifier, response: JsonObject, wait: bool, output: OutputFormat
) -> None:
    from pennon.client.job import job_from_response

    job = job_from_response(server, response, job_type="refresh", table=format_identifier(view))
    follow_or_print(job, output, wait=wait)
