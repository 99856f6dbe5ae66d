"""Operations that read rows: query, count, and how a query would be answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace import (
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CountTableRowsResponse,
    ExplainTableQueryPlanRequest,
    QueryTableRequest,
    QueryTableResponse,
)
from lance_namespace.errors import InvalidInputError

from pennon.namespace.operations import Operations, request_as, table_id
from pennon.storage.layout import check_branch
from pennon.tables.lance_errors import typed_errors
from pennon.tables.query.expressions import DEFAULT_LIMITS, Expression, SqlLimits, demanding_reason, read_expression
from pennon.tables.query.full_text import FullText
from pennon.tables.query.scan import Query, asks_for_few_rows, build_scanner, is_in_head, open_reader, read_head
from pennon.tables.snapshots import bases_of

if TYPE_CHECKING:
    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier
    from pennon.tables.datasets import Handle

_NEAREST = {
    "distance_type": "metric",
    "metric_type": "metric",
    "nprobes": "nprobes",
    "minimum_nprobes": "minimum_nprobes",
    "maximum_nprobes": "maximum_nprobes",
    "refine_factor": "refine_factor",
    "ef": "ef",
    "approx_mode": "approx_mode",
}

#: Each vector is searched for by itself, which cannot be interrupted: queries with more of them run in a process of
#: their own, which ends when its client leaves.
_MOST_VECTORS_HERE = 1_000

_KINDS = {int: "a whole number", str: "a text", bool: "true or false"}


#: Keeps files for a reader that takes its time; returns what lets go of them.
Hold = Callable[[], Callable[[], None]]


@dataclass(frozen=True)
class Answer:
    """The batches that answer a query, and the version they were read from."""

    reader: Any
    version: int
    hold: Hold | None = None


class QueryOperations(Operations):
    """Read rows."""

    def query_table(self, request: QueryTableRequest) -> QueryTableResponse:
        """Answer a query as one Arrow file in memory."""
        request = request_as(QueryTableRequest, request)
        answer = self.answer_query(table_id(request), request.model_dump(by_alias=True, exclude_none=True))
        sink = pa.BufferOutputStream()
        with typed_errors(), pa.ipc.new_file(sink, answer.reader.schema) as writer:
            for batch in answer.reader:
                writer.write_batch(batch)
        content: QueryTableResponse = sink.getvalue().to_pybytes()
        return content

    def answer_query(self, identifier: Identifier, body: dict[str, Any]) -> Answer:
        """Answer a query batch by batch; the body may be of either family of clients."""
        query = parse_query(body, self.services.sql_limits)
        table = self._table(identifier)
        handle = self.services.datasets.open(table, query.branch, query.version)
        reader: Any
        if query.demanding is None:
            reader = open_reader(handle, query, near=self.services.storage_root.root.is_local)
        else:
            reader = self.services.query_pool.query(self._process_request(table, handle, query))
        return Answer(reader, handle.version, partial(self.services.removal.hold, table))

    def answer_at_once(self, identifier: Identifier, body: dict[str, Any]) -> Answer | None:
        """Answer a query for a few rows of a table that is open; none when another one is asked."""
        if body.get("filter") or not isinstance(body.get("columns") or [], list):
            return None  # SQL is never looked at here, on the event loop
        query = parse_query(body, self.services.sql_limits)
        if not asks_for_few_rows(query):
            return None
        handle = self.services.datasets.opened(self._table(identifier), query.branch, query.version)
        if handle is None or not is_in_head(handle, query):
            return None
        return Answer(read_head(handle.head, query), handle.version)

    def count_table_rows(self, request: CountTableRowsRequest) -> CountTableRowsResponse:
        """Count the rows where a predicate holds, by default all."""
        request = request_as(CountTableRowsRequest, request)
        table = self._table(table_id(request))
        predicate = read_expression(request.predicate or "", self.services.sql_limits)
        branch = check_branch(request.branch)
        handle = self.services.datasets.open(table, branch, request.version)
        if predicate.demanding is not None:
            asked = {**self._process_request(table, handle, Query(branch=branch)), "filter": predicate.text}
            return CountTableRowsResponse(count=self.services.query_pool.ask({**asked, "action": "count"}))
        with typed_errors():
            return CountTableRowsResponse(count=handle.dataset.count_rows(predicate.text or None))

    def explain_table_query_plan(self, request: ExplainTableQueryPlanRequest) -> str:
        """Return the plan of a query."""
        request = request_as(ExplainTableQueryPlanRequest, request)
        body = request.query.model_dump(by_alias=True, exclude_none=True)
        return self.explain_query(table_id(request), body, verbose=bool(request.verbose))

    def explain_query(self, identifier: Identifier, body: dict[str, Any], *, verbose: bool) -> str:
        """Return the plan of a query whose body may be of either family."""
        query = parse_query(body, self.services.sql_limits)
        return self._describe_plan(identifier, query, "explain", lambda scanner: scanner.explain_plan(verbose), verbose)

    def analyze_table_query_plan(self, request: AnalyzeTableQueryPlanRequest) -> str:
        """Run a query and return its plan with what each step took."""
        request = request_as(AnalyzeTableQueryPlanRequest, request)
        return self.analyze_query(table_id(request), request.model_dump(by_alias=True, exclude_none=True))

    def analyze_query(self, identifier: Identifier, body: dict[str, Any]) -> str:
        """Run a query whose body may be of either family, and return its plan with what each step took."""
        query = parse_query(body, self.services.sql_limits)
        return self._describe_plan(identifier, query, "analyze", lambda scanner: scanner.analyze_plan())

    def _describe_plan(
        self, identifier: Identifier, query: Query, action: str, plan: Callable[[Any], str], verbose: bool = False
    ) -> str:
        table = self._table(identifier)
        handle = self.services.datasets.open(table, query.branch, query.version)
        if query.demanding is not None:
            asked = {**self._process_request(table, handle, query), "action": action, "verbose": verbose}
            return self._without_paths(self.services.query_pool.ask(asked), table)
        with typed_errors():
            return self._without_paths(plan(build_scanner(handle.dataset, query)), table)

    def _process_request(self, table: Table, handle: Handle, query: Query) -> dict[str, Any]:
        """Return what a process needs to answer a query: it knows of no catalog."""
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
        """Return a plan that names a table's folder, and not where that is."""
        path = self.services.storage_root.folder(table.location).store_path
        return plan.replace(path, path.rpartition("/")[2])


