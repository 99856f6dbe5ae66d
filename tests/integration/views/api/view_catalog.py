"""A catalog with tables to make views of, and short ways to make them."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pyarrow as pa

from pennon.catalog import jobs, views
from pennon.catalog.jobs import Job
from pennon.catalog.views import View, Watermark
from pennon.functions.decorators.udf import Function
from pennon.namespace.models.views import CreateViewRequest, DescribeViewRequest, RefreshViewRequest
from pennon.tables.arrow_stream import source_of
from pennon.views.model.definition import Definition
from pennon.views.refresh.changes import field_ids
from tests.integration.catalog.lakes import Lake, parts


def encoded(schema: pa.Schema) -> str:
    """Return a schema as a request carries it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def entry_of(function: Function[..., Any], **fields: Any) -> dict[str, Any]:
    """Return the ``udtf_spec`` of a function."""
    text = base64.b64encode(function.pack()).decode()
    return {
        "udtf": text,
        "udtf_sha": hashlib.sha256(text.encode()).hexdigest(),
        "udtf_name": function.name,
        "udtf_version": function.version,
        **fields,
    }


class ViewCatalog(Lake):
    """A lake with views."""

    def fill(self) -> ViewCatalog:
        """Make tables: ``t`` in the root, and ``shop$orders``."""
        self("CreateNamespace", "shop")
        vectors = pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2))
        owner = pa.array([{"name": "ada"}] * 3)
        self.put("t", pa.table({"id": [1, 2, 3], "text": ["a b", "c", ""], "vector": vectors, "owner": owner}))
        self.put("shop$orders", pa.table({"id": [1, 2], "price": pa.array([1, 2], pa.decimal128(10, 2))}))
        return self

    def put(self, identifier: str, rows: pa.Table, mode: str = "create") -> None:
        """Write a table, or more rows of it."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        source = source_of(sink.getvalue().to_pybytes())
        operation = self.ns.rows.create_table_from if mode == "create" else self.ns.rows.insert_from
        operation({"id": parts(identifier), "mode": mode}, source)  # type: ignore[arg-type]

    def create(self, identifier: str, source_query: Any = None, **fields: Any) -> Any:
        """Make a view."""
        if isinstance(source_query, dict):
            source_query = json.dumps(source_query)
        whole = {"kind": "query", "output_schema": None, "source_query": source_query, **fields}
        request = CreateViewRequest(id=parts(identifier), **whole)
        return self.ns.create_materialized_view(request)

    def describe(self, identifier: str) -> Any:
        """Describe a view."""
        return self.ns.describe_materialized_view(DescribeViewRequest(id=parts(identifier)))

    def refresh(self, identifier: str, **fields: Any) -> Any:
        """Submit a refresh, or plan it."""
        return self.ns.refresh_materialized_view(RefreshViewRequest(id=parts(identifier), **fields))

    def schema(self, identifier: str) -> pa.Schema:
        """Return the schema of a table."""
        schema: pa.Schema = self.open(identifier).schema
        return schema

    def view(self, identifier: str) -> View:
        """Return a view as the catalog knows it."""
        table = self.ns.find_table(tuple(parts(identifier)))
        found = self.ns.services.database.read(lambda connection: views.find(connection, table.id))
        assert found is not None
        return found

    def definition(self, identifier: str) -> Definition:
        """Return what a view is made of."""
        return Definition.from_json(self.view(identifier).definition)

    def jobs(self, identifier: str) -> list[Job]:
        """Return the jobs of a table that have not ended."""
        table = self.ns.find_table(tuple(parts(identifier)))
        return self.ns.services.database.read(lambda connection: jobs.active_on(connection, table.id))

    def arrive(self, identifier: str) -> None:
        """Record that a view holds its sources as they are now, as a refresh would."""
        view, definition = self.view(identifier), self.definition(identifier)
        versions = {source.table_id: self.latest("$".join(source.identifier)) for source in definition.sources}
        fields = {
            source.table_id: field_ids(self.open("$".join(source.identifier)), source.columns)
            for source in definition.sources
        }

        def work(connection: Any) -> bool:
            return views.advance(connection, view.table_id, view.watermark, Watermark(versions, fields=fields), 1, 1)

        assert self.ns.services.database.write(work)
