"""The ``pennon`` command."""

from __future__ import annotations

import sqlite3
import sys
from typing import Annotated

import typer
from lance_namespace.errors import LanceNamespaceError

from pennon import __version__
from pennon.catalog.schema import SchemaError
from pennon.cli import jobs, keys
from pennon.cli.demo import demo
from pennon.cli.doctor import doctor
from pennon.cli.importing import import_catalog
from pennon.cli.migrating import migrate_catalog
from pennon.cli.options import with_settings
from pennon.cli.output import complain
from pennon.cli.worker import worker
from pennon.core.settings import Settings, SettingsError

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)

#: What the process returns: documented for scripts.
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

#: Modules that come with the extra "server".
_SERVER_MODULES = {"cachetools", "google", "httptools", "lance", "obstore", "prometheus_client", "psycopg"}
_SERVER_MODULES |= {"psycopg_pool", "pyarrow", "starlette", "uvicorn", "uvloop"}


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


app.command(rich_help_panel="Serve")(worker)
app.command(rich_help_panel="Serve")(demo)
app.command("import", rich_help_panel="Catalog")(import_catalog)
app.command("migrate", rich_help_panel="Catalog")(migrate_catalog)
app.add_typer(jobs.app, name="jobs", rich_help_panel="Jobs")
app.add_typer(keys.app, name="keys", rich_help_panel="Admin")
app.command(rich_help_panel="Admin")(doctor)


def main() -> None:
    """Run the command line; expected errors are one line that says what to do."""
    try:
        app()
    except SettingsError as error:
        complain(str(error))
        sys.exit(EXIT_USAGE)
    except (LanceNamespaceError, SchemaError) as error:
        complain(str(error))
        sys.exit(EXIT_FAILED)
    except (OSError, sqlite3.Error) as error:
        complain(f"{error}; `pennon doctor` with the same settings tells more.")
        sys.exit(EXIT_FAILED)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SERVER_MODULES:
            raise
        complain(f"The package {error.name!r} is missing: run pip install 'pennon[server]'.")
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