def parse_query(body: dict[str, Any], limits: SqlLimits = DEFAULT_LIMITS) -> Query:
    """Read a query's body: the specification's, or that of LanceDB's remote client, which is plainer here and there."""
    vectors = _vectors(body.get("vector"))
    condition = read_expression(_optional(body, "filter", str) or "", limits)
    columns, values = _columns(body.get("columns"), limits)
    full_text = _full_text(body.get("full_text_query"))
    demanding = demanding_reason(condition, values) or (full_text.demanding if full_text else None)
    if vectors is not None and isinstance(vectors[0], list) and len(vectors) > _MOST_VECTORS_HERE:
        demanding = demanding or "its many vectors"
    return Query(
        vectors=vectors,
        vector_column=_optional(body, "vector_column", str),
        k=_optional(body, "k", int),
        offset=_optional(body, "offset", int),
        filter=condition.text,
        prefilter=_optional(body, "prefilter", bool) is not False,
        columns=columns,
        full_text=full_text,
        order_by=_order(body.get("order_by")),
        with_row_id=bool(_optional(body, "with_row_id", bool)),
        fast_search=bool(_optional(body, "fast_search", bool)),
        nearest=_nearest(body) if vectors is not None else {},
        version=_optional(body, "version", int),
        branch=check_branch(_optional(body, "branch", str)),
        demanding=demanding,
    )


def _optional(body: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = body.get(name)
    if value is not None and type(value) is not kind:
        raise InvalidInputError(f"{name} must be {_KINDS[kind]}.")
    if kind is int and value is not None and value < 0:
        raise InvalidInputError(f"{name} is {value}; it must be 0 or more.")
    if kind is int and value is not None and value >= 2**63 and name != "k":  # any k that large means all rows
        raise InvalidInputError(f"{name} is {value}; it must be a 64-bit integer.")
    return value


def _either(field: str, value: Any, one: str, other: str) -> Any:
    """Return what a field of the specification holds under one of two names, or the field itself if under none."""
    if not isinstance(value, dict) or not {one, other} & value.keys():
        return value
    if value.get(one) and value.get(other):
        raise InvalidInputError(f"{field} must hold {one} or {other}, not both.")
    return value.get(one) or value.get(other)


def _vectors(value: Any) -> list[Any] | None:
    value = _either("vector", value, "single_vector", "multi_vector")
    if value in (None, [], {}):
        return None
    if not isinstance(value, list):
        raise InvalidInputError("vector must be a list of numbers, or a list of such lists.")
    return value


def _columns(value: Any, limits: SqlLimits) -> tuple[list[str] | dict[str, str] | None, list[Expression]]:
    """Return the columns that are asked for, and the expressions that make them."""
    value = _either("columns", value, "column_names", "column_aliases")
    if value in (None, [], {}):
        return None, []
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value, []
    if isinstance(value, dict) and all(isinstance(expression, str) for expression in value.values()):
        read = {name: read_expression(expression, limits) for name, expression in value.items()}
        columns = {name: expression.text for name, expression in read.items()}
        return columns, list(read.values())
    raise InvalidInputError("columns must be a list of names, or a map of names to SQL expressions.")


def _full_text(value: Any) -> FullText | None:
    if value is None:
        return None
    value = _either("full_text_query", value, "string_query", "structured_query")
    query, columns = (value.get("query"), value.get("columns") or []) if isinstance(value, dict) else (None, [])
    if isinstance(query, str) and isinstance(columns, list) and all(isinstance(name, str) for name in columns):
        return FullText(text=query, columns=tuple(columns))
    if isinstance(query, dict):
        return FullText(structured=query)
    raise InvalidInputError("full_text_query must hold a string or a structured query.")


def _order(value: Any) -> list[tuple[str, bool, bool]]:
    try:
        return [
            (str(order["column_name"]), bool(order.get("ascending", True)), bool(order.get("nulls_first", False)))
            for order in value or []
        ]
    except (TypeError, KeyError, AttributeError):
        raise InvalidInputError("order_by must be a list of objects with a column_name.") from None


def _nearest(body: dict[str, Any]) -> dict[str, Any]:
    options = {target: body[name] for name, target in _NEAREST.items() if body.get(name) is not None}
    if "minimum_nprobes" in options or "maximum_nprobes" in options:
        options.pop("nprobes", None)
        if not options.get("maximum_nprobes"):
            options.pop("maximum_nprobes", None)
    if _optional(body, "bypass_vector_index", bool):
        options["use_index"] = False
    bounds = (body.get("lower_bound"), body.get("upper_bound"))
    if bounds != (None, None):
        options["distance_range"] = bounds
    return options
