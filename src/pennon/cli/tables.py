"""``pennon tables``: list, show, rename and drop tables, and the state of their feature columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Required, TypedDict, cast

import typer

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
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
    YesOption,
    complete_namespaces,
    complete_tables,
    with_server,
    without_none,
)
from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier, format_identifier

if TYPE_CHECKING:
    from rich.table import Table

    from pennon.client.transport import Transport

app = typer.Typer(no_args_is_help=True)

_STATES = ("rows", "computed", "failed", "stale", "missing")
_ERROR_COLUMNS = ("Row", "Fragment", "Column", "Error", "Message", "When", "Job")
_HEALTH = ("version", "fragments", "small_fragments", "rows", "deleted_rows", "bytes_live", "bytes_deleted", "versions")
_INDEX = ("name", "index_type", "segments", "rows_indexed", "rows_unindexed", "stale_entries")
_INDEX_COLUMNS = ("Index", "Type", "Segments", "Rows indexed", "Rows unindexed", "Stale entries")
_COUNTERS = ("fragments", "small_fragments", "rows", "deleted_rows", "unindexed_rows", "bytes")
_HEALTH_COLUMNS = (
    *("Table", "Fragments", "Small", "Rows", "Deleted rows", "Unindexed rows", "Bytes", "Versions", "Next"),
)
_LABELS = {
    "version": "Version",
    "rows": "Rows",
    "bytes": "Bytes",
    "indices": "Indices",
    "managed": "Managed by Pennon",
    "location": "Location",
}


class _Field(TypedDict, total=False):
    name: Required[str]
    type: Required[dict[str, object]]
    nullable: bool


@app.callback()
def describe() -> None:
    """List, show, rename and drop tables; show the state and the errors of feature columns."""


@app.command("list", epilog=examples("pennon tables list", "pennon tables list shop --output json"))
@with_server
def list_tables(
    server: Transport,
    namespace: Annotated[
        str | None,
        typer.Argument(
            metavar="NAMESPACE", help="Only tables directly in this namespace.", autocompletion=complete_namespaces
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most tables to list.")] = 1000,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List all tables, or those of a namespace."""
    found = [
        {"name": format_name(table), "id": format_identifier(table)} for table in _tables(server, namespace, limit)
    ]
    print_list(output, found, ("Table",), [(row["name"],) for row in found], "No tables found.")


@app.command("show", epilog=examples("pennon tables show shop.teas", "pennon tables show shop.teas --tag opening-day"))
@with_server
def show_table(
    server: Transport,
    table: TableArgument,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Show this version.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="Show the version with this tag.")] = None,
    branch: BranchOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the location, size, properties and columns of a table."""
    identifier = parse_table(table)
    at = {name: value for name, value in (("version", version), ("tag", tag), ("branch", branch)) if value}
    described = server.read(table_route(identifier, "describe"), {**at, "load_detailed_metadata": True})
    properties = cast(dict[str, str], described.get("properties") or {})
    columns = _columns(described)
    data = {
        "name": format_name(identifier),
        "id": format_identifier(identifier),
        "version": described.get("version"),
        "location": described.get("location"),
        "managed": described.get("managed_versioning"),
        "declared_only": described.get("is_only_declared"),
        "properties": properties,
        "columns": columns,
    }
    if not at and not data["declared_only"]:
        stats = server.read(table_route(identifier, "stats"))
        data |= {"rows": stats["num_rows"], "bytes": stats["total_bytes"], "indices": stats["num_indices"]}
    facts = [(label, data[name]) for name, label in _LABELS.items() if data.get(name) is not None]
    facts += [(f"Property {name}", value) for name, value in properties.items()]
    rows = [(column["name"], column["type"], "" if column["nullable"] else "not null") for column in columns]
    print_fields(output, data, facts, "", build_table(("Column", "Type", ""), rows))


@app.command(epilog=examples("pennon tables rename shop.teas shop.tea", "pennon tables rename shop.teas archive.teas"))
@with_server
def rename(
    server: Transport,
    table: TableArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="New name, such as shop.tea.")],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Rename a table, also to another namespace; its data is not moved."""
    old, new = parse_table(table), parse_table(new_name)
    server.post(table_route(old, "rename"), {"new_table_name": new[-1], "new_namespace_id": list(new[:-1])})
    print_result(
        output,
        {"name": format_name(new), "was": format_name(old)},
        f"Table {format_name(old)} renamed to {format_name(new)}.",
    )


