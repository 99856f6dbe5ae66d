"""The schema of the catalog: numbered SQL migrations, most of them the same for both databases."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Database

# Both databases compare keys byte by byte, so that pages have the same order.
_KEY_TYPE = {"sqlite": "TEXT", "postgresql": 'TEXT COLLATE "C"'}


class SchemaVersionError(Exception):
    """The schema version of the catalog is not the one that this Pennon needs."""


def migrations(dialect: str) -> list[tuple[int, str]]:
    """Return the number and text of each migration for a database, in order.

    A migration is one file, or one for each database: ``NUMBER_NAME.sql`` or ``NUMBER_NAME.DIALECT.sql``.
    """
    files = resources.files("pennon.catalog").joinpath("migrations").iterdir()
    chosen = [file for file in files if file.name.endswith(".sql") and file.name.split(".")[1] in {"sql", dialect}]
    return sorted((int(file.name[:4]), file.read_text(encoding="utf-8")) for file in chosen)


def migration_numbers() -> list[int]:
    """Return the numbers of all migrations, in order."""
    return [number for number, _ in migrations("sqlite")]


def latest_version() -> int:
    """Return the schema version of this Pennon."""
    return migration_numbers()[-1]


def schema_version(database: Database) -> int:
    """Return the schema version of a database; 0 if it is empty."""
    return database.read(lambda connection: _version(connection, database.dialect))


def migrate(database: Database, target: int | None = None) -> list[int]:
    """Migrate a database to a version, by default the latest, and return the applied migrations."""
    wanted = latest_version() if target is None else target
    if schema_version(database) == wanted:
        return []
    return database.write(lambda connection: _apply(connection, database.dialect, wanted))


def _apply(connection: Connection, dialect: str, wanted: int) -> list[int]:
    connection.lock("migration")
    current = _version(connection, dialect)
    if current > wanted:
        raise SchemaVersionError(
            f"The catalog has schema version {current}; this Pennon supports {wanted}. Upgrade Pennon."
        )
    if current == 0:
        connection.script("CREATE TABLE pennon_schema (version INTEGER NOT NULL)")
        connection.run("INSERT INTO pennon_schema (version) VALUES (0)")
    due = [(number, text) for number, text in migrations(dialect) if current < number <= wanted]
    for number, text in due:
        connection.script(text.format(key=_KEY_TYPE[dialect]))
        connection.run("UPDATE pennon_schema SET version = ?", number)
    return [number for number, _ in due]


def _version(connection: Connection, dialect: str) -> int:
    if dialect == "sqlite":
        exists = connection.one("SELECT 1 FROM sqlite_master WHERE name = 'pennon_schema'")
    else:
        # Not to_regclass(): it caches that the table does not exist, although another process may have created it.
        exists = connection.one(
            "SELECT 1 FROM pg_class WHERE relname = 'pennon_schema' AND pg_table_is_visible(oid) LIMIT 1"
        )
    if exists is None:
        return 0
    row = connection.one("SELECT version FROM pennon_schema")
    return int(row[0]) if row else 0
