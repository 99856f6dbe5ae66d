"""Migrations by command: said before they are applied, applied once."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from pennon.catalog import open_database
from pennon.catalog.schema import latest_version, migrate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


def behind(tmp_path: Path, version: int) -> None:
    database = open_database(f"sqlite:///{tmp_path}/pennon-data/.pennon/catalog.db")
    migrate(database, version)
    database.close()


def test_a_check_of_a_catalog_that_is_not_there_makes_none(run: Run, tmp_path: Path) -> None:
    ended = run("migrate", "--check")
    assert ended.code == 1
    assert "0001" in ended.stdout
    assert not (tmp_path / "pennon-data").exists()


def test_a_check_says_what_is_due_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    behind(tmp_path, 1)
    for _ in range(2):
        ended = run("migrate", "--check", "-o", "json")
        assert ended.code == 1
        said = json.loads(ended.stdout)
        assert (said["from"], said["to"], said["applied"]) == (1, latest_version(), False)
        assert said["migrations"] == list(range(2, latest_version() + 1))


def test_what_is_due_is_applied_once(run: Run, tmp_path: Path) -> None:
    behind(tmp_path, 1)
    first, second = run("migrate"), run("migrate")
    assert (first.code, second.code) == (0, 0)
    assert f"to {latest_version()}" in first.stdout
    assert "up to date" in second.stdout
    assert run("migrate", "--check").code == 0


def test_other_commands_ask_for_a_migration_that_is_due(run: Run, tmp_path: Path) -> None:
    behind(tmp_path, 1)
    ended = run("keys", "list")
    assert ended.code == 1
    assert "pennon migrate" in ended.stderr


def test_a_catalog_of_a_newer_pennon_is_refused(run: Run, tmp_path: Path) -> None:
    run("migrate")
    path = tmp_path / "pennon-data" / ".pennon" / "catalog.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE pennon_schema SET version = 9999")
    connection.close()
    for arguments in (("migrate",), ("migrate", "--check"), ("keys", "list")):
        ended = run(*arguments)
        assert ended.code == 1
        assert "Upgrade Pennon" in ended.stderr