@app.command(epilog=examples("pennon tables drop shop.teas --yes", "pennon tables drop shop.teas --cascade --yes"))
@with_server
def drop(
    server: Transport,
    table: TableArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop the materialized views over it.")] = False,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Drop a table and its data; a table with views over it needs --cascade."""
    identifier = parse_table(table)
    name = format_name(identifier)
    views = " and every view over it" if cascade else ""
    confirm(f"This drops the table {name} with all its versions{views}.", yes=yes)
    server.post(table_route(identifier, "drop"), {"cascade": cascade} if cascade else None)
    print_result(output, {"name": name, "dropped": True}, f"Table {name} dropped.")


@app.command(epilog=examples("pennon tables state shop.reviews joy"))
@with_server
def state(
    server: Transport,
    table: TableArgument,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="Name of the column.")],
    branch: BranchOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the state of a feature column: rows computed, failed, stale and missing."""
    body = without_none({"column": column, "branch": branch})
    found = server.read(table_route(parse_table(table), "column_state"), body)
    rows = [*((name.capitalize(), f"{found[name]:,}") for name in _STATES), ("Function", found.get("function"))]
    print_fields(output, found, [*rows, ("Job", found.get("active_job"))])


@app.command(epilog=examples("pennon tables errors shop.reviews", "pennon tables errors shop.reviews --column joy"))
@with_server
def errors(
    server: Transport,
    table: TableArgument,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="Only errors of this column.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only errors of this job.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most errors to list.")] = 100,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the rows for which UDFs raised errors."""
    body = without_none({"column": column, "job_id": job})
    found = server.read_all(table_route(parse_table(table), "errors"), body, "records", limit)
    print_list(output, found, _ERROR_COLUMNS, map(_error_row, found), "No errors found.")


@app.command(epilog=examples("pennon tables health", "pennon tables health shop.teas"))
@with_server
def health(
    server: Transport,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="Table; without it, the worst tables are listed.", autocompletion=complete_tables
        ),
    ] = None,
    branch: BranchOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most tables to list.")] = 20,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the health of a table and what maintenance would do, or list the tables that need it most."""
    if table is None:
        found = server.read(namespace_route(ROOT, "health"), {"limit": limit})
        tables = cast("list[dict[str, Any]]", found["tables"])
        print_list(output, tables, _HEALTH_COLUMNS, map(_health_row, tables), "No tables found.")
        return
    measured = server.read(table_route(parse_table(table), "health"), without_none({"branch": branch}))
    facts: list[tuple[str, object]] = [(name.replace("_", " ").capitalize(), f"{measured[name]:,}") for name in _HEALTH]
    due = [(step["action"], step["reason"]) for step in cast("list[dict[str, str]]", measured["due"])]
    indices = cast("list[dict[str, Any]]", measured["indices"])
    more: list[Table | str] = [build_table(("Due", "Reason"), due)] if due else ["Nothing is due."]
    if indices:
        rows = [[index[name] for name in _INDEX] for index in indices]
        more += [
            "",
            build_table(("Index", "Type", "Segments", "Rows indexed", "Rows unindexed", "Stale entries"), rows),
        ]
    facts += [("Last maintenance", _last_run(measured)), ("Next maintenance", _next_run(measured))]
    print_fields(output, measured, facts, "", *more)


def _tables(server: Transport, namespace: str | None, limit: int) -> Iterator[Identifier]:
    if namespace is None:
        for name in server.get_all("/v1/table", "tables", limit):
            yield tuple(name.split(DEFAULT_DELIMITER))
        return
    above = parse_name(namespace)
    for name in server.get_all(namespace_route(above, "table/list"), "tables", limit):
        yield (*above, name)


def _columns(described: Mapping[str, object]) -> list[dict[str, object]]:
    schema = cast(dict[str, list[_Field]], described.get("schema") or {})
    return [
        {"name": field["name"], "type": _type_text(field["type"]), "nullable": field.get("nullable", True)}
        for field in schema.get("fields") or []
    ]


def _type_text(given: dict[str, object]) -> str:
    """Return a type as Arrow writes it, or its name if this version of Arrow does not have it."""
    from lance_namespace.errors import InvalidInputError

    from pennon.tables.arrow_json import type_from_json

    try:
        return str(type_from_json(given))
    except InvalidInputError:
        return str(given.get("type"))


def _error_row(record: Mapping[str, object]) -> list[object]:
    names = ("row_offset", "fragment_id", "column", "error_type", "error_message")
    return [*(record.get(name) for name in names), format_time(record.get("created_at_millis")), record.get("job_id")]


def _health_row(found: Mapping[str, Any]) -> list[object]:
    name = format_name(found["id"]) + (f" ({found['branch']})" if found["branch"] else "")
    health = found.get("health") or {}
    return [name, *(health.get(field) for field in _COUNTERS), found["versions"], found.get("due")]


def _last_run(measured: Mapping[str, Any]) -> str | None:
    run = measured.get("active") or measured.get("last")
    if not run:
        return None
    return f"{run['job_type']} {run['state']}, {format_time(run.get('finished_at_millis') or run['created_at_millis'])}"


def _next_run(measured: Mapping[str, Any]) -> str:
    following = measured.get("next") or {}
    return " ".join(filter(None, (format_time(following.get("at_millis")), following.get("reason"))))
