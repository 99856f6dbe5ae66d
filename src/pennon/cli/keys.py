"""``pennon keys``: API keys, with roles and scopes."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer
from lance_namespace.errors import InvalidInputError

from pennon.catalog import keys, namespaces
from pennon.cli.catalog import describe_database, is_missing, open_catalog
from pennon.cli.examples import examples
from pennon.cli.exit_codes import CommandError, ExitCode
from pennon.cli.names import parse_name
from pennon.cli.options import with_settings
from pennon.cli.output import OutputFormat, OutputOption, format_time, print_list, print_note, print_result
from pennon.core.caller import Role
from pennon.core.clock import now_millis
from pennon.core.errors import suggest
from pennon.core.identifiers import ROOT, Identifier, check_name, format_identifier
from pennon.core.settings import Settings

app = typer.Typer(no_args_is_help=True)

RoleName = Literal["reader", "writer", "admin"]

_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_COLUMNS = ("Name", "Role", "Namespace", "State", "Created", "Expires", "Revoked")


@app.callback()
def describe() -> None:
    """Create, list and revoke API keys."""


@app.command(epilog=examples("pennon keys create ada --role writer --on shop --expires-in 30d"))
@with_settings("database", directory="option")
def create(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the API key, shown in logs and transactions.")],
    role: Annotated[RoleName, typer.Option("--role", help="What the API key permits.")],
    on: Annotated[
        str,
        typer.Option(
            "--on", metavar="NAMESPACE", help="Namespace it is limited to, such as shop.old; $ is the whole catalog."
        ),
    ] = "$",
    expires_in: Annotated[
        str | None,
        typer.Option(
            "--expires-in", metavar="TIME", help="Time until it expires: 12h, 30d, 8w; by default it does not expire."
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create an API key and print its secret, which is shown only once.

    Only the secret goes to standard output, so that KEY=$(pennon keys create ...) works in scripts.
    """
    namespace = parse_name(on)
    expires_at = None if expires_in is None else now_millis() + parse_duration(expires_in)
    if is_missing(settings):
        print_note(f"Creating a new catalog at {describe_database(settings.database_url)}.")
    with open_catalog(settings, create=True) as database:
        first = not database.read(keys.any_configured)
        secret = database.write(lambda c: keys.create(c, check_name(name), Role.of(role), namespace, expires_at))
        known = database.read(lambda c: namespaces.exists(c, namespace))
    if secret is None:
        message = f"An API key named {name!r} already exists or was revoked; names are not reused. Choose another."
        raise CommandError(message, ExitCode.CONFLICT)
    if output is OutputFormat.TABLE:
        _explain(name, role, namespace, expires_at, first=first, known=known)
    data = {"name": name, "role": role, "on": format_identifier(namespace), "expires_at": format_time(expires_at)}
    print_result(output, {**data, "secret": secret}, secret)
    if output is OutputFormat.TABLE:
        print_note("Use it with pennon.connect(url, api_key=KEY), or send it in the header x-api-key.")


@app.command("list", epilog=examples("pennon keys list"))
@with_settings("database", directory="option")
def list_keys(settings: Settings, output: OutputOption = OutputFormat.TABLE) -> None:
    """List all API keys, including expired and revoked ones."""
    with open_catalog(settings) as database:
        found = [_as_data(key) for key in database.read(keys.listing)]
    empty = "No API keys: the server accepts any request from this machine. Create one with `pennon keys create NAME`."
    print_list(output, found, _COLUMNS, [list(key.values()) for key in found], empty)


@app.command(epilog=examples("pennon keys revoke ada"))
@with_settings("database", directory="option")
def revoke(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the API key.")],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Revoke an API key with immediate effect."""
    with open_catalog(settings) as database:
        revoked = database.write(lambda connection: keys.revoke(connection, name))
        known = {key.name for key in database.read(keys.listing)}
    if name not in known:
        message = f"API key {name!r} not found.{suggest(name, known)} See `pennon keys list`."
        raise CommandError(message, ExitCode.NOT_FOUND)
    outcome = "is revoked" if revoked else "was already revoked"
    print_result(output, {"name": name, "revoked": True}, f"The API key {name!r} {outcome}.")


def parse_duration(text: str) -> int:
    """Parse a duration such as ``30d``, and return it in milliseconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"Invalid --expires-in {text!r}: use a number and a unit, such as 90m, 12h, 30d or 8w.")
    return int(match[1]) * _UNIT_SECONDS[match[2]] * 1000


def _explain(name: str, role: str, namespace: Identifier, expires_at: int | None, *, first: bool, known: bool) -> None:
    scope = "the whole catalog" if namespace == ROOT else repr(format_identifier(namespace))
    until = f" until {format_time(expires_at)}" if expires_at else ""
    print_note(f"The API key {name!r} has the role {role} on {scope}{until}. Its secret is shown only once:")
    if first:
        print_note("This is the first API key: from now on, every request needs one.")
    if not known:
        print_note(f"The namespace {format_identifier(namespace)!r} does not exist yet.")


def _as_data(key: keys.Key) -> dict[str, str | None]:
    state = "active" if key.is_active else "expired" if key.revoked_at is None else "revoked"
    return {
        "name": key.name,
        "role": key.role.name.lower(),
        "on": format_identifier(key.namespace),
        "state": state,
        "created_at": format_time(key.created_at),
        "expires_at": format_time(key.expires_at),
        "revoked_at": format_time(key.revoked_at),
    }
