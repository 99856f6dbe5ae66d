"""Requests from HTTP and back: JSON bodies, path identifiers and query parameters become the protocol's models."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier, parse_identifier
from pennon.namespace.operations import invalid_request
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


#: How each query parameter of the protocol is read.
QUERY_PARAMETERS: dict[str, tuple[type, Callable[[str, str], object]]] = {
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


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; an absent body and ``null`` are an empty one."""
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
    """Return the delimiter a request is written with."""
    delimiter = exchange.query.get("delimiter", DEFAULT_DELIMITER)
    if not delimiter:
        raise InvalidInputError("The delimiter is empty; leave it out to use '$'.")
    return delimiter


def state_request(
    operation: Operation,
    exchange: Exchange,
    body: dict[str, Any],
    values: dict[str, bytes],
    database: Identifier = ROOT,
) -> dict[str, Any]:
    """Return all that a request states: its body, with the identifier of its path and the parameters of its query.

    Identifiers are those of the database the request is made to, a namespace that its client takes for the root.
    """
    query = exchange.query
    # Lance's own client, which always names a delimiter, writes a space in a path as "+" and a plus as "%2B".
    spaced = {name: raw.replace(b"+", b" ") for name, raw in values.items()} if "delimiter" in query else values
    if "id" in values:
        stated = None if body.get("id") == [] else body.get("id")  # Java's client sends it along with the path's
        identifier = _identifier(operation, exchange, spaced["id"], database)
        if stated not in (None, identifier):
            identifier = _identifier(operation, exchange, values["id"], database)
        if stated not in (None, identifier):
            raise InvalidInputError("The id in the body is not the one in the path.")
        body["id"] = identifier
    body.update({name: decode_segment(raw) for name, raw in spaced.items() if name != "id"})
    for name in operation.query:
        text = query.get(name, "")
        if name in query and not (name == "page_token" and not text):
            body[name] = QUERY_PARAMETERS[name][1](name, text)
    if "on" in operation.query:
        body["on"] = exchange.all_of("on")
    return body


def _identifier(operation: Operation, exchange: Exchange, raw: bytes, database: Identifier) -> list[str]:
    text = decode_segment(raw)
    if operation.tag == "Transaction":
        return [text]
    return [*database, *parse_identifier(text, delimiter_of(exchange))]


def build_request(operation: Operation, stated: dict[str, Any]) -> BaseModel:
    """Return what a request states as its model."""
    assert operation.request is not None  # noqa: S101 (the table says so for every row that is built)
    try:
        return operation.request.model_validate(stated)
    except ValidationError as error:
        raise invalid_request(error) from None


def dump(response: BaseModel) -> bytes:
    """Return a model as JSON, without the fields that have no value."""
    return response.__pydantic_serializer__.to_json(response, by_alias=True, exclude_none=True)
