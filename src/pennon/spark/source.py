"""The data source that Spark calls for ``format("pennon")``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError
from pyspark.sql.datasource import DataSource

from pennon.core.errors import suggest
from pennon.spark.python_workers import freeze_garbage_collector
from pennon.spark.row_ids import from_option
from pennon.spark.table_address import TableAddress, check_options
from pennon.spark.types import ROW_COLUMNS, estimate_width, spark_schema
from pennon.tables.lance_errors import typed_errors
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pennon.spark.reader import LanceReader
    from pennon.spark.writer import LanceWriter


#: Options that select what is read, and that a write must not have.
_READ_OPTIONS = ("branch", "version", "tag", "columns", "row_ids", "filter")


class LanceSource(DataSource):
    """Reads and writes tables of a server, or reads versions of tables at a known location."""

    #: The number of tasks that run at the same time, if known.
    cores: int | None = None

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._pinned: Snapshot | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pennon"

    def schema(self) -> StructType:
        """Return the requested columns, by default all. This also fixes the version to read."""
        snapshot = self._pin()
        found = spark_schema(snapshot.schema(self._columns(snapshot.open().schema)))
        freeze_garbage_collector()
        return found

    def reader(self, schema: StructType) -> LanceReader:
        """Return a reader for the columns of a schema."""
        from pennon.spark.reader import LanceReader, PushingReader

        given, condition = self.options.get("row_ids"), self.options.get("filter")
        if given and condition:
            raise InvalidInputError("The options 'row_ids' and 'filter' cannot be used together.")
        if condition:  # checked here because Spark would retry tasks that fail
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
        """Return a writer that appends rows of a schema, or replaces the rows of the table."""
        from pennon.spark.writer import LanceWriter

        chosen = [name for name in _READ_OPTIONS if self.options.get(name)]
        if chosen:
            raise InvalidInputError(
                f"The option {chosen[0]!r} is for reading; a write always goes to the newest version of main."
            )
        return LanceWriter.prepare(
            TableAddress.from_options(self.options),
            schema,
            overwrite=overwrite,
            max_rows=_count(self.options, "max_rows_per_file"),
            rounding=_is_true(self.options, "round_floats"),
        )

    def _pin(self) -> Snapshot:
        if self._pinned is None:
            given = self.options.get("snapshot")
            if given:
                check_options(self.options)
                self._pinned = Snapshot.from_option(given)
            else:
                self._pinned = TableAddress.from_options(self.options).pin(self.options)
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
        # Spark has no rows without columns, so a count needs one.
        return names or [min(stored, key=estimate_width).name]


def _names(given: str) -> list[str]:
    """Parse column names: separated by commas, or as a JSON list."""
    try:
        names = json.loads(given) if given.startswith("[") else [name.strip() for name in given.split(",")]
    except ValueError:
        names = [None]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InvalidInputError(
            f"The option 'columns' is {given!r}; it must be distinct names, as 'a,b' or '[\"a\", \"b\"]'."
        )
    return names


def _check_name(name: str, stored: pa.Schema) -> None:
    if name not in stored.names and name not in ROW_COLUMNS:
        raise TableColumnNotFoundError(f"The table has no column {name!r}.{suggest(name, stored.names)}")


def _count(options: Mapping[str, str], name: str) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not given.isdecimal() or not int(given):
        raise InvalidInputError(f"The option {name!r} is {given!r}; it must be a whole number of at least 1.")
    return int(given)


def _is_true(options: Mapping[str, str], name: str) -> bool:
    given = options.get(name, "false").lower()
    if given not in {"true", "false"}:
        raise InvalidInputError(f"The option {name!r} is {given!r}; it must be true or false.")
    return given == "true"
