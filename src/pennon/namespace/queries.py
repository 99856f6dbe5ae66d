"""Operations that read rows: queries, counts and query plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import lance_namespace as ln
import pyarrow as pa

from pennon.namespace.query_body import Body, parse_query
from pennon.namespace.requests import request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.column_names import check_long_names
from pennon.tables.query.expressions import parse_expression
from pennon.tables.query.scan import (
    BatchStream,
    TableQuery,
    build_scanner,
    can_read_first_rows,
    count_rows,
    fit_to_rows,
    is_point_read,
    is_read_from_first_rows,
    isolate_conversions,
    open_reader,
    read_first_rows,
)
from pennon.tables.snapshots import bases_of

if TYPE_CHECKING:
    from lance.dataset import LanceScanner

    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier
    from pennon.tables.datasets import Handle
    from pennon.tables.query.process import QueryRequest

#: Keeps the files of a table while they are read; returns the function that releases them.
Hold = Callable[[], Callable[[], None]]


@dataclass(frozen=True)
class QueryResult:
    """The result of a query: its batches, and the version they are read from."""

    reader: BatchStream
    version: int
    hold: Hold | None = None


@dataclass(frozen=True)
class QueryOperations:
    """Read rows."""

    services: Services
    resolver: TableResolver

    def query_table(self, request: ln.QueryTableRequest) -> ln.QueryTableResponse:
        """Run a query and return the result as one Arrow file in memory."""
        request = request_as(ln.QueryTableRequest, request)
        answer = self.run_query(table_id(request), request.model_dump(by_alias=True, exclude_none=True))
        sink = pa.BufferOutputStream()
        with typed_errors(), pa.ipc.new_file(sink, answer.reader.schema) as writer:
            for batch in answer.reader:
                writer.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[return-value]  # as the clients of the specification do

    def run_query(self, identifier: Identifier, body: Body) -> QueryResult:
        """Run a query and return the result batch by batch."""
        query = parse_query(body, self.services.sql_limits)
        table = self.resolver.table(identifier)
        handle = self.services.datasets.open(table, query.branch, query.version)
        if not is_read_from_first_rows(handle, query):
            query = _prepare(query, handle)
        reader: BatchStream
        if query.isolation_reason is None:
            reader = open_reader(handle, query, is_local=self.services.storage_root.root.is_local)
        else:
            reader = self.services.query_pool.query(self._process_request(table, handle, query))
        return QueryResult(reader, handle.version, partial(self.services.removal.hold, table))

    def run_query_inline(self, identifier: Identifier, body: Body) -> QueryResult | None:
        """Run a query for a few rows of an open table; None if the query is not that simple."""
        if body.get("filter") or not isinstance(body.get("columns") or [], list):
            return None  # SQL is never parsed here, on the event loop
        query = parse_query(body, self.services.sql_limits)
        if not is_point_read(query):
            return None
        handle = self.services.datasets.find_open(self.resolver.table(identifier), query.branch, query.version)
        if handle is None or not can_read_first_rows(handle, query):
            return None
        return QueryResult(read_first_rows(handle.first_rows, query), handle.version)

    def count_table_rows(self, request: ln.CountTableRowsRequest) -> ln.CountTableRowsResponse:
        """Count the rows that match a predicate, by default all rows."""
        request = request_as(ln.CountTableRowsRequest, request)
        table = self.resolver.table(table_id(request))
        predicate = parse_expression(request.predicate or "", self.services.sql_limits)
        branch = check_branch(request.branch)
        handle = self.services.datasets.open(table, branch, request.version)
        query = TableQuery(
            filter=predicate.text,
            k=0,
            branch=branch,
            isolation_reason=predicate.isolation_reason,
            copies=predicate.growth.copies,
        )
        if predicate.text:
            check_long_names(handle.dataset, predicate.text)
            query = fit_to_rows(query, handle.row_sizes)
        if query.isolation_reason is None:
            return ln.CountTableRowsResponse(count=count_rows(handle.dataset, predicate.text, query.batch_rows))
        process_request = self._process_request(table, handle, query)
        return ln.CountTableRowsResponse(count=self.services.query_pool.count(process_request, predicate.text))

    def explain_table_query_plan(self, request: ln.ExplainTableQueryPlanRequest) -> str:
        """Return the plan of a query."""
        request = request_as(ln.ExplainTableQueryPlanRequest, request)
        body = request.query.model_dump(by_alias=True, exclude_none=True)
        return self.explain_query(table_id(request), body, verbose=bool(request.verbose))

    def explain_query(self, identifier: Identifier, body: Body, *, verbose: bool) -> str:
        """Return the plan of a query."""
        query = parse_query(body, self.services.sql_limits)
        return self._describe_plan(identifier, query, "explain", lambda scanner: scanner.explain_plan(verbose), verbose)

    def analyze_table_query_plan(self, request: ln.AnalyzeTableQueryPlanRequest) -> str:
        """Run a query and return its plan with the metrics of each step."""
        request = request_as(ln.AnalyzeTableQueryPlanRequest, request)
        return self.analyze_query(table_id(request), request.model_dump(by_alias=True, exclude_none=True))

    def analyze_query(self, identifier: Identifier, body: Body) -> str:
        """Run a query and return its plan with the metrics of each step."""
        query = parse_query(body, self.services.sql_limits)
        return self._describe_plan(identifier, query, "analyze", lambda scanner: scanner.analyze_plan())

    def _describe_plan(
        self,
        identifier: Identifier,
        query: TableQuery,
        action: Literal["explain", "analyze"],
        plan: Callable[[LanceScanner], str],
        verbose: bool = False,
    ) -> str:
        table = self.resolver.table(identifier)
        handle = self.services.datasets.open(table, query.branch, query.version)
        query = _prepare(query, handle)
        if query.isolation_reason is not None:
            process_request = self._process_request(table, handle, query)
            plan_text = self.services.query_pool.describe_plan(process_request, action, verbose=verbose)
            return self._without_paths(plan_text, table)
        with typed_errors():
            return self._without_paths(plan(build_scanner(handle.dataset, query)), table)

    def _process_request(self, table: Table, handle: Handle, query: TableQuery) -> QueryRequest:
        """Return the request that has a query process run a query."""
        return {
            "location": table.location,
            "storage_options": self.services.storage_root.options or None,
            "branch": query.branch,
            "version": handle.version,
            "content": handle.content,
            "bases": bases_of(handle.dataset),
            "query": query.to_json(),
        }

    def _without_paths(self, plan: str, table: Table) -> str:
        """Return a plan with the name of the table's folder instead of its path."""
        path = self.resolver.folder(table).store_path
        return plan.replace(path, path.rpartition("/")[2])


def _prepare(query: TableQuery, handle: Handle) -> TableQuery:
    """Check a query's column names, and return the query with its process and number of rows in a batch."""
    values = query.columns.values() if isinstance(query.columns, dict) else ()
    check_long_names(handle.dataset, query.filter, *values)
    return isolate_conversions(fit_to_rows(query, handle.row_sizes), handle.text_columns)
