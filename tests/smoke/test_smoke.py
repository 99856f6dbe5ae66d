"""The shortest way through everything: a server, rows, a function on Spark, a view and the command line.

``make smoke PYTHON=...`` runs these on another Python, in an environment of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lancedb
import pytest

import pennon

if TYPE_CHECKING:
    from pathlib import Path

    from pennon.client import Connection, Table
    from tests.support.server import PennonProcess

TEAS = [{"id": 1, "name": "Assam", "vector": [0.9, 0.1]}, {"id": 2, "name": "Sencha", "vector": [0.1, 0.9]}]


@pennon.udf
def letters(name: str) -> int:
    """Count the letters of a name."""
    return len(name)


@pytest.fixture
def db(spark_server: PennonProcess) -> Connection:
    """A connection to a server with a worker."""
    return pennon.connect(spark_server.url)


@pytest.fixture
def teas(db: Connection) -> Table:
    """A table with two rows."""
    return db.create_table(f"teas_{uuid4().hex[:8]}", TEAS)


def run(server: PennonProcess, folder: Path, *arguments: str) -> Any:
    """Run a command in a process of its own, and return the JSON that it prints."""
    command = [sys.executable, "-m", "pennon.cli", *arguments, "--output", "json", "--url", server.url]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_rows_are_written_and_found_by_the_published_client(spark_server: PennonProcess) -> None:
    db = lancedb.connect_namespace("rest", {"uri": spark_server.url})
    table = db.create_table(f"teas_{uuid4().hex[:8]}", TEAS)
    table.add([{"id": 3, "name": "Oolong", "vector": [0.5, 0.5]}])
    assert table.version == 2
    assert [row["name"] for row in table.search([0.2, 0.8]).limit(2).to_list()] == ["Sencha", "Oolong"]


def test_rows_are_written_and_found_through_the_server(teas: Table) -> None:
    teas.add([{"id": 3, "name": "Oolong", "vector": [0.5, 0.5]}])
    assert teas.count_rows() == 3
    assert [row["name"] for row in teas.search().where("id > 2").to_list()] == ["Oolong"]


def test_a_function_fills_a_column(teas: Table) -> None:
    teas.add_columns({"letters": letters})
    teas.backfill("letters")
    assert {row["name"]: row["letters"] for row in teas.search().to_list()} == {"Assam": 5, "Sencha": 6}


def test_a_view_follows_its_table(db: Connection, teas: Table) -> None:
    name = f"late_{uuid4().hex[:8]}"
    view = db.create_materialized_view(name, pennon.query(teas).where("id > 1"))
    teas.add([{"id": 3, "name": "Oolong", "vector": [0.5, 0.5]}])
    view.refresh()
    assert sorted(row["name"] for row in view.search().to_list()) == ["Oolong", "Sencha"]


def test_the_command_line_shows_what_is_there(spark_server: PennonProcess, teas: Table, tmp_path: Path) -> None:
    found = run(spark_server, tmp_path, "query", teas.name, "--columns", "name", "--where", "id = 2")
    assert found == [{"name": "Sencha"}]
