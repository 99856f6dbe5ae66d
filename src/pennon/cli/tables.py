"""``pennon tables``: what tables there are, and how they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.names import namespace_route, parse_name, parse_table, spell, table_route
from pennon.cli.output import Form, FormOption, note, show, table_of, time_text
from pennon.cli.servers import BranchOption, TableArgument, YesOption, complete_namespaces, with_server
from pennon.core.identifiers import DEFAULT_DELIMITER, Identifier, format_identifier

if TYPE_CHECKING:
    from pennon.client.transport import Transport

app = typer.Typer(no_args_is_help=True)

_STATES = ("rows", "computed", "failed", "stale", "missing")
_ERROR_COLUMNS = ("Row", "Fragment", "Column", "Error", "Message", "When", "Job")
_FACTS = {
    "version": "Version",
    "rows": "Rows",
    "bytes": "Bytes",
    "indices": "Indices",
    "managed": "Commits through Pennon",
    "location": "Location",
}


@app.callback()
def describe() -> None:
    """List, show, rename and drop tables, and tell how their feature columns are."""


@app.command("list", epilog=examples("pennon tables list", "pennon tables list shop --output json"))
@with_server
def list_tables(
    server: Transport,
    namespace: Annotated[
        str | None,
        typer.Argument(metavar="NAMESPACE", help="Only those right in this one.", autocompletion=complete_namespaces),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most tables to list.")] = 1000,
    output: FormOption = Form.TABLE,
) -> None:
    """List all tables, or those of a namespace."""
    found = [{"name": spell(table), "id": format_identifier(table)} for table in _tables(server, namespace, limit)]
    if not found and output is Form.TABLE:
        note("There are none.")
        return
    show(output, found, table_of(("Table",), [(row["name"],) for row in found]))


@app.command("show", epilog=examples("pennon tables show shop.teas", "pennon tables show shop.teas --tag opening-day"))
@with_server
def show_table(
    server: Transport,
    table: TableArgument,
    version: Annotated[int | None, typer.Option("--version", min=1, help="As it was at this version.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME", help="As it was at this tag.")] = None,
    branch: BranchOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Show where a table is, how large it is, and its columns."""
    identifier = parse_table(table)
    place = {name: value for name, value in (("version", version), ("tag", tag), ("branch", branch)) if value}
    described = server.ask(table_route(identifier, "describe"), {**place, "load_detailed_metadata": True})
    data = {"name": spell(identifier), "id": format_identifier(identifier), **_facts(described)}
    if not place and not described.get("is_only_declared"):
        data |= _sizes(server.ask(table_route(identifier, "stats")))
    facts = [(label, data[name]) for name, label in _FACTS.items() if data.get(name) is not None]
    properties = [(f"Property {name}", value) for name, value in data["properties"].items()]
    columns = [(column["name"], column["type"], "" if column["nullable"] else "not null") for column in data["columns"]]
    show(output, data, table_of(("What", "Value"), [*facts, *properties]), "", table_of(_COLUMN_HEADINGS, columns))


@app.command(epilog=examples("pennon tables rename shop.teas shop.tea", "pennon tables rename shop.teas archive.teas"))
@with_server
def rename(
    server: Transport,
    table: TableArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="Name it gets, such as shop.tea.")],
    output: FormOption = Form.TABLE,
) -> None:
    """Give a table another name, also in another namespace; its data stays where it is."""
    old, new = parse_table(table), parse_table(new_name)
    server.post(table_route(old, "rename"), {"new_table_name": new[-1], "new_namespace_id": list(new[:-1])})
    show(output, {"name": spell(new), "was": spell(old)}, f"The table {spell(old)} is now {spell(new)}.")


@app.command(epilog=examples("pennon tables drop shop.teas --yes", "pennon tables drop shop.teas --cascade --yes"))
@with_server
def drop(
    server: Transport,
    table: TableArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop the views over it.")] = False,
    yes: YesOption = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Drop a table with its data; one that views need is refused without --cascade."""
    identifier = parse_table(table)
    name = spell(identifier)
    above = " and every view over it" if cascade else ""
    confirm(f"This drops the table {name} with all its versions{above}.", yes=yes)
    server.post(table_route(identifier, "drop"), {"cascade": cascade} if cascade else None)
    show(output, {"name": name, "dropped": True}, f"The table {name} is dropped.")


@app.command(epilog=examples("pennon tables state shop.reviews joy"))
@with_server
def state(
    server: Transport,
    table: TableArgument,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="Name of the column.")],
    branch: BranchOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Tell how far a feature column is computed."""
    body = {"column": column, **({"branch": branch} if branch else {})}
    found = server.ask(table_route(parse_table(table), "column_state"), body)
    rows = [*((name.capitalize(), f"{found[name]:,}") for name in _STATES), ("Function", found.get("function"))]
    show(output, found, table_of(("What", "Value"), [*rows, ("Job", found.get("active_job"))]))


@app.command(epilog=examples("pennon tables errors shop.reviews", "pennon tables errors shop.reviews --column joy"))
@with_server
def errors(
    server: Transport,
    table: TableArgument,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="Only those of a column.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only those of a job.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most errors to list.")] = 100,
    output: FormOption = Form.TABLE,
) -> None:
    """List the rows for which functions raised errors."""
    body = {name: value for name, value in (("column", column), ("job_id", job)) if value is not None}
    found = server.ask_all(table_route(parse_table(table), "errors"), body, "records", limit)
    if not found and output is Form.TABLE:
        note("There are none.")
        return
    show(output, found, table_of(_ERROR_COLUMNS, map(_error_row, found)))


_COLUMN_HEADINGS = ("Column", "Type", "")


def _tables(server: Transport, namespace: str | None, limit: int) -> Iterator[Identifier]:
    if namespace is None:
        for name in server.get_all("/v1/table", "tables", limit):
            yield tuple(name.split(DEFAULT_DELIMITER))
        return
    above = parse_name(namespace)
    for name in server.get_all(namespace_route(above, "table/list"), "tables", limit):
        yield (*above, name)


def _facts(described: dict[str, Any]) -> dict[str, Any]:
    fields = (described.get("schema") or {}).get("fields") or []
    return {
        "version": described.get("version"),
        "location": described.get("location"),
        "managed": described.get("managed_versioning"),
        "declared_only": described.get("is_only_declared"),
        "properties": described.get("properties") or {},
        "columns": [
            {"name": field["name"], "type": _type_text(field["type"]), "nullable": field.get("nullable", True)}
            for field in fields
        ],
    }


def _sizes(stats: dict[str, Any]) -> dict[str, Any]:
    return {"rows": stats["num_rows"], "bytes": stats["total_bytes"], "indices": stats["num_indices"]}


def _type_text(given: dict[str, Any]) -> str:
    """Return a type as Arrow writes it, or as the server calls it when this Arrow does not know it."""
    from lance_namespace.errors import InvalidInputError

    from pennon.tables.arrow_json import type_from_json

    try:
        return str(type_from_json(given))
    except InvalidInputError:
        return str(given.get("type"))


def _error_row(record: dict[str, Any]) -> list[object]:
    names = ("row_offset", "fragment_id", "column", "error_type", "error_message")
    when = time_text(record.get("created_at_millis"))
    return [*(record.get(name) for name in names), when, record.get("job_id")]
