"""``pennon migrate``: bring the catalog's schema up to date."""

from __future__ import annotations

from typing import Annotated

import typer

from pennon.catalog.schema import SchemaError, latest_version, migrate, migrations, schema_version
from pennon.cli.catalog import is_missing, open_database_of, place_of
from pennon.cli.options import with_settings
from pennon.cli.output import Form, FormOption, show
from pennon.core.settings import Settings


@with_settings("database", directory="option")
def migrate_catalog(
    settings: Settings,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; the exit code is 1 when a migration is due.")
    ] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Apply the migrations that the catalog's database lacks."""
    before, applied = _look(settings) if check else _apply(settings)
    place, known = place_of(settings.database_url), latest_version()
    numbers = ", ".join(f"{number:04d}" for number in applied)
    if not applied:
        said = f"{place} has schema version {before}: nothing to do."
    elif check:
        said = f"{place} has schema version {before}; to be applied: {numbers}."
    else:
        said = f"{place} went from schema version {before} to {known}; applied: {numbers}."
    show(output, {"database": place, "from": before, "to": known, "migrations": applied, "applied": not check}, said)
    if check and applied:
        raise typer.Exit(1)


def _look(settings: Settings) -> tuple[int, list[int]]:
    """Return the schema version of the catalog and the migrations that are due."""
    if is_missing(settings):
        return 0, [number for number, _ in migrations()]
    with open_database_of(settings) as database:
        version = schema_version(database)
    if version > latest_version():
        raise SchemaError(
            f"The catalog has schema version {version}, this Pennon knows {latest_version()}; upgrade Pennon."
        )
    return version, [number for number, _ in migrations() if number > version]


def _apply(settings: Settings) -> tuple[int, list[int]]:
    with open_database_of(settings) as database:
        return schema_version(database), migrate(database)
