"""A namespace with tables, seen from Spark and from pylance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import pyarrow as pa

import pennon.spark

if TYPE_CHECKING:
    from tests.clients.lakes import Lake


@dataclass(frozen=True)
class SparkNamespace:
    lake: Lake
    client: ln.LanceNamespace
    spark: Any
    name: str

    def table(self, name: str) -> str:
        """Return what Spark calls a table."""
        return f"{self.name}.{name}"

    def create(self, name: str, *parts: pa.Table) -> lance.LanceDataset:
        """Write a table with pylance, a fragment for each part, and return it."""
        for number, part in enumerate(parts):
            mode = "append" if number else "create"
            lance.write_dataset(
                part, namespace_client=self.client, table_id=[self.name, name], mode=mode, enable_stable_row_ids=True
            )
        return self.open(name)

    def open(self, name: str) -> lance.LanceDataset:
        """Return a table as pylance sees it."""
        return lance.dataset(namespace_client=self.client, table_id=[self.name, name])

    def names(self) -> list[str]:
        return sorted(self.client.list_tables(ln.ListTablesRequest(id=[self.name])).tables)

    def data_files(self, name: str) -> set[str]:
        location = self.client.describe_table(ln.DescribeTableRequest(id=[self.name, name])).location
        assert location is not None
        return self.lake.files(location, "data")

    def load(self, name: str, **options: Any) -> Any:
        """Return a table as Spark sees it."""
        reader = self.spark.read.format("pennon").option("url", self.lake.url)
        for option, value in options.items():
            reader = reader.option(option, value)
        return reader.load(self.table(name))

    def save(self, frame: Any, name: str, mode: str = "append", **options: Any) -> None:
        """Write a data frame to a table."""
        writer = frame.write.format("pennon").option("url", self.lake.url).mode(mode)
        for option, value in options.items():
            writer = writer.option(option, value)
        writer.save(self.table(name))

    def sql(self, query: str) -> Any:
        """Run a query; {} stands for the namespace."""
        return pennon.spark.sql(self.spark, query.format(self.name), url=self.lake.url)


def numbers(*bounds: int) -> pa.Table:
    """Return rows of a range: a number, its tenths, its half, and a text."""
    values = list(range(*bounds))
    return pa.table(
        {
            "id": pa.array(values, pa.int64()),
            "k": pa.array([value // 10 for value in values], pa.int32()),
            "x": pa.array([value / 2 for value in values], pa.float64()),
            "text": pa.array([f"number {value}" for value in values], pa.string()),
        }
    )


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())
