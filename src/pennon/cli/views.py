"""``pennon views``: tables that are computed from others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.job_options import ClusterOption, ConcurrencyOption, PriorityOption, TimeoutOption, WaitOption
from pennon.cli.jobs import follow
from pennon.cli.names import namespace_route, parse_name, parse_table, spell
from pennon.cli.output import Form, FormOption, note, show, table_of, time_text
from pennon.cli.servers import YesOption, complete_namespaces, complete_tables, with_server
from pennon.core.identifiers import format_identifier
from pennon.core.settings import SettingsError

if TYPE_CHECKING:
    from pennon.client.transport import Transport
    from pennon.client.view_requests import RefreshOptions
    from pennon.core.identifiers import Identifier

app = typer.Typer(no_args_is_help=True)

_FACTS = {
    "kind": "Kind",
    "query": "Query",
    "incremental": "Follows changes",
    "rebuild_reason": "Why not",
    "state": "State",
    "reason": "Reason",
    "version": "Version",
    "auto_refresh": "Follows commits",
    "schedule": "Schedule (UTC)",
    "on_schema_change": "On schema change",
    "active_job": "Job under way",
    "failed_job": "Job that failed",
}
_PLAN = ("mode", "reason", "rows_to_add", "rows_to_update", "rows_to_remove", "udf_calls", "source_version")

ViewArgument = Annotated[
    str, typer.Argument(metavar="VIEW", help="Name of the view, such as shop.joy.", autocompletion=complete_tables)
]
ScheduleOption = Annotated[
    str | None, typer.Option("--schedule", metavar="CRON", help="When it is refreshed, such as '0 3 * * *', in UTC.")
]


@app.callback()
def describe() -> None:
    """Create, show, refresh and drop materialized views."""


@app.command("list", epilog=examples("pennon views list", "pennon views list shop --output json"))
@with_server
def list_views(
    server: Transport,
    namespace: Annotated[
        str,
        typer.Argument(metavar="NAMESPACE", help="Those right in this one.", autocompletion=complete_namespaces),
    ] = "$",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most views to list.")] = 100,
    output: FormOption = Form.TABLE,
) -> None:
    """List the views of the root, or of a namespace, and how fresh they are."""
    above = parse_name(namespace)
    names = server.get_all(namespace_route(above, "materialized_view/list"), "views", limit)
    found = [_summary((*above, name), server.ask(_route((*above, name), "describe"))) for name in names]
    if not found and output is Form.TABLE:
        note("There are none. `pennon views create VIEW` makes one.")
        return
    rows = [(row["name"], row["kind"], row["state"], time_text(row["refreshed_at_millis"])) for row in found]
    show(output, found, table_of(("View", "Kind", "State", "Refreshed"), rows))


@app.command("show", epilog=examples("pennon views show shop.joyful"))
@with_server
def show_view(server: Transport, view: ViewArgument, output: FormOption = Form.TABLE) -> None:
    """Show what a view is made of, and how fresh it is."""
    found = server.ask(_route(parse_table(view), "describe"))
    facts = [(label, found[name]) for name, label in _FACTS.items() if found.get(name) is not None]
    refreshed = ("Refreshed", time_text(found.get("refreshed_at_millis")) or "never")
    sources = [
        (source["table"], ", ".join(source["columns"]), source.get("version"), source.get("newest_version"))
        for source in found["sources"]
    ]
    headings = ("Source", "Columns", "Holds version", "Newest version")
    show(output, found, table_of(("What", "Value"), [*facts, refreshed]), "", table_of(headings, sources))


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
    sql: Annotated[str | None, typer.Option("--sql", help="A SELECT in Spark's SQL.")] = None,
    file: Annotated[Path | None, typer.Option("--file", exists=True, dir_okay=False, help="A file with it.")] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="TABLE", help="Or rows of one table, which are followed.")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Of the source: names, with commas.")] = None,
    where: Annotated[str | None, typer.Option("--where", "-w", help="Of the source: an SQL condition.")] = None,
    auto_refresh: Annotated[bool, typer.Option("--auto-refresh", help="Follow commits to its sources.")] = False,
    schedule: ScheduleOption = None,
    data: Annotated[bool, typer.Option("--data/--no-data", help="Fill it at once.")] = True,
    wait: WaitOption = True,
    output: FormOption = Form.TABLE,
) -> None:
    """Create a view of one table or of any SELECT, fill it, and wait for that."""
    from pennon.client.transport import new_key
    from pennon.client.view_requests import query_body

    text = file.read_text(encoding="utf-8") if file is not None else sql
    if (sql is not None and file is not None) or (text is None) == (source is None):
        raise SettingsError("Say what the view shows: one of --sql, --file and --source.")
    if source is None and (columns is not None or where is not None):
        raise SettingsError("--columns and --where go with --source; a SELECT says them itself.")
    identifier = parse_table(view)
    body = query_body(_query_of(source, columns, where) if source is not None else None, text)
    body |= {"with_no_data": not data, "auto_refresh": auto_refresh}
    body |= {"schedule": schedule} if schedule is not None else {}
    answer = server.post(_route(identifier, "create"), body, idempotency_key=new_key())
    if answer.get("job_id"):
        _hand_over(server, identifier, answer, wait, output)
        return
    name = spell(identifier)
    show(output, {"name": name, "version": answer.get("version")}, f"The view {name} is created, without rows yet.")


@app.command(epilog=examples("pennon views refresh shop.joyful", "pennon views refresh shop.joyful --full --no-wait"))
@with_server
def refresh(
    server: Transport,
    view: ViewArgument,
    full: Annotated[bool, typer.Option("--full", help="Compute the whole view, whatever changed.")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="First refresh the views that it reads.")] = False,
    src_version: Annotated[
        int | None, typer.Option("--src-version", min=1, help="Version of the source that it shall hold.")
    ] = None,
    priority: PriorityOption = 0,
    timeout: TimeoutOption = None,
    concurrency: ConcurrencyOption = None,
    cluster: ClusterOption = None,
    wait: WaitOption = True,
    output: FormOption = Form.TABLE,
) -> None:
    """Bring a view up to date, and wait for it; where the query allows it, only what changed is computed.

    The exit code is 7 when the job fails; the view then keeps what it had. An interrupt ends the waiting, not the job.
    """
    from pennon.client.transport import new_key
    from pennon.client.view_requests import refresh_body

    identifier = parse_table(view)
    options: RefreshOptions = {"full": full, "cascade": cascade, "src_version": src_version, "priority": priority}
    options |= {"timeout": timeout, "concurrency": concurrency, "cluster": cluster}
    answer = server.post(_route(identifier, "refresh"), refresh_body(options), idempotency_key=new_key())
    _hand_over(server, identifier, answer, wait, output)


@app.command(epilog=examples("pennon views plan shop.joyful"))
@with_server
def plan(
    server: Transport,
    view: ViewArgument,
    full: Annotated[bool, typer.Option("--full", help="Of the whole view, whatever changed.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Tell what a refresh would do, without doing it."""
    found = server.ask(_route(parse_table(view), "refresh"), {"full": full, "dry_run": True})
    rows = [(name.replace("_", " "), found[name]) for name in _PLAN if found.get(name) is not None]
    show(output, found, table_of(("What", "Value"), rows))


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
        bool | None, typer.Option("--auto-refresh/--no-auto-refresh", help="Follow commits to its sources.")
    ] = None,
    schedule: ScheduleOption = None,
    no_schedule: Annotated[bool, typer.Option("--no-schedule", help="End its schedule.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Change how a view is kept up to date."""
    identifier = parse_table(view)
    wanted = {"auto_refresh": auto_refresh, "schedule": "" if no_schedule else schedule}
    body = {name: value for name, value in wanted.items() if value is not None}
    answer = server.post(_route(identifier, "alter"), body)
    data = {"name": spell(identifier), "auto_refresh": answer["auto_refresh"], "schedule": answer.get("schedule")}
    show(output, data, table_of(("What", "Value"), [(_FACTS.get(key, "View"), value) for key, value in data.items()]))


@app.command(epilog=examples("pennon views drop shop.joyful --yes", "pennon views drop shop.joyful --cascade --yes"))
@with_server
def drop(
    server: Transport,
    view: ViewArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop the views over it.")] = False,
    yes: YesOption = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Drop a view with its rows; its sources stay."""
    identifier = parse_table(view)
    name = spell(identifier)
    above = " and every view over it" if cascade else ""
    confirm(f"This drops the view {name}{above}.", yes=yes)
    server.post(_route(identifier, "drop"), {"cascade": cascade})
    show(output, {"name": name, "dropped": True}, f"The view {name} is dropped.")


def _route(identifier: Identifier, verb: str) -> str:
    from pennon.client.view import view_route

    return view_route(identifier, verb)


def _summary(identifier: Identifier, described: dict[str, Any]) -> dict[str, Any]:
    told = {name: described.get(name) for name in ("kind", "state", "reason", "version", "refreshed_at_millis")}
    return {"name": spell(identifier), "id": format_identifier(identifier), **told}


def _query_of(source: str, columns: str | None, where: str | None) -> Any:
    from pennon.client.queries import Query

    query = Query(parse_table(source))
    if columns is not None:
        query = query.select([name.strip() for name in columns.split(",")])
    return query if where is None else query.where(where)


def _hand_over(server: Transport, view: Identifier, answer: dict[str, Any], wait: bool, output: Form) -> None:
    """Follow the job that fills a view, or tell its id."""
    from pennon.client.job import submitted

    job = submitted(server, answer, job_type="refresh", table=format_identifier(view))
    if wait:
        follow(job, output)
        return
    if output is Form.TABLE:
        note("The job is submitted; `pennon jobs watch` follows it. Its id:")
    show(output, {"job_id": job.id}, job.id)
