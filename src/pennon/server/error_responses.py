"""Errors as answers: one handler, the specification's body, and never a path, a statement or a trace."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableBranchNotFoundError,
    TableColumnNotFoundError,
    TableIndexAlreadyExistsError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from pennon.core.errors import advice_for, status_of
from pennon.server.http.exchange import BodyTooLargeError
from pennon.server.idempotency import KeyReusedError
from pennon.server.lancedb_compat import is_remote
from pennon.storage.file_io import is_storage_failure
from pennon.tables.lance_errors import find_damage

if TYPE_CHECKING:
    from pennon.server.http.exchange import Exchange, Headers

logger = logging.getLogger("pennon.server")

_LONGEST = 1000

#: Errors that LanceDB's remote client would misread by their own status: 404 as a missing table, 409 as worth a retry.
_MISREAD = (
    TableColumnNotFoundError,
    TableTagNotFoundError,
    TableBranchNotFoundError,
    TableTagAlreadyExistsError,
    TableIndexAlreadyExistsError,
    InvalidTableStateError,
)


def as_known(error: Exception, exchange: Exchange) -> LanceNamespaceError:
    """Return an error as one of the protocol; what is unexpected goes to the log and is answered by its id alone."""
    encoding = exchange.headers.get("content-encoding", "identity").lower()
    if isinstance(error, InvalidInputError) and encoding != "identity":
        return UnsupportedOperationError(f"A body that is encoded as {encoding!r} is not read; send it as it is.")
    if isinstance(error, LanceNamespaceError):
        return error
    damage = find_damage(error)
    if damage is not None:
        return damage
    logger.error("%s %s failed (request %s)", exchange.method, exchange.path, exchange.request_id, exc_info=error)
    if is_storage_failure(error):
        return ServiceUnavailableError("Storage cannot be used right now; the server's log says why.")
    return InternalError("Something unexpected went wrong; the server's log says what, under this request id.")


def status_for(error: LanceNamespaceError, operation: str, exchange: Exchange) -> int:
    """Return the HTTP status of an error.

    LanceDB's remote client goes by the status alone: it knows a table that exists by 400, takes every 404 for a
    missing table, and repeats what is answered with 409.
    """
    if isinstance(error, BodyTooLargeError):
        return 413
    if isinstance(error, KeyReusedError):
        return 422
    return 400 if is_remote(exchange) and _is_misread(error, operation) else status_of(error)


def _is_misread(error: LanceNamespaceError, operation: str) -> bool:
    if isinstance(error, TableAlreadyExistsError):
        return operation == "CreateTable"
    if isinstance(error, TableVersionNotFoundError):
        return operation != "DescribeTable"  # where it does expect a missing version
    return isinstance(error, _MISREAD)


def error_body(error: LanceNamespaceError, path: str, request_id: str) -> bytes:
    """Return the specification's error body."""
    said = str(error)
    body = {
        # Messages repeat what was asked for, which may be long.
        "error": said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…",
        "code": int(error.code),
        "detail": advice_for(error.code),
        "instance": path,
        "request_id": request_id,
    }
    return json.dumps(body).encode()


async def answer_error(exchange: Exchange, error: LanceNamespaceError, status: int, headers: Headers = ()) -> None:
    """Answer with the specification's error body."""
    if isinstance(error, UnauthenticatedError):
        headers = ((b"www-authenticate", b"Bearer"),)
    elif status in {429, 503}:
        headers = ((b"retry-after", b"1"),)
    await exchange.answer(status, error_body(error, exchange.path, exchange.request_id), headers=headers)
