"""A catalog with views in it whose rows were put there without a refresh: what guards them asks for no more."""

from __future__ import annotations

from typing import Any

import lance_namespace as ln
import pyarrow as pa

from pennon.catalog import views
from pennon.catalog.views import View
from pennon.namespace.models.dependents import AlterColumns, DropColumns, DropNamespace, DropTable
from pennon.tables.arrow_stream import source_of
from pennon.views.model.definition import SOURCE_ROW, Column, Definition, Source
from tests.integration.catalog.lakes import Lake, parts

CASCADING = {
    "DropTable": DropTable,
    "DropNamespace": DropNamespace,
    "AlterTableDropColumns": DropColumns,
    "AlterTableAlterColumns": AlterColumns,
}
WITH_ROWS = {
    "CreateTable": "create_table_from",
    "InsertIntoTable": "insert_from",
    "MergeInsertIntoTable": "merge_from",
}


class ViewLake(Lake):
    """A lake with views."""

    def __call__(self, operation: str, identifier: str | None = None, **fields: Any) -> Any:
        """Run an operation: one that takes rows with its ``data``, one that others depend on with ``cascade``."""
        target = parts(identifier or "$")
        if "data" in fields:
            rows = source_of(stream_of(fields.pop("data")))
            request = getattr(ln, f"{operation}Request")(id=target, **fields)
            return getattr(self.ns.rows, WITH_ROWS[operation])(request, rows)
        if operation in CASCADING:
            method = "".join(f"_{char.lower()}" if char.isupper() else char for char in operation).lstrip("_")
            return getattr(self.ns, method)(CASCADING[operation](id=target, **fields))
        return super().__call__(operation, identifier, **fields)

    def view(self, identifier: str, source: str, reads: dict[str, str], **more: Any) -> str:
        """Create a view that has columns of one table under names of its own, and return its id."""
        origin = self.ns.find_table(tuple(parts(source)))
        read = self.open(source).to_table(columns=list(reads.values()), with_row_id=True)
        rows = {SOURCE_ROW: read["_rowid"].cast(pa.int64()), **{name: read[path] for name, path in reads.items()}}
        self("CreateTable", identifier, data=pa.table(rows))
        made = self.ns.find_table(tuple(parts(identifier)))
        used = tuple(dict.fromkeys([*reads.values(), *more.pop("also_reads", ())]))
        definition = Definition(
            kind="query",
            engine=more.pop("engine", "lance"),
            sources=(Source(source, origin.id, origin.identifier, used),),
            columns=tuple(Column(name, path) for name, path in reads.items()),
            where=more.pop("where", None),
        )
        view = View(made.id, "query", definition.to_json(), {}, **more)
        self.ns.services.database.write(lambda connection: views.insert(connection, view, {origin.id: used}))
        return made.id

    def view_of(self, view_id: str) -> View | None:
        """Return what the catalog knows of a view."""
        return self.ns.services.database.read(lambda connection: views.find(connection, view_id))

    def tables(self, namespace: str = "$") -> set[str]:
        """Return the names of a namespace's tables."""
        return set(self("ListTables", namespace).tables)


def stream_of(data: pa.Table) -> bytes:
    """Return rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    content: bytes = sink.getvalue().to_pybytes()
    return content
