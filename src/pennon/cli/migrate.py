"""``pennon migrate``: bring the catalog's schema up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from pennon.catalog.schema import SchemaVersionError, latest_version, migrate, migration_numbers, schema_version
from pennon.cli.catalog import describe_database, is_missing, open_configured_database
from pennon.cli.options import with_settings
from pennon.cli.output import OutputFormat, OutputOption, print_result
from pennon.core.settings import Settings


@with_settings("database", directory="option")
def migrate_catalog(
    settings: Settings,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with code 1 if a migration is pending.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Migrate the catalog's database to the current schema."""
    before, applied = _pending(settings) if check else _apply(settings)
    name, known = describe_database(settings.database_url), latest_version()
    numbers = ", ".join(f"{number:04d}" for number in applied)
    if not applied:
        summary = f"{name} has schema version {before}: up to date."
    elif check:
        summary = f"{name} has schema version {before}; pending migrations: {numbers}."
    else:
        summary = f"{name} was migrated from schema version {before} to {known}; applied: {numbers}."
    print_result(
        output, {"database": name, "from": before, "to": known, "migrations": applied, "applied": not check}, summary
    )
    if check and applied:
        raise typer.Exit(1)


def _pending(settings: Settings) -> tuple[int, list[int]]:
    """Return the schema version of the catalog and the pending migrations."""
    if is_missing(settings):
        return 0, migration_numbers()
    with open_configured_database(settings) as database:
        version = schema_version(database)
    if version > latest_version():
        raise SchemaVersionError(
            f"The catalog has schema version {version}; this Pennon supports {latest_version()}. Upgrade Pennon."
        )
    return version, [number for number in migration_numbers() if number > version]


def _apply(settings: Settings) -> tuple[int, list[int]]:
    with open_configured_database(settings) as database:
        return schema_version(database), migrate(database)
