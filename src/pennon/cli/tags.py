"""``pennon tags``: names for versions of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict, cast

import typer

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.names import format_name, parse_table, table_route
from pennon.cli.output import OutputFormat, OutputOption, print_list, print_result
from pennon.cli.servers import BranchOption, TableArgument, YesOption, with_server

if TYPE_CHECKING:
    from pennon.client.transport import Transport
    from pennon.core.identifiers import Identifier

app = typer.Typer(no_args_is_help=True)

TagArgument = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.")]
VersionOption = Annotated[
    int | None, typer.Option("--version", min=1, help="Version to tag.", show_default="the newest")
]


class Tag(TypedDict):
    """A tag, or a version, with its branch."""

    tag: str
    version: int
    branch: str


@app.callback()
def describe() -> None:
    """List, create, move and delete tags of table versions."""


@app.command("list", epilog=examples("pennon tags list shop.teas"))
@with_server
def list_tags(server: Transport, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the tags of a table."""
    found = _all_tags(server, parse_table(table))
    rows = [list(tag.values()) for tag in found]
    empty = "No tags. Create one with `pennon tags create TABLE TAG`."
    print_list(output, found, ("Tag", "Version", "Branch"), rows, empty)


@app.command(epilog=examples("pennon tags create shop.teas opening-day", "pennon tags create shop.teas v1 --version 3"))
@with_server
def create(
    server: Transport,
    table: TableArgument,
    tag: TagArgument,
    version: VersionOption = None,
    branch: BranchOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Tag a version, by default the newest."""
    _put(server, "tags/create", parse_table(table), tag, version, branch, output)


@app.command(epilog=examples("pennon tags move shop.teas opening-day --version 4"))
@with_server
def move(
    server: Transport,
    table: TableArgument,
    tag: TagArgument,
    version: VersionOption = None,
    branch: BranchOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Move a tag to another version, by default the newest."""
    _put(server, "tags/update", parse_table(table), tag, version, branch, output)


@app.command(epilog=examples("pennon tags delete shop.teas opening-day --yes"))
@with_server
def delete(
    server: Transport,
    table: TableArgument,
    tag: TagArgument,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete a tag; the version stays until it is cleaned up."""
    identifier = parse_table(table)
    confirm(f"This deletes the tag {tag} of {format_name(identifier)}.", yes=yes)
    server.post(table_route(identifier, "tags/delete"), {"tag": tag})
    print_result(output, {"tag": tag, "deleted": True}, f"Tag {tag} deleted.")


def _all_tags(server: Transport, table: Identifier) -> list[Tag]:
    found: list[Tag] = []
    token: str | None = None
    while True:
        page = server.read(table_route(table, "tags/list"), {"page_token": token} if token else {})
        for name, tag in cast(dict[str, Tag], page.get("tags") or {}).items():
            found.append({"tag": name, "version": tag["version"], "branch": tag.get("branch") or "main"})
        token = cast("str | None", page.get("page_token"))
        if not token:
            return found


def _put(
    server: Transport,
    verb: str,
    table: Identifier,
    tag: str,
    version: int | None,
    branch: str | None,
    output: OutputFormat,
) -> None:
    on_branch = {"branch": branch} if branch else {}
    if version is None:
        newest = cast(dict[str, Tag], server.read(table_route(table, "version/describe"), on_branch))
        version = newest["version"]["version"]
    server.post(table_route(table, verb), {"tag": tag, "version": version, **on_branch})
    data: Tag = {"tag": tag, "version": version, "branch": branch or "main"}
    print_result(output, data, f"Tag {tag} is version {version}.")
