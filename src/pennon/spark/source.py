"""The source itself: what Spark calls for ``format("pennon")``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError
from pyspark.sql.datasource import DataSource

from pennon.core.errors import suggest
from pennon.spark.python_workers import spare_collection
from pennon.spark.row_ids import from_option
from pennon.spark.tables import Address, check_options
from pennon.spark.types import ROW_COLUMNS, spark_schema, width_of
from pennon.tables.lance_errors import typed_errors
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pennon.spark.reading import LanceReader
    from pennon.spark.writing import LanceWriter


#: Options that choose what is read, and that a write cannot follow.
_OF_READS = ("branch", "version", "tag", "columns", "row_ids", "filter")


class LanceSource(DataSource):
    """Tables of a server, or versions of tables whose place is known."""

    #: How many tasks run at once, where that is known.
    cores: int | None = None

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._pinned: Snapshot | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pennon"

    def schema(self) -> StructType:
        """Return the columns that were asked for, by default all; the version is settled here."""
        snapshot = self._pin()
        found = spark_schema(snapshot.schema(self._columns(snapshot.open().schema)))
        spare_collection()
        return found

    def reader(self, schema: StructType) -> LanceReader:
        """Return what reads the columns of a schema."""
        from pennon.spark.reading import LanceReader, PushingReader

        given, condition = self.options.get("row_ids"), self.options.get("filter")
        if given and condition:
            raise InvalidInputError("Rows are chosen by the option 'row_ids' or by 'filter', not by both.")
        if condition:  # here what is wrong with it is told once; tasks would be tried again and again
            with typed_errors():
                self._pin().open().scanner(columns=[], with_row_id=True, filter=condition).explain_plan()
        pushing = _is_true(self.options, "push_filters") and not given
        return (PushingReader if pushing else LanceReader)(
            self._pin(),
            schema,
            row_ids=from_option(given) if given else None,
            condition=condition,
            partitions=_count(self.options, "partitions"),
            cores=self.cores,
        )

    def writer(self, schema: StructType, overwrite: bool) -> LanceWriter:
        """Return what writes rows of a schema, after those of the table or in their place."""
        from pennon.spark.writing import LanceWriter

        chosen = [name for name in _OF_READS if self.options.get(name)]
        if chosen:
            raise InvalidInputError(f"The option {chosen[0]!r} is for reading: what is written is the newest of main.")
        return LanceWriter.prepare(
            Address.from_options(self.options),
            schema,
            overwrite=overwrite,
            most_rows=_count(self.options, "max_rows_per_file"),
            rounding=_is_true(self.options, "round_floats"),
        )

    def _pin(self) -> Snapshot:
        if self._pinned is None:
            given = self.options.get("snapshot")
            if given:
                check_options(self.options)
                self._pinned = Snapshot.from_option(given)
            else:
                self._pinned = Address.from_options(self.options).pin(self.options)
        return self._pinned

    def _columns(self, stored: pa.Schema) -> list[str]:
        names = list(stored.names)
        given = self.options.get("columns")
        if given is not None:
            names = _names(given)
            for name in names:
                _check_name(name, stored)
        if _is_true(self.options, "with_row_id") and "_rowid" not in names:
            names.append("_rowid")
        # Spark has no rows without columns, so counting them takes one.
        return names or [min(stored, key=width_of).name]


def _names(given: str) -> list[str]:
    """Return the names in an option: with commas between them, or as a JSON list."""
    try:
        names = json.loads(given) if given.startswith("[") else [name.strip() for name in given.split(",")]
    except ValueError:
        names = [None]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InvalidInputError(
            f"The option 'columns' names columns, each once: 'a,b' or '[\"a\", \"b\"]', not {given!r}."
        )
    return names


def _check_name(name: str, stored: pa.Schema) -> None:
    if name not in stored.names and name not in ROW_COLUMNS:
        raise TableColumnNotFoundError(f"The table has no column {name!r}.{suggest(name, stored.names)}")


def _count(options: Any, name: str) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not given.isdecimal() or not int(given):
        raise InvalidInputError(f"The option {name!r} is a number from 1 up, not {given!r}.")
    return int(given)


def _is_true(options: Any, name: str) -> bool:
    given = options.get(name, "false").lower()
    if given not in {"true", "false"}:
        raise InvalidInputError(f"The option {name!r} is true or false, not {given!r}.")
    return bool(given == "true")
