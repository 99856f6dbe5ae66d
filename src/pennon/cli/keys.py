"""``pennon keys``: who may call the server."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer
from lance_namespace.errors import InvalidInputError

from pennon.catalog import keys, namespaces
from pennon.cli.catalog import is_missing, open_catalog, place_of
from pennon.cli.examples import examples
from pennon.cli.exit_codes import CommandError, Exit
from pennon.cli.names import parse_name
from pennon.cli.options import with_settings
from pennon.cli.output import Form, FormOption, note, show, table_of, time_text
from pennon.core.caller import Role
from pennon.core.clock import now_millis
from pennon.core.errors import suggest
from pennon.core.identifiers import ROOT, Identifier, check_name, format_identifier
from pennon.core.settings import Settings

app = typer.Typer(no_args_is_help=True)

RoleName = Literal["reader", "writer", "admin"]

_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_COLUMNS = ("Name", "Role", "On", "State", "Created", "Expires", "Revoked")


@app.callback()
def describe() -> None:
    """Create, list and revoke API keys."""


@app.command(epilog=examples("pennon keys create ada --role writer --on shop --expires-in 30d"))
@with_settings("database", directory="option")
def create(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key, as logs and transactions show it.")],
    role: Annotated[RoleName, typer.Option("--role", help="What the key may do.")],
    on: Annotated[
        str, typer.Option("--on", metavar="NAMESPACE", help="Namespace it is confined to, such as shop.old; $ is all.")
    ] = "$",
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="TIME", help="How long it works: 12h, 30d, 8w; else forever.")
    ] = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Create a key and print its secret, which is shown this once.

    The secret alone goes to standard output, so that KEY=$(pennon keys create ...) works in scripts.
    """
    namespace = parse_name(on)
    expires_at = None if expires_in is None else now_millis() + parse_duration(expires_in)
    if is_missing(settings):
        note(f"There is no catalog at {place_of(settings.database_url)} yet: one is made, for a server there.")
    with open_catalog(settings, create=True) as database:
        first = not database.read(keys.any_configured)
        secret = database.write(lambda c: keys.create(c, check_name(name), Role.of(role), namespace, expires_at))
        known = database.read(lambda c: namespaces.exists(c, namespace))
    if secret is None:
        said = f"There is, or was, a key named {name!r}; names are not used twice: choose another."
        raise CommandError(said, Exit.REFUSED)
    if output is Form.TABLE:
        _explain(name, role, namespace, expires_at, first=first, known=known)
    data = {"name": name, "role": role, "on": format_identifier(namespace), "expires_at": time_text(expires_at)}
    show(output, {**data, "secret": secret}, secret)
    if output is Form.TABLE:
        note('Clients send it as a header: lancedb.connect_namespace("rest", {"uri": ..., "header.x-api-key": KEY})')


@app.command("list", epilog=examples("pennon keys list"))
@with_settings("database", directory="option")
def list_keys(settings: Settings, output: FormOption = Form.TABLE) -> None:
    """List all keys, also those that no longer work."""
    with open_catalog(settings) as database:
        found = [_as_data(key) for key in database.read(keys.listing)]
    if not found and output is Form.TABLE:
        note("There are no keys: anyone on this machine may call. Create one with `pennon keys create NAME --role ...`")
        return
    show(output, found, table_of(_COLUMNS, [list(key.values()) for key in found]))


@app.command(epilog=examples("pennon keys revoke ada"))
@with_settings("database", directory="option")
def revoke(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")],
    output: FormOption = Form.TABLE,
) -> None:
    """Make a key useless from now on."""
    with open_catalog(settings) as database:
        revoked = database.write(lambda connection: keys.revoke(connection, name))
        known = {key.name for key in database.read(keys.listing)}
    if name not in known:
        said = f"There is no key named {name!r}.{suggest(name, known)} See `pennon keys list`."
        raise CommandError(said, Exit.NOT_FOUND)
    said = "is revoked: it opens nothing from now on" if revoked else "was revoked before"
    show(output, {"name": name, "revoked": True}, f"The key {name!r} {said}.")


def parse_duration(text: str) -> int:
    """Return a time span such as ``30d`` in milliseconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"--expires-in is {text!r}; write a number and a unit: 90m, 12h, 30d or 8w.")
    return int(match[1]) * _UNIT_SECONDS[match[2]] * 1000


def _explain(name: str, role: str, namespace: Identifier, expires_at: int | None, *, first: bool, known: bool) -> None:
    where = "everything" if namespace == ROOT else repr(format_identifier(namespace))
    until = f" until {time_text(expires_at)}" if expires_at else ""
    note(f"The key {name!r} has the role {role} on {where}{until}. Its secret is shown this once:")
    if first:
        note("It is the first key: from now on every request needs one.")
    if not known:
        note(f"The namespace {format_identifier(namespace)!r} does not exist yet.")


def _as_data(key: keys.Key) -> dict[str, str | None]:
    state = "active" if key.active else "expired" if key.revoked_at is None else "revoked"
    return {
        "name": key.name,
        "role": key.role.name.lower(),
        "on": format_identifier(key.namespace),
        "state": state,
        "created_at": time_text(key.created_at),
        "expires_at": time_text(key.expires_at),
        "revoked_at": time_text(key.revoked_at),
    }
