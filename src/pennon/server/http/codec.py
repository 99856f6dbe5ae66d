"""Conversion between HTTP and the protocol's models: JSON bodies, path identifiers and query parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import from_json

from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier, parse_identifier
from pennon.namespace.requests import invalid_request
from pennon.server.http.routing import decode_segment

if TYPE_CHECKING:
    from pennon.server.http.exchange import Exchange
    from pennon.server.operations.model import Operation

_TRUE, _FALSE = {"true", "1"}, {"false", "0"}
_INTEGER = re.compile(r"-?[0-9]{1,20}")


def _boolean(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise InvalidInputError(f"The query parameter {name!r} must be true or false.")


def _integer(name: str, text: str) -> int:
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or abs(value) >= 2**63:
        raise InvalidInputError(f"The query parameter {name!r} must be a 64-bit integer.")
    return value


def _text(_: str, text: str) -> str:
    return text


#: The type and the parser of each query parameter.
QUERY_PARAMETERS: dict[str, tuple[type, Callable[[str, str], JsonValue]]] = {
    "after": (int, _integer),
    "branch": (str, _text),
    "check_declared": (bool, _boolean),
    "descending": (bool, _boolean),
    "include_declared": (bool, _boolean),
    "limit": (int, _integer),
    "load_detailed_metadata": (bool, _boolean),
    "page_token": (str, _text),
    "mode": (str, _text),
    "on": (str, _text),
    "properties": (str, _text),
    "storage_options": (str, _text),
    "timeout": (str, _text),
    "upload_id": (str, _text),
    "upload_part_id": (str, _text),
    "use_index": (bool, _boolean),
    "version": (int, _integer),
    "when_matched_update_all": (bool, _boolean),
    "when_matched_update_all_filt": (str, _text),
    "when_not_matched_by_source_delete": (bool, _boolean),
    "when_not_matched_by_source_delete_filt": (str, _text),
    "when_not_matched_insert_all": (bool, _boolean),
    "with_table_uri": (bool, _boolean),
}


def parse_body(body: bytes) -> dict[str, JsonValue]:
    """Return the JSON object in a body; an empty body and ``null`` count as an empty object."""
    if not body or body == b"null":
        return {}
    try:
        parsed = from_json(body, allow_inf_nan=False)
    except (ValueError, RecursionError):
        raise InvalidInputError("The body is not valid JSON.") from None
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise InvalidInputError("The body must be a JSON object.")
    return parsed


def delimiter_of(exchange: Exchange) -> str:
    """Return the delimiter of the identifiers in a request."""
    delimiter = exchange.query.get("delimiter", DEFAULT_DELIMITER)
    if not delimiter:
        raise InvalidInputError("The delimiter is empty; leave it out to use '$'.")
    return delimiter


def read_params(
    operation: Operation,
    exchange: Exchange,
    body: dict[str, JsonValue],
    path_values: dict[str, bytes],
    database: Identifier = ROOT,
) -> dict[str, JsonValue]:
    """Return the parameters of a request: the fields of its body, the identifier of its path, and those of its query.

    Identifiers are relative to the database, the namespace that the client takes for the root.
    """
    query = exchange.query
    # Lance's own client, which always sends a delimiter, encodes a space in a path as "+" and a plus as "%2B".
    spaced = (
        {name: raw.replace(b"+", b" ") for name, raw in path_values.items()} if "delimiter" in query else path_values
    )
    if "id" in path_values:
        in_body = None if body.get("id") == [] else body.get("id")  # Java's client always sends it
        identifier = _identifier(operation, exchange, spaced["id"], database)
        if in_body not in (None, identifier):
            identifier = _identifier(operation, exchange, path_values["id"], database)
        if in_body not in (None, identifier):
            raise InvalidInputError("The id in the body is not the one in the path; leave it out of the body.")
        body["id"] = [*identifier]
    body.update({name: decode_segment(raw) for name, raw in spaced.items() if name != "id"})
    for name in operation.query:
        text = query.get(name, "")
        if name in query and not (name == "page_token" and not text):
            body[name] = QUERY_PARAMETERS[name][1](name, text)
    if "on" in operation.query:
        body["on"] = [*exchange.query_values("on")]
    return body


def _identifier(operation: Operation, exchange: Exchange, raw: bytes, database: Identifier) -> list[str]:
    text = decode_segment(raw)
    if operation.has_plain_id:
        return [text]
    return [*database, *parse_identifier(text, delimiter_of(exchange))]


def build_request(operation: Operation, params: dict[str, JsonValue]) -> BaseModel:
    """Return the parameters of a request as its model."""
    assert operation.request is not None  # noqa: S101 (every row that is parsed first has a model)
    try:
        return operation.request.model_validate(params)
    except ValidationError as error:
        raise invalid_request(error) from None


def dump(response: BaseModel) -> bytes:
    """Return a model as JSON, without fields that are null."""
    return response.__pydantic_serializer__.to_json(response, by_alias=True, exclude_none=True)
