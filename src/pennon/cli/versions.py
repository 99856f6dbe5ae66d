"""``pennon versions``: the history of a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from lance_namespace.errors import InvalidInputError

from pennon.cli.confirm import confirm
from pennon.cli.examples import examples
from pennon.cli.names import parse_table, spell, table_route
from pennon.cli.output import Form, FormOption, note, show, table_of, time_text
from pennon.cli.servers import BranchOption, TableArgument, YesOption, with_server

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
    output: FormOption = Form.TABLE,
) -> None:
    """List the versions of a table, the newest first."""
    body = {"descending": True, **({"branch": branch} if branch else {})}
    listed = server.ask_all(table_route(parse_table(table), "version/list"), body, "versions", limit)
    found = [_as_data(version) for version in listed]
    if not found and output is Form.TABLE:
        note("There are none: nothing was written yet.")
        return
    show(output, found, table_of(("Version", "Committed", "Manifest bytes"), [list(row.values()) for row in found]))


@app.command(epilog=examples("pennon versions restore shop.teas 3"))
@with_server
def restore(
    server: Transport,
    table: TableArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Number of the version.")],
    branch: BranchOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Make an earlier version the newest; those in between stay in the history."""
    identifier = parse_table(table)
    place = {"branch": branch} if branch else {}
    server.post(table_route(identifier, "restore"), {"version": version, **place})
    said = f"The table {spell(identifier)} is again as it was at version {version}."
    show(output, {"name": spell(identifier), "restored": version}, said)


@app.command(epilog=examples("pennon versions delete shop.teas 3 --yes", "pennon versions delete shop.teas 1-8 --yes"))
@with_server
def delete(
    server: Transport,
    table: TableArgument,
    ranges: Annotated[list[str], typer.Argument(metavar="VERSION", help="Versions: 3, or from 1 to 8 as 1-8.")],
    branch: BranchOption = None,
    yes: YesOption = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Delete old versions; one that a tag, a branch or a view needs is refused."""
    identifier = parse_table(table)
    body = {"ranges": [parse_range(text) for text in ranges], **({"branch": branch} if branch else {})}
    confirm(f"This deletes the versions {', '.join(ranges)} of {spell(identifier)}.", yes=yes)
    count = server.post(table_route(identifier, "version/delete"), body).get("deleted_count")
    show(output, {"name": spell(identifier), "deleted": count}, f"Versions deleted: {count}.")


def parse_range(text: str) -> dict[str, int]:
    """Return a version or a range of versions, as the protocol has it: without its end."""
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last:
        raise InvalidInputError(f"{text!r} is no version and no range of versions; write 3, or 1-8.")
    return {"start_version": first, "end_version": last + 1}


def _as_data(version: dict[str, Any]) -> dict[str, Any]:
    when = time_text(version.get("timestamp_millis"))
    return {"version": version["version"], "committed_at": when, "manifest_bytes": version.get("manifest_size")}
