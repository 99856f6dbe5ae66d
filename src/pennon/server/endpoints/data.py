"""How the operations on data are called: bodies that are Arrow, answers that are, and the clients' own spellings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance_namespace as ln
from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import Identifier
from pennon.namespace.queries import Answer
from pennon.server.endpoints import extensions
from pennon.server.http.streams import STREAM_TYPE
from pennon.storage.layout import check_branch
from pennon.tables.arrow_stream import ArrowSource

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pennon.namespace import PennonNamespace
    from pennon.tables.arrow_stream import Body


@dataclass(frozen=True)
class Call:
    """A request to an operation on data, before it is an object of its own."""

    namespace: PennonNamespace
    identifier: Identifier
    #: What the request states: the JSON body, or the query parameters where the body is Arrow.
    stated: dict[str, Any]
    headers: Mapping[str, str]
    #: The Arrow body, if there is one.
    body: Body | None
    #: Whether LanceDB's own remote client asks.
    remote: bool

    def source(self) -> ArrowSource:
        """Return the batches of the body."""
        if self.body is None:
            raise InvalidInputError(f"The body must be an Arrow stream ({STREAM_TYPE.decode()}).")
        services = self.namespace.services
        return ArrowSource(self.body, services.settings.group_append_bytes, services.arrow_limits)

    def request(self, model: type[BaseModel], **more: Any) -> Any:
        """Return what is stated as a model of the protocol."""
        from pennon.namespace.operations import request_as

        return request_as(model, {**self.stated, **more, "id": list(self.identifier)})


Binding = Callable[[Call], Any]


def create_table(call: Call) -> Any:
    """Create a table from the body; properties and location may stand in headers."""
    stated = call.stated
    properties = _json_map("properties", stated.get("properties") or call.headers.get("x-lance-table-properties"))
    request = ln.CreateTableRequest(id=list(call.identifier), mode=stated.get("mode"), properties=properties)
    if stated.get("storage_options"):
        raise InvalidInputError("storage_options cannot be set by a request; they are a setting of the server.")
    location = call.headers.get("x-lance-table-location")
    with call.source() as source:
        return call.namespace.create_table_from(request, source, location)


def insert_into_table(call: Call) -> Any:
    """Append or overwrite by the body, or take it in as a part of an upload."""
    if call.stated.get("upload_id") is not None:
        return extensions.add_part(call)
    with call.source() as source:
        return call.namespace.insert_from(call.request(ln.InsertIntoTableRequest), source)


def merge_insert_into_table(call: Call) -> Any:
    """Upsert the body; LanceDB's client uses an index unless it says otherwise."""
    stated = call.stated
    stated.setdefault("use_index", call.remote)
    milliseconds = call.headers.get("x-request-timeout-ms")
    if milliseconds and not stated.get("timeout"):
        stated["timeout"] = f"{milliseconds}ms"
    with call.source() as source:
        return call.namespace.merge_from(call.request(ln.MergeInsertIntoTableRequest), source)


def query_table(call: Call) -> Answer:
    """Answer a query."""
    return call.namespace.answer_query(call.identifier, call.stated)


def query_at_once(call: Call) -> Answer | None:
    """Answer a query that takes no time; none when it may take some."""
    return call.namespace.answer_at_once(call.identifier, call.stated)


def count_table_rows(call: Call) -> int:
    """Count rows."""
    counted = call.namespace.count_table_rows(call.request(ln.CountTableRowsRequest))
    return counted.count or 0


def explain_table_query_plan(call: Call) -> str:
    """Explain a query."""
    query = call.stated.get("query")
    if not isinstance(query, dict):
        raise InvalidInputError("The request names no query.")
    query = {"branch": call.stated.get("branch"), **query}
    return call.namespace.explain_query(call.identifier, query, verbose=bool(call.stated.get("verbose")))


def analyze_table_query_plan(call: Call) -> str:
    """Run a query and tell what it took."""
    return call.namespace.analyze_query(call.identifier, call.stated)


def alter_table_add_columns(call: Call) -> Any:
    """Add columns: of an Arrow schema without values, or as the JSON body says."""
    if call.body is not None:
        with call.source() as source:
            return call.namespace.add_empty_columns(call.identifier, source.schema, call.stated.get("branch"))
    entries = call.stated.get("new_columns")
    if isinstance(entries, list) and "function" in call.stated:
        raise ln.UnsupportedOperationError("Columns bound to a function object are not offered; use virtual_column.")
    return call.namespace.alter_table_add_columns(call.request(ln.AlterTableAddColumnsRequest))


def update_table_schema_metadata(call: Call) -> Any:
    """Replace the metadata of a schema, which is all that the body and the answer hold."""
    if "metadata" not in call.stated:
        raise InvalidInputError("The metadata is missing: send a JSON object of texts; an empty one removes all of it.")
    request = call.request(ln.UpdateTableSchemaMetadataRequest)
    return call.namespace.update_table_schema_metadata(request).metadata


def create_table_index(call: Call) -> Any:
    """Start building an index; LanceDB's client replaces one of the same name unless it says otherwise."""
    replace = call.stated.get("replace", call.remote)
    request = call.request(ln.CreateTableIndexRequest)
    return call.namespace.create_table_index(request, replace=bool(replace), more=call.stated)


def list_table_tags(call: Call) -> Any:
    """List tags; LanceDB's client wants the bare map."""
    listed = call.namespace.list_table_tags(call.request(ln.ListTableTagsRequest))
    if not call.remote:
        return listed
    return {name: contents.model_dump(by_alias=True, exclude_none=True) for name, contents in listed.tags.items()}


def restore_table(call: Call) -> Any:
    """Restore a version; LanceDB's own client leaves it out when the newest is meant."""
    newest = call.remote and call.stated.get("version") is None
    request = call.request(ln.RestoreTableRequest, **({"version": 0} if newest else {}))
    if newest:
        table = call.namespace.find_table(call.identifier)
        request.version = call.namespace.services.datasets.at(table, check_branch(request.branch), None).version
    return call.namespace.restore_table(request)


def _json_map(name: str, text: Any) -> dict[str, str] | None:
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
        raise InvalidInputError(f"{name} must be a JSON object of texts.")
    return parsed
