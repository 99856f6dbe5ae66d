"""Error responses: the specification's body, without paths, SQL or stack traces of the server."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from pennon.core.errors import advice_for, status_of
from pennon.server.http.exchange import BodyTooLargeError
from pennon.server.idempotency import KeyReusedError
from pennon.server.lancedb_compat import Compatibility, is_lancedb
from pennon.storage.file_io import is_storage_failure
from pennon.tables.lance_errors import find_damage

if TYPE_CHECKING:
    from pennon.server.http.exchange import Exchange, Headers

logger = logging.getLogger("pennon.server")

_MAX_CHARACTERS = 1000


def to_protocol_error(error: Exception, exchange: Exchange) -> LanceNamespaceError:
    """Return an error as one of the protocol; an unexpected error is logged, and the response names its request id."""
    encoding = exchange.headers.get("content-encoding", "identity").lower()
    if isinstance(error, InvalidInputError) and encoding != "identity":
        return UnsupportedOperationError(
            f"Content-Encoding {encoding!r} is not supported; send the body without encoding."
        )
    if isinstance(error, LanceNamespaceError):
        return error
    damage = find_damage(error)
    if damage is not None:
        return damage
    logger.error("%s %s failed (request %s)", exchange.method, exchange.path, exchange.request_id, exc_info=error)
    if is_storage_failure(error):
        return ServiceUnavailableError(
            "Storage is not available; the server's log has the cause, under this request id."
        )
    return InternalError("Internal error; the server's log has the cause, under this request id.")


def status_for(error: LanceNamespaceError, compatibility: Compatibility, exchange: Exchange) -> int:
    """Return the HTTP status of an error: the specification's, unless LanceDB's client would misread it."""
    if isinstance(error, BodyTooLargeError):
        return 413
    if isinstance(error, KeyReusedError):
        return 422
    return 400 if is_lancedb(exchange) and compatibility.misreads(error) else status_of(error)


def error_body(error: LanceNamespaceError, path: str, request_id: str) -> bytes:
    """Return the specification's error body."""
    message = str(error)
    body = {
        # Messages quote values of the request, which may be long.
        "error": message if len(message) <= _MAX_CHARACTERS else f"{message[:_MAX_CHARACTERS]}…",
        "code": int(error.code),
        "detail": advice_for(error.code),
        "instance": path,
        "request_id": request_id,
    }
    return json.dumps(body).encode()


async def send_error(exchange: Exchange, error: LanceNamespaceError, status: int, headers: Headers = ()) -> None:
    """Send the specification's error body."""
    if isinstance(error, UnauthenticatedError):
        headers = ((b"www-authenticate", b"Bearer"),)
    elif status in {429, 503}:
        headers = ((b"retry-after", b"1"),)
    await exchange.respond(status, error_body(error, exchange.path, exchange.request_id), headers=headers)
