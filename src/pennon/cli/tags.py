"""``pennon tags``: names of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.names import parse_table, spell, table_route
from pennon.cli.output import Form, FormOption, note, show, table_of
from pennon.cli.servers import BranchOption, TableArgument, YesOption, with_server

if TYPE_CHECKING:
    from pennon.client.transport import Transport
    from pennon.core.identifiers import Identifier

app = typer.Typer(no_args_is_help=True)

TagArgument = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.")]
VersionOption = Annotated[
    int | None, typer.Option("--version", min=1, help="The version it names.", show_default="the newest")
]


@app.callback()
def describe() -> None:
    """Name versions of tables, and move or delete those names."""


@app.command("list", epilog=examples("pennon tags list shop.teas"))
@with_server
def list_tags(server: Transport, table: TableArgument, output: FormOption = Form.TABLE) -> None:
    """List the tags of a table."""
    found = _all_tags(server, parse_table(table))
    if not found and output is Form.TABLE:
        note("There are none. `pennon tags create TABLE TAG` makes one.")
        return
    show(output, found, table_of(("Tag", "Version", "Branch"), [list(tag.values()) for tag in found]))


@app.command(epilog=examples("pennon tags create shop.teas opening-day", "pennon tags create shop.teas v1 --version 3"))
@with_server
def create(
    server: Transport,
    table: TableArgument,
    tag: TagArgument,
    version: VersionOption = None,
    branch: BranchOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Name a version, by default the newest."""
    _put(server, "tags/create", parse_table(table), tag, version, branch, output)


@app.command(epilog=examples("pennon tags move shop.teas opening-day --version 4"))
@with_server
def move(
    server: Transport,
    table: TableArgument,
    tag: TagArgument,
    version: VersionOption = None,
    branch: BranchOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Let a tag name another version, by default the newest."""
    _put(server, "tags/update", parse_table(table), tag, version, branch, output)


@app.command(epilog=examples("pennon tags delete shop.teas opening-day --yes"))
@with_server
def delete(
    server: Transport, table: TableArgument, tag: TagArgument, yes: YesOption = False, output: FormOption = Form.TABLE
) -> None:
    """Delete a tag; the version stays, until it is cleaned up."""
    identifier = parse_table(table)
    confirm(f"This deletes the tag {tag} of {spell(identifier)}.", yes=yes)
    server.post(table_route(identifier, "tags/delete"), {"tag": tag})
    show(output, {"tag": tag, "deleted": True}, f"The tag {tag} is deleted.")


def _all_tags(server: Transport, table: Identifier) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token: str | None = None
    while True:
        answer = server.ask(table_route(table, "tags/list"), {"page_token": token} if token else {})
        for name, tag in (answer.get("tags") or {}).items():
            found.append({"tag": name, "version": tag["version"], "branch": tag.get("branch") or "main"})
        token = answer.get("page_token")
        if not token:
            return found


def _put(
    server: Transport,
    verb: str,
    table: Identifier,
    tag: str,
    version: int | None,
    branch: str | None,
    output: Form,
) -> None:
    place = {"branch": branch} if branch else {}
    if version is None:
        version = server.ask(table_route(table, "version/describe"), place)["version"]["version"]
    server.post(table_route(table, verb), {"tag": tag, "version": version, **place})
    data = {"tag": tag, "version": version, "branch": branch or "main"}
    show(output, data, f"The tag {tag} is version {version}.")
