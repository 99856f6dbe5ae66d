"""``pennon namespaces``: list, show, create and drop namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer
from lance_namespace.errors import InvalidInputError

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.names import format_name, namespace_route, parse_name
from pennon.cli.output import OutputFormat, OutputOption, build_table, print_list, print_result
from pennon.cli.servers import YesOption, complete_namespaces, with_server
from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from pennon.client.transport import Transport

app = typer.Typer(no_args_is_help=True)

NamespaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE", help="Name of the namespace, such as shop.old.", autocompletion=complete_namespaces
    ),
]


@app.callback()
def describe() -> None:
    """List, show, create and drop namespaces."""


@app.command("list", epilog=examples("pennon namespaces list", "pennon namespaces list shop --output json"))
@with_server
def list_namespaces(
    server: Transport,
    parent: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE", help="Parent namespace; by default the root.", autocompletion=complete_namespaces
        ),
    ] = "$",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most namespaces to list.")] = 1000,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the top-level namespaces, or those in a namespace."""
    above = parse_name(parent)
    names = server.get_all(namespace_route(above, "list"), "namespaces", limit)
    found = [{"name": format_name((*above, name)), "id": format_identifier((*above, name))} for name in names]
    empty = "No namespaces. Create one with `pennon namespaces create NAMESPACE`."
    print_list(output, found, ("Namespace",), [(row["name"],) for row in found], empty)


@app.command("show", epilog=examples("pennon namespaces show shop"))
@with_server
def show_namespace(server: Transport, namespace: NamespaceArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the properties of a namespace."""
    identifier = parse_name(namespace)
    found = server.read(namespace_route(identifier, "describe"))
    properties = cast(dict[str, str], found.get("properties") or {})
    data = {"name": format_name(identifier), "id": format_identifier(identifier), "properties": properties}
    print_result(output, data, build_table(("Property", "Value"), properties.items()))


@app.command(epilog=examples("pennon namespaces create shop", "pennon namespaces create shop.old --property owner=ada"))
@with_server
def create(
    server: Transport,
    namespace: NamespaceArgument,
    given: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Succeed if it already exists.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create a namespace."""
    identifier = parse_name(namespace)
    body = {"mode": "exist_ok" if exist_ok else "create", "properties": parse_properties(given or [])}
    server.post(namespace_route(identifier, "create"), body)
    print_result(output, {"name": format_name(identifier), **body}, f"Namespace {format_name(identifier)} exists.")


@app.command(epilog=examples("pennon namespaces drop shop.old --yes", "pennon namespaces drop shop --cascade --yes"))
@with_server
def drop(
    server: Transport,
    namespace: NamespaceArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop the tables and namespaces in it.")] = False,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Drop an empty namespace, or with --cascade a namespace and everything in it."""
    identifier = parse_name(namespace)
    name = format_name(identifier)
    what = "and all tables and namespaces in it" if cascade else "if it is empty"
    confirm(f"This drops the namespace {name} {what}.", yes=yes)
    server.post(namespace_route(identifier, "drop"), {"behavior": "cascade" if cascade else "restrict"})
    print_result(output, {"name": name, "dropped": True}, f"Namespace {name} dropped.")


def parse_properties(given: list[str]) -> dict[str, str]:
    """Parse properties written as NAME=VALUE."""
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise InvalidInputError(f"Invalid --property {name + equals!r}: use NAME=VALUE.")
    return {name: value for name, _, value in pairs}
