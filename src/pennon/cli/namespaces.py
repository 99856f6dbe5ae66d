"""``pennon namespaces``: what tables are kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from lance_namespace.errors import InvalidInputError

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.names import namespace_route, parse_name, spell
from pennon.cli.output import Form, FormOption, note, show, table_of
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
        str, typer.Argument(metavar="NAMESPACE", help="Those in this one.", autocompletion=complete_namespaces)
    ] = "$",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most namespaces to list.")] = 1000,
    output: FormOption = Form.TABLE,
) -> None:
    """List the namespaces at the root, or in a namespace."""
    above = parse_name(parent)
    names = server.get_all(namespace_route(above, "list"), "namespaces", limit)
    found = [{"name": spell((*above, name)), "id": format_identifier((*above, name))} for name in names]
    if not found and output is Form.TABLE:
        note("There are none. `pennon namespaces create NAMESPACE` makes one.")
        return
    show(output, found, table_of(("Namespace",), [(row["name"],) for row in found]))


@app.command("show", epilog=examples("pennon namespaces show shop"))
@with_server
def show_namespace(server: Transport, namespace: NamespaceArgument, output: FormOption = Form.TABLE) -> None:
    """Show the properties of a namespace."""
    identifier = parse_name(namespace)
    found = server.ask(namespace_route(identifier, "describe"))
    properties = found.get("properties") or {}
    data = {"name": spell(identifier), "id": format_identifier(identifier), "properties": properties}
    show(output, data, table_of(("Property", "Value"), properties.items()))


@app.command(epilog=examples("pennon namespaces create shop", "pennon namespaces create shop.old --property owner=ada"))
@with_server
def create(
    server: Transport,
    namespace: NamespaceArgument,
    given: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Be content when it is there already.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Create a namespace."""
    identifier = parse_name(namespace)
    body = {"mode": "exist_ok" if exist_ok else "create", "properties": parse_properties(given or [])}
    server.post(namespace_route(identifier, "create"), body)
    show(output, {"name": spell(identifier), **body}, f"The namespace {spell(identifier)} is there.")


@app.command(epilog=examples("pennon namespaces drop shop.old --yes", "pennon namespaces drop shop --cascade --yes"))
@with_server
def drop(
    server: Transport,
    namespace: NamespaceArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop all that is in it.")] = False,
    yes: YesOption = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Drop a namespace that is empty, or with --cascade one with all its tables."""
    identifier = parse_name(namespace)
    name = spell(identifier)
    what = "with all tables and namespaces in it" if cascade else "if it is empty"
    confirm(f"This drops the namespace {name}, {what}.", yes=yes)
    server.post(namespace_route(identifier, "drop"), {"behavior": "cascade" if cascade else "restrict"})
    show(output, {"name": name, "dropped": True}, f"The namespace {name} is dropped.")


def parse_properties(given: list[str]) -> dict[str, str]:
    """Return properties that were written as NAME=VALUE."""
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise InvalidInputError(f"--property is {name + equals!r}; write NAME=VALUE.")
    return {name: value for name, _, value in pairs}
