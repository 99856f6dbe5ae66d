"""Endpoints of operations on data: Arrow bodies, Arrow responses, and requests that differ between clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance_namespace as ln
from lance_namespace.errors import InvalidInputError

from pennon.namespace.queries import QueryResult
from pennon.server.endpoints import extensions
from pennon.storage.layout import check_branch

if TYPE_CHECKING:
    from pennon.server.request import RequestContext


def create_table(context: RequestContext) -> ln.CreateTableResponse:
    """Create a table from the body; headers may have its properties and its location."""
    headers = context.headers
    properties = context.text("properties") or headers.get("x-lance-table-properties")
    request = ln.CreateTableRequest(
        id=list(context.id), mode=context.text("mode"), properties=_json_map("properties", properties)
    )
    if context.params.get("storage_options"):
        raise InvalidInputError("A request cannot set storage_options: they are a setting of the server.")
    with context.source() as source:
        return context.namespace.rows.create_table_from(request, source, headers.get("x-lance-table-location"))


def insert_into_table(context: RequestContext) -> object:
    """Append the body or overwrite the table with it, or add it to a multipart upload."""
    if context.params.get("upload_id") is not None:
        return extensions.add_part(context)
    with context.source() as source:
        return context.namespace.rows.insert_from(context.parse(ln.InsertIntoTableRequest), source)


def merge_insert_into_table(context: RequestContext) -> ln.MergeInsertIntoTableResponse:
    """Upsert the body; LanceDB's client uses an index by default."""
    params = context.params
    params.setdefault("use_index", context.is_lancedb)
    milliseconds = context.headers.get("x-request-timeout-ms")
    if milliseconds and not params.get("timeout"):
        params["timeout"] = f"{milliseconds}ms"
    with context.source() as source:
        return context.namespace.rows.merge_from(context.parse(ln.MergeInsertIntoTableRequest), source)


def query_table(context: RequestContext) -> QueryResult:
    """Run a query."""
    return context.namespace.queries.run_query(context.id, context.params)


def query_inline(context: RequestContext) -> QueryResult | None:
    """Run a query for a few rows that are in memory; return None for any other."""
    return context.namespace.queries.run_query_inline(context.id, context.params)


def count_table_rows(context: RequestContext) -> int:
    """Count rows."""
    return context.namespace.count_table_rows(context.parse(ln.CountTableRowsRequest)).count or 0


def explain_table_query_plan(context: RequestContext) -> str:
    """Return the plan of a query."""
    params = context.params
    query = params.get("query")
    if not isinstance(query, dict):
        raise InvalidInputError("The request has no 'query'; send an object.")
    query = {"branch": params.get("branch"), **query}
    return context.namespace.queries.explain_query(context.id, query, verbose=bool(params.get("verbose")))


def analyze_table_query_plan(context: RequestContext) -> str:
    """Run a query and return its plan with measurements."""
    return context.namespace.queries.analyze_query(context.id, context.params)


def alter_table_add_columns(context: RequestContext) -> ln.AlterTableAddColumnsResponse:
    """Add columns: null columns of an Arrow schema, or those that the JSON body defines."""
    params = context.params
    if context.body is not None:
        with context.source() as source:
            return context.namespace.columns.add_empty_columns(context.id, source.schema, context.text("branch"))
    if isinstance(params.get("new_columns"), list) and "function" in params:
        raise ln.UnsupportedOperationError("'function' is not supported for new columns; use 'virtual_column'.")
    return context.namespace.alter_table_add_columns(context.parse(ln.AlterTableAddColumnsRequest))


def update_table_schema_metadata(context: RequestContext) -> dict[str, str] | None:
    """Replace the metadata of the schema; the body and the response are the metadata."""
    if "metadata" not in context.params:
        raise InvalidInputError(
            "The request has no metadata: send a JSON object with string values; an empty object removes all metadata."
        )
    request = context.parse(ln.UpdateTableSchemaMetadataRequest)
    return context.namespace.update_table_schema_metadata(request).metadata


def create_table_index(context: RequestContext) -> ln.CreateTableIndexResponse:
    """Start to build an index; LanceDB's client replaces an index of the same name by default."""
    replace = context.params.get("replace", context.is_lancedb)
    request = context.parse(ln.CreateTableIndexRequest)
    return context.namespace.create_table_index(request, replace=bool(replace), more=context.params)


def list_table_tags(context: RequestContext) -> object:
    """List tags; LanceDB's client expects the bare map."""
    listed = context.namespace.list_table_tags(context.parse(ln.ListTableTagsRequest))
    if not context.is_lancedb:
        return listed
    return {name: contents.model_dump(by_alias=True, exclude_none=True) for name, contents in listed.tags.items()}


def restore_table(context: RequestContext) -> ln.RestoreTableResponse:
    """Restore a version; LanceDB's client leaves it out to restore the latest."""
    is_latest = context.is_lancedb and context.params.get("version") is None
    request = context.parse(ln.RestoreTableRequest, **({"version": 0} if is_latest else {}))
    if is_latest:
        table = context.namespace.find_table(context.id)
        request.version = context.namespace.services.datasets.at(table, check_branch(request.branch), None).version
    return context.namespace.restore_table(request)


def _json_map(name: str, text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
        raise InvalidInputError(f"Invalid {name}: must be a JSON object with string values.")
    return parsed
