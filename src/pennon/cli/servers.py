"""Commands that call a server: their flags, and shell completion of names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, cast

import typer
from lance_namespace.errors import LanceNamespaceError

from pennon.cli.names import format_name, namespace_route
from pennon.cli.profiles import DEFAULT_URL, choose_server, read_profiles
from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT
from pennon.core.settings import ENV_PREFIX, SettingsError

if TYPE_CHECKING:
    from pennon.client.transport import Transport

#: Completion must be fast: the user waits at the prompt.
_COMPLETION_SECONDS = 2.0
_MAX_COMPLETIONS = 1000

_FLAGS: dict[str, tuple[str, bool | str]] = {
    "url": (f"URL of the server. ({ENV_PREFIX}URL)", DEFAULT_URL),
    "api_key": (f"API key, if the server requires one. ({ENV_PREFIX}API_KEY)", False),
    "profile": (f"Named profile with URL and API key. ({ENV_PREFIX}PROFILE)", False),
}


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that select a server to a command; it gets the ``Transport`` as its first argument."""
    parameters = inspect.signature(command).parameters.values()
    # The module of the server's type is imported only when a command runs, so its annotation is not evaluated.
    own = [
        parameter.replace(annotation=eval(parameter.annotation, command.__globals__))  # noqa: S307 (its own source)
        for parameter in parameters
        if parameter.name != "server"
    ]

    def run(**values: object) -> None:
        url, api_key, profile = (cast("str | None", values.pop(name)) for name in _FLAGS)
        command(open_server(url, api_key, profile), **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*own, *map(_flag, _FLAGS)])  # type: ignore[attr-defined]
    return run


def open_server(
    url: str | None, api_key: str | None, profile: str | None, *, timeout: float | None = None
) -> Transport:
    """Return a transport to the server that flags, profiles and the environment select; with a timeout, try once."""
    from pennon.client.transport import Transport

    chosen = choose_server(url, api_key, profile)
    if not chosen.url.startswith(("http://", "https://")):
        raise SettingsError(f"Invalid server URL {chosen.url!r}: it must start with http:// or https://.")
    if timeout is not None:
        return Transport(chosen.url, chosen.api_key, attempts=1, seconds=timeout)
    return Transport(chosen.url, chosen.api_key)


def without_none(body: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that have a value; the server has a default for the others."""
    return {name: value for name, value in body.items() if value is not None}


def complete_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tables that start with the typed text."""
    return _complete(context, incomplete, lambda server: server.get_all("/v1/table", "tables", _MAX_COMPLETIONS))


def complete_namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of namespaces that start with the typed text, one level at a time."""
    above = tuple(incomplete.split(".")[:-1])

    def list_names(server: Transport) -> Iterable[str]:
        names = server.get_all(namespace_route(above or ROOT, "list"), "namespaces", _MAX_COMPLETIONS)
        return (DEFAULT_DELIMITER.join([*above, name]) for name in names)

    return _complete(context, incomplete, list_names)


def complete_profiles(incomplete: str) -> list[str]:
    """Return the names of profiles that start with the typed text."""
    try:
        return [name for name in read_profiles() if name.startswith(incomplete)]
    except SettingsError:
        return []


def _complete(context: typer.Context, incomplete: str, list_names: Callable[[Transport], Iterable[str]]) -> list[str]:
    flags = {name: context.params.get(name) for name in _FLAGS}
    try:
        found = list_names(open_server(**flags, timeout=_COMPLETION_SECONDS))
        names = [format_name(name.split(DEFAULT_DELIMITER)) for name in found]
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
BranchOption = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Branch to use instead of main.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
