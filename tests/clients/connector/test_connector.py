"""Spark SQL through the connector that the Lance project publishes for Java, unmodified.

Its download is 270 MB and Spark's as much again, so this is one of the long tests.
"""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.lakes import ClientTable

if TYPE_CHECKING:
    from tests.clients.lakes import Lake

#: The newest release of the connector in the package registry, and a Spark that it supports.
CONNECTOR = "com.lancedb:lance-spark-bundle-3.5_2.12:0.0.14"
SPARK = "pyspark==3.5.6"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment that has the connector's Spark."""
    folder = tmp_path_factory.mktemp("spark")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", SPARK], check=True, timeout=600)
    return str(folder / "bin" / "python")


def run(python: str, url: str, *statements: str) -> list[Any]:
    program = Path(__file__).with_name("statements.py")
    command = [python, str(program), CONNECTOR, url]
    done = subprocess.run(command, input=json.dumps(statements), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.long
def test_spark_sql_works_on_the_catalog(python: str, local_lake: Lake) -> None:
    answers = run(
        python,
        local_lake.url,
        "CREATE NAMESPACE pennon.shop",
        "SHOW NAMESPACES IN pennon",
        "CREATE TABLE pennon.shop.goods (id BIGINT NOT NULL, name STRING)",
        "INSERT INTO pennon.shop.goods VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO pennon.shop.goods VALUES (3, 'c')",
        "SELECT count(*), sum(id) FROM pennon.shop.goods WHERE id > 1",
        "CREATE TABLE pennon.shop.twice AS SELECT id * 2 AS id FROM pennon.shop.goods",
        "SHOW TABLES IN pennon.shop",
        "DROP TABLE pennon.shop.goods",
        "SHOW TABLES IN pennon.shop",
        "SELECT * FROM pennon.shop.goods",
        "CREATE TABLE pennon.shop.twice (id BIGINT)",
        "DROP NAMESPACE pennon.shop",
    )
    assert ["shop"] in answers[1]
    assert answers[5] == [[2, 5]]
    assert sorted(name for _, name, _ in answers[7]) == ["goods", "twice"]
    assert [name for _, name, _ in answers[9]] == ["twice"]
    assert "TABLE_OR_VIEW_NOT_FOUND" in answers[10]
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in answers[11]
    assert "is not empty" in answers[12]
    assert [answers[step] for step in (0, 2, 3, 4, 6, 8)] == [[]] * 6
    written = ClientTable(local_lake, local_lake.connect(), "shop", "twice").open().to_table()
    assert sorted(written["id"].to_pylist()) == [2, 4, 6]
