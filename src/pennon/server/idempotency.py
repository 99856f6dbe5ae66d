"""Idempotency keys: requests with the same ``Idempotency-Key`` have one effect and one response."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from lance_namespace.errors import ConcurrentModificationError, InvalidInputError

from pennon.catalog import idempotency
from pennon.catalog.idempotency import Outcome

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pennon.catalog import Connection, Database
    from pennon.server.http.exchange import Exchange
    from pennon.server.operations.model import Operation

HEADER = "idempotency-key"
#: Headers that change what a request does.
_HEADERS = ("x-lancedb-database", "x-lance-table-location", "x-lance-table-properties")
_OPTIONS = "storage_options"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class KeyReusedError(InvalidInputError):
    """An idempotency key was reused for another request."""


class Fingerprint:
    """A hash of a request: its operation, path, query, body, and the headers that change its effect."""

    def __init__(self, operation: Operation, exchange: Exchange) -> None:
        head = [operation.id, exchange.path, exchange.query_string, *map(exchange.headers.get, _HEADERS)]
        self._hash = hashlib.sha256(json.dumps(head).encode())

    def add(self, chunk: bytes) -> None:
        """Add a piece of the body."""
        self._hash.update(chunk)

    def hexdigest(self) -> str:
        """Return the fingerprint of what was added so far."""
        return self._hash.hexdigest()


class IdempotencyKeys:
    """The outcomes of requests with a key, and the keys of requests in progress in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._active: dict[tuple[str, str], asyncio.Event] = {}

    def key_of(self, exchange: Exchange) -> str | None:
        """Return the key of a request, if it has one."""
        key = exchange.headers.get(HEADER)
        if key is not None and not _KEY.fullmatch(key):
            raise InvalidInputError("The Idempotency-Key must be 1 to 200 visible ASCII characters.")
        return key

    async def acquire(self, principal: str, key: str) -> None:
        """Wait until no other request in this process uses a key."""
        while (running := self._active.get((principal, key))) is not None:
            await running.wait()
        self._active[principal, key] = asyncio.Event()

    def release(self, principal: str, key: str) -> None:
        """Let the next request with the key proceed."""
        self._active.pop((principal, key)).set()

    def find(self, principal: str, key: str) -> Outcome | None:
        """Return the outcome of the request with a key."""
        return self._database.read(lambda connection: idempotency.find(connection, principal, key))

    def complete(self, principal: str, key: str, fingerprint: str, status: int, response: bytes) -> None:
        """Store the response to a request, without credentials."""
        outcome = Outcome(fingerprint, None, status, _without_credentials(response).decode())
        self._database.write(lambda connection: idempotency.complete(connection, principal, key, outcome))


def _without_credentials(response: bytes) -> bytes:
    """Return a response with the names of its storage options, but not their values."""
    if _OPTIONS.encode() not in response:
        return response
    return _with_options(response, lambda options: dict.fromkeys(options, ""))


def _with_options(response: bytes, change: Callable[[Iterable[str]], dict[str, str]]) -> bytes:
    """Return a response with its storage options changed, at any depth."""

    def changed(part: JsonValue) -> JsonValue:
        if isinstance(part, list):
            return [changed(item) for item in part]
        if not isinstance(part, dict):
            return part
        return {
            name: {**change(item)} if name == _OPTIONS and isinstance(item, dict) else changed(item)
            for name, item in part.items()
        }

    return json.dumps(changed(json.loads(response))).encode()


def replay(outcome: Outcome, fingerprint: str, options: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Return the response to a request that had its effect before; refuse another request with its key.

    ``options`` are the current storage options of clients.
    """
    if outcome.fingerprint != fingerprint:
        raise KeyReusedError("This Idempotency-Key was used for another request; send a new key.")
    if outcome.status is None or outcome.response is None:
        # The process died between the effect and its response: only the transaction is known.
        return 200, json.dumps({"transaction_id": outcome.transaction_id}).encode()
    response = outcome.response.encode()
    if _OPTIONS.encode() in response:
        current = options or {}
        response = _with_options(response, lambda names: {name: current[name] for name in names if name in current})
    return outcome.status, response


def effect_recorder(principal: str, key: str, fingerprint: Callable[[], str]) -> Callable[..., None]:
    """Return a function that records the effect of a request, in the transaction of the effect."""
    attempts: set[str] = set()

    def mark(connection: Connection, transaction_id: str) -> None:
        attempts.add(transaction_id)
        if idempotency.mark(connection, principal, key, fingerprint(), transaction_id):
            return
        # An operation with several commits records each of them; the first counts.
        known = idempotency.find(connection, principal, key)
        if known is None or known.transaction_id not in attempts:
            raise ConcurrentModificationError("Another server is handling the same request; retry.")

    return mark
