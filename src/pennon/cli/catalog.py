"""Opening the catalog for a command, without creating a new one by accident."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pennon.catalog import open_database
from pennon.catalog.schema import SchemaVersionError, latest_version, migrate, schema_version
from pennon.cli.exit_codes import CommandError, ExitCode
from pennon.core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from pennon.catalog import Database

_CONNECT_SECONDS = 5


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite catalog; None for another database."""
    return Path(unquote(url.removeprefix("sqlite:///"))) if urlsplit(url).scheme == "sqlite" else None


def is_missing(settings: Settings) -> bool:
    """Return whether opening the catalog would create a new file."""
    file = sqlite_file(settings.database_url)
    return file is not None and not file.exists()


def describe_database(url: str) -> str:
    """Return the location of a database without its password."""
    file = sqlite_file(url)
    if file is not None:
        return str(file)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def connection_error(url: str) -> str | None:
    """Return why PostgreSQL rejects a connection, if it does; tries once, because a pool would retry for long."""
    if not url.startswith(("postgresql://", "postgres://")):
        return None
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=_CONNECT_SECONDS).close()
    except psycopg.Error as error:
        return str(error).partition("\n")[0]
    return None


@contextmanager
def open_configured_database(settings: Settings, *, root: str = "") -> Iterator[Database]:
    """Open the database of the settings, whatever its schema; with a storage root, locations are absolute."""
    reason = connection_error(settings.database_url)
    if reason is not None:
        name = describe_database(settings.database_url)
        raise CommandError(f"{name}: {reason}. Start the database, or correct --database.", ExitCode.UNREACHABLE)
    database = open_database(settings.database_url, pool_size=1, root=root)
    try:
        yield database
    finally:
        database.close()


def require_catalog(settings: Settings) -> None:
    """Raise an error if there is no catalog: a mistyped folder must not become one."""
    if is_missing(settings):
        raise SettingsError(
            f"No catalog found at {describe_database(settings.database_url)}. "
            "Pass its folder, as DIR or --directory, or its database with --database."
        )


@contextmanager
def open_catalog(settings: Settings, *, create: bool = False, root: str = "") -> Iterator[Database]:
    """Open the catalog of the settings, which must have the current schema.

    A missing catalog is an error, unless it is to be created.
    """
    if not create:
        require_catalog(settings)
    with open_configured_database(settings, root=root) as database:
        _require_current(database, create=create)
        yield database


def _require_current(database: Database, *, create: bool) -> None:
    version, known = schema_version(database), latest_version()
    if version == 0 and create:
        migrate(database)
    elif version < known:
        raise SchemaVersionError(
            f"The catalog has schema version {version}; this Pennon needs {known}. Run `pennon migrate`."
        )
    elif version > known:
        raise SchemaVersionError(
            f"The catalog has schema version {version}; this Pennon supports {known}. Upgrade Pennon."
        )
