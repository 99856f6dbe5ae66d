"""Commands that call a server: their flags for it, and names that the shell completes by asking it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from lance_namespace.errors import LanceNamespaceError

from pennon.cli.names import namespace_route, spell
from pennon.cli.profiles import HERE, choose_server, read_profiles
from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT
from pennon.core.settings import ENV_PREFIX, SettingsError

if TYPE_CHECKING:
    from pennon.client.transport import Transport

#: Someone waits with a finger on the tab key.
_COMPLETION_SECONDS = 2.0
_COMPLETED = 1000

_FLAGS: dict[str, tuple[str, bool | str]] = {
    "url": (f"Address of the server. ({ENV_PREFIX}URL)", HERE),
    "api_key": (f"Key to call it with, if it needs one. ({ENV_PREFIX}API_KEY)", False),
    "profile": (f"Server and key by their name in the profiles. ({ENV_PREFIX}PROFILE)", False),
}


def with_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags that name a server; it receives its ``Transport`` as its first argument."""
    parameters = inspect.signature(command).parameters.values()
    # The server's type is known to the type checker alone: its module is imported when a command is run.
    own = [
        parameter.replace(annotation=eval(parameter.annotation, command.__globals__))  # noqa: S307 (its own source)
        for parameter in parameters
        if parameter.name != "server"
    ]

    def run(**values: Any) -> Any:
        return command(open_server(**{name: values.pop(name) for name in _FLAGS}), **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*own, *map(_flag, _FLAGS)])  # type: ignore[attr-defined]
    return run


def open_server(url: str | None, api_key: str | None, profile: str | None, **limits: Any) -> Transport:
    """Return the way to the server that flags, profiles and the environment name."""
    from pennon.client.transport import Transport

    chosen = choose_server(url, api_key, profile)
    if not chosen.url.startswith(("http://", "https://")):
        raise SettingsError(f"The address {chosen.url!r} is none of a server: it starts with http:// or https://.")
    return Transport(chosen.url, chosen.api_key, **limits)


def complete_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tables that begin as what was typed."""
    return _complete(context, incomplete, lambda server: server.get_all("/v1/table", "tables", _COMPLETED))


def complete_namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of namespaces that begin as what was typed, one level at a time."""
    above = tuple(incomplete.split(".")[:-1])

    def ask(server: Transport) -> Iterable[str]:
        names = server.get_all(namespace_route(above or ROOT, "list"), "namespaces", _COMPLETED)
        return (DEFAULT_DELIMITER.join([*above, name]) for name in names)

    return _complete(context, incomplete, ask)


def complete_profiles(incomplete: str) -> list[str]:
    """Return the names of profiles that begin as what was typed."""
    try:
        return [name for name in read_profiles() if name.startswith(incomplete)]
    except SettingsError:
        return []


def _complete(context: typer.Context, incomplete: str, ask: Callable[[Transport], Iterable[str]]) -> list[str]:
    flags = {name: context.params.get(name) for name in _FLAGS}
    try:
        found = ask(open_server(**flags, attempts=1, seconds=_COMPLETION_SECONDS))
        names = [spell(name.split(DEFAULT_DELIMITER)) for name in found]
    except (LanceNamespaceError, SettingsError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def _flag(name: str) -> inspect.Parameter:
    meaning, default = _FLAGS[name]
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=meaning,
        show_default=default,
        autocompletion=complete_profiles if name == "profile" else None,
    )
    kind = Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


TableArgument = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="Name of the table, such as shop.teas.", autocompletion=complete_tables),
]
BranchOption = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="The branch to use, not main.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
