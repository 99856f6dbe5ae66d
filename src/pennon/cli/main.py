"""The ``pennon`` command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from lance_namespace.errors import LanceNamespaceError
from rich.console import Console

from pennon import __version__
from pennon.cli.options import with_settings
from pennon.core.settings import Settings, SettingsError

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)

#: What the process returns: documented for scripts.
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pennon {__version__}")
        raise typer.Exit


@app.callback()
def pennon(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Pennon, an open server for Lance tables."""


@app.command(rich_help_panel="Serve")
@with_settings()
def serve(settings: Settings) -> None:
    """Serve the catalog over HTTP."""
    from pennon.server.running import configure_logging
    from pennon.server.running import serve as run

    configure_logging(settings.log_level, settings.log_format)
    run(settings)


def main() -> None:
    """Run the command line; expected errors are one line that says what to do."""
    try:
        app()
    except (SettingsError, LanceNamespaceError) as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/red] {error}", soft_wrap=True)
        sys.exit(EXIT_USAGE if isinstance(error, SettingsError) else EXIT_FAILED)


if __name__ == "__main__":
    main()
