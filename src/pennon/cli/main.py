"""The ``pennon`` command."""

from __future__ import annotations

import io
import sqlite3
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from lance_namespace.errors import LanceNamespaceError

from pennon import __version__
from pennon.catalog.schema import SchemaVersionError
from pennon.cli import jobs, keys, maintenance, namespaces, tables, tags, versions, views
from pennon.cli.backfill import backfill
from pennon.cli.demo.command import demo
from pennon.cli.doctor import doctor
from pennon.cli.examples import examples
from pennon.cli.exit_codes import CommandError, ExitCode, exit_code_of, hint_for
from pennon.cli.import_catalog import import_catalog
from pennon.cli.migrate import migrate_catalog
from pennon.cli.options import with_settings
from pennon.cli.output import print_error
from pennon.cli.profiles import list_profiles
from pennon.cli.query import query
from pennon.cli.worker import worker
from pennon.core.settings import Settings, SettingsError

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)

#: Modules of the extra "server".
_SERVER_MODULES = {"cachetools", "cronsim", "google", "httptools", "lance", "obstore", "prometheus_client", "psycopg"}
_SERVER_MODULES |= {"psycopg_pool", "sqlglot", "starlette", "uvicorn", "uvloop"}
#: Standard library modules that Windows lacks; commands that only call a server do not need them.
_POSIX_MODULES = {"fcntl", "resource"}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pennon {__version__}")
        raise typer.Exit


@app.callback()
def pennon(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Pennon: an open server for Lance tables, with UDF feature columns and materialized views."""


@app.command(rich_help_panel="Serve", epilog=examples("pennon serve", "pennon serve my-lake --port 8080"))
@with_settings()
def serve(settings: Settings) -> None:
    """Start the server: catalog, data plane and, by default, a worker for jobs.

    Every option can also be set by an environment variable, such as PENNON_PORT for --port, or in the settings file of
    --config.
    """
    from pennon.core.logs import configure_logging
    from pennon.server.process import serve as run

    configure_logging(settings.log_level, settings.log_format)
    run(settings)


def _add(panel: str, name: str, command: Callable[..., None], *lines: str) -> None:
    app.command(name, rich_help_panel=panel, epilog=examples(*lines))(command)


_add("Serve", "worker", worker, "pennon worker", "pennon worker --database postgresql://pennon@db.example.com/pennon")
_add("Serve", "demo", demo, "pennon demo", "pennon demo my-demo --keep")
_add("Serve", "doctor", doctor, "pennon doctor", "pennon doctor --root s3://my-bucket/lake")
app.add_typer(namespaces.app, name="namespaces", rich_help_panel="Tables")
app.add_typer(tables.app, name="tables", rich_help_panel="Tables")
_add(
    "Tables",
    "query",
    query,
    "pennon query shop.teas --where \"origin = 'Japan'\" --columns name,origin",
    "pennon query shop.teas --vector 0.2,0.8 --limit 2",
    "pennon query shop.reviews --text 'sweet lovely' --output json",
    "pennon query shop.teas --limit 0 --output arrow > teas.arrows",
)
app.add_typer(tags.app, name="tags", rich_help_panel="Tables")
app.add_typer(versions.app, name="versions", rich_help_panel="Tables")
app.add_typer(maintenance.app, name="maintenance", rich_help_panel="Tables")
_add(
    "Derived data",
    "backfill",
    backfill,
    "pennon backfill shop.reviews joy",
    "pennon backfill shop.reviews joy --dry-run",
    "pennon backfill shop.reviews joy --mode only_failed --no-wait",
)
app.add_typer(views.app, name="views", rich_help_panel="Derived data")
app.add_typer(jobs.app, name="jobs", rich_help_panel="Derived data")
_add("Catalog", "import", import_catalog, "pennon import old-lake --directory old-lake --dry-run")
_add("Catalog", "migrate", migrate_catalog, "pennon migrate --check", "pennon migrate --directory my-lake")
app.add_typer(keys.app, name="keys", rich_help_panel="Catalog")
_add("Catalog", "profiles", list_profiles, "pennon profiles")


def main() -> None:
    """Run the command line; print expected errors as one line that says what to do."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may have characters that the terminal cannot encode
    try:
        app()
    except KeyboardInterrupt:  # before a command has started
        sys.exit(ExitCode.INTERRUPTED)
    except SettingsError as error:
        print_error(str(error))
        sys.exit(ExitCode.USAGE_ERROR)
    except LanceNamespaceError as error:
        print_error(str(error), hint_for(error))
        sys.exit(exit_code_of(error))
    except CommandError as error:
        print_error(str(error))
        sys.exit(error.code)
    except SchemaVersionError as error:
        print_error(str(error))
        sys.exit(ExitCode.FAILED)
    except (OSError, sqlite3.Error) as error:
        print_error(f"{error}. Run `pennon doctor` with the same settings for details.")
        sys.exit(ExitCode.FAILED)
    except ModuleNotFoundError as error:
        if error.name in _POSIX_MODULES:
            print_error("This command needs Linux or macOS. On Windows, run it inside WSL 2.")
            sys.exit(ExitCode.FAILED)
        if (error.name or "").partition(".")[0] not in _SERVER_MODULES:
            raise
        print_error(f"The package {error.name!r} is not installed: pip install 'pennon[server]'.")
        sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    main()
