"""``pennon versions``: list, restore and delete versions of tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from lance_namespace.errors import InvalidInputError

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.names import format_name, parse_table, table_route
from pennon.cli.output import OutputFormat, OutputOption, format_time, print_list, print_result
from pennon.cli.servers import BranchOption, TableArgument, YesOption, with_server, without_none

if TYPE_CHECKING:
    from pennon.client.transport import Transport

app = typer.Typer(no_args_is_help=True)

_RANGE = re.compile(r"([1-9][0-9]{0,17})(?:-([1-9][0-9]{0,17}))?")


@app.callback()
def describe() -> None:
    """List, restore and delete versions of tables."""


@app.command("list", epilog=examples("pennon versions list shop.teas", "pennon versions list shop.teas --limit 5"))
@with_server
def list_versions(
    server: Transport,
    table: TableArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most versions to list.")] = 50,
    branch: BranchOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the versions of a table, the newest first."""
    body = without_none({"descending": True, "branch": branch})
    listed = server.read_all(table_route(parse_table(table), "version/list"), body, "versions", limit)
    found = [_as_data(version) for version in listed]
    rows = [list(row.values()) for row in found]
    empty = "No versions: nothing has been written yet."
    print_list(output, found, ("Version", "Committed", "Manifest bytes"), rows, empty)


@app.command(epilog=examples("pennon versions restore shop.teas 3"))
@with_server
def restore(
    server: Transport,
    table: TableArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Version number.")],
    branch: BranchOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Restore an earlier version as a new version; the versions in between stay in the history."""
    identifier = parse_table(table)
    name = format_name(identifier)
    server.post(table_route(identifier, "restore"), without_none({"version": version, "branch": branch}))
    print_result(output, {"name": name, "restored": version}, f"Table {name} restored to version {version}.")


@app.command(epilog=examples("pennon versions delete shop.teas 3 --yes", "pennon versions delete shop.teas 1-8 --yes"))
@with_server
def delete(
    server: Transport,
    table: TableArgument,
    ranges: Annotated[
        list[str],
        typer.Argument(metavar="VERSION", help="Versions to delete: a number, such as 3, or a range, such as 1-8."),
    ],
    branch: BranchOption = None,
    yes: YesOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete old versions, except versions that a tag, a branch or a view needs."""
    identifier = parse_table(table)
    body = without_none({"ranges": [parse_range(text) for text in ranges], "branch": branch})
    confirm(f"This deletes the versions {', '.join(ranges)} of {format_name(identifier)}.", yes=yes)
    count = server.post(table_route(identifier, "version/delete"), body).get("deleted_count")
    print_result(output, {"name": format_name(identifier), "deleted": count}, f"Versions deleted: {count}.")


def parse_range(text: str) -> dict[str, int]:
    """Parse a version or a range of versions into the protocol's range, whose end is exclusive."""
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last:
        raise InvalidInputError(f"Invalid version {text!r}: use a number, such as 3, or a range, such as 1-8.")
    return {"start_version": first, "end_version": last + 1}


def _as_data(version: Mapping[str, object]) -> dict[str, object]:
    when = format_time(version.get("timestamp_millis"))
    return {"version": version["version"], "committed_at": when, "manifest_bytes": version.get("manifest_size")}
