"""The catalog as commands open it: never by accident a new, empty one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pennon.catalog import open_database
from pennon.catalog.schema import SchemaError, latest_version, migrate, schema_version
from pennon.cli.exit_codes import CommandError, Exit
from pennon.core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from pennon.catalog import Database

_CONNECT_SECONDS = 5


def sqlite_file(url: str) -> Path | None:
    """Return the file of an embedded catalog; none for any other database."""
    return Path(unquote(url.removeprefix("sqlite:///"))) if urlsplit(url).scheme == "sqlite" else None


def is_missing(settings: Settings) -> bool:
    """Tell whether opening the catalog would make a new file."""
    file = sqlite_file(settings.database_url)
    return file is not None and not file.exists()


def place_of(url: str) -> str:
    """Return where a database is, for people: without the password."""
    file = sqlite_file(url)
    if file is not None:
        return str(file)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def why_unreachable(url: str) -> str | None:
    """Say why PostgreSQL does not let us in, if it does not: by connecting once, for a pool would try for long."""
    if not url.startswith(("postgresql://", "postgres://")):
        return None
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=_CONNECT_SECONDS).close()
    except psycopg.Error as error:
        return str(error).partition("\n")[0]
    return None


@contextmanager
def open_database_of(settings: Settings, *, root: str = "") -> Iterator[Database]:
    """Open the database that settings name, whatever its schema; with a storage root, locations are full ones."""
    reason = why_unreachable(settings.database_url)
    if reason is not None:
        place = place_of(settings.database_url)
        raise CommandError(f"{place}: {reason}. Start the database, or correct --database.", Exit.UNREACHABLE)
    database = open_database(settings.database_url, pool_size=1, root=root)
    try:
        yield database
    finally:
        database.close()


def require_catalog(settings: Settings) -> None:
    """Refuse to go on without a catalog: a mistyped folder must not become one."""
    if is_missing(settings):
        raise SettingsError(
            f"There is no catalog at {place_of(settings.database_url)}; name its folder, as DIR or with --directory, "
            "or its database with --database."
        )


@contextmanager
def open_catalog(settings: Settings, *, create: bool = False, root: str = "") -> Iterator[Database]:
    """Open the catalog that settings name, with the schema this Pennon works with.

    One that is not there is an error unless it is to be created.
    """
    if not create:
        require_catalog(settings)
    with open_database_of(settings, root=root) as database:
        _require_current(database, create=create)
        yield database


def _require_current(database: Database, *, create: bool) -> None:
    version, known = schema_version(database), latest_version()
    if version == 0 and create:
        migrate(database)
    elif version < known:
        raise SchemaError(f"The catalog has schema version {version}, this Pennon needs {known}; run `pennon migrate`.")
    elif version > known:
        raise SchemaError(f"The catalog has schema version {version}, this Pennon knows {known}; upgrade Pennon.")
