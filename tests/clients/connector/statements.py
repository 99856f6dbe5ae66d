"""Runs SQL with the connector in a Spark of its own; prints the rows, or the error, of each statement as JSON.

It is a program for an environment of its own: the connector needs another release of Spark than Pennon.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

CATALOG = "com.lancedb.lance.spark.LanceNamespaceSparkCatalog"


def main(package: str, url: str, statements: list[str]) -> None:
    """Run the statements one after the other against a catalog named ``pennon``."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars.packages", package)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.catalog.pennon", CATALOG)
        .config("spark.sql.catalog.pennon.impl", "rest")
        .config("spark.sql.catalog.pennon.uri", url)
        .getOrCreate()
    )
    print(json.dumps([_answer(spark, statement) for statement in statements]))
    spark.stop()


def _answer(spark: Any, statement: str) -> Any:
    try:
        return [list(row) for row in spark.sql(statement).collect()]
    except Exception as error:  # which one is for the test to say
        return str(error)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.stdin.read()))
