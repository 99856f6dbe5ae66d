"""Requests that may be repeated: under one ``Idempotency-Key``, a mutation has one effect and one answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import ConcurrentModificationError, InvalidInputError

from pennon.catalog import idempotency
from pennon.catalog.idempotency import Outcome

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.server.http.exchange import Exchange
    from pennon.server.operations.model import Operation

HEADER = "idempotency-key"
#: Headers that change what a request does.
_HEADERS = ("x-lancedb-database", "x-lance-table-location", "x-lance-table-properties")
_OPTIONS = "storage_options"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class KeyReusedError(InvalidInputError):
    """An idempotency key came again with another request."""


class Fingerprint:
    """What tells one request from another: its operation, path, query, body, and the headers that say what to do."""

    def __init__(self, operation: Operation, exchange: Exchange) -> None:
        head = [operation.id, exchange.path, exchange.query_string, *map(exchange.headers.get, _HEADERS)]
        self._hash = hashlib.sha256(json.dumps(head).encode())

    def add(self, chunk: bytes) -> None:
        """Take in a piece of the body."""
        self._hash.update(chunk)

    def __call__(self) -> str:
        """Return the fingerprint of what was taken in so far."""
        return self._hash.hexdigest()


class Replays:
    """Knows the requests that were carried out under a key, and those under way in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._under_way: dict[tuple[str, str], asyncio.Event] = {}

    def key_of(self, exchange: Exchange) -> str | None:
        """Return the key of a request, if it has one."""
        key = exchange.headers.get(HEADER)
        if key is not None and not _KEY.fullmatch(key):
            raise InvalidInputError("The Idempotency-Key must be 1 to 200 visible ASCII characters.")
        return key

    async def enter(self, principal: str, key: str) -> None:
        """Wait until no other request of this process is under way with the key, and claim it."""
        while (running := self._under_way.get((principal, key))) is not None:
            await running.wait()
        self._under_way[principal, key] = asyncio.Event()

    def leave(self, principal: str, key: str) -> None:
        """Let the next request with the key go on."""
        self._under_way.pop((principal, key)).set()

    def find(self, principal: str, key: str) -> Outcome | None:
        """Return what came of the request made under a key."""
        return self._database.read(lambda connection: idempotency.find(connection, principal, key))

    def complete(self, principal: str, key: str, fingerprint: str, status: int, answer: bytes) -> None:
        """Keep the answer of a request, without secrets."""
        done = Outcome(fingerprint, None, status, _without_values(answer).decode())
        self._database.write(lambda connection: idempotency.complete(connection, principal, key, done))


def _without_values(answer: bytes) -> bytes:
    """Return an answer with the names of its storage options alone: their values are credentials."""
    if _OPTIONS.encode() not in answer:
        return answer
    return _with_options(answer, lambda given: dict.fromkeys(given, ""))


def _with_options(answer: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """Return an answer with its storage options changed, wherever in it they are."""

    def changed(part: Any) -> Any:
        if isinstance(part, list):
            return [changed(item) for item in part]
        if not isinstance(part, dict):
            return part
        return {
            name: change(item) if name == _OPTIONS and isinstance(item, dict) else changed(item)
            for name, item in part.items()
        }

    return json.dumps(changed(json.loads(answer))).encode()


def replay(outcome: Outcome, fingerprint: str, options: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Return the answer of a request that was carried out before, or refuse another one under its key.

    ``options`` are the storage options as clients are given them now.
    """
    if outcome.fingerprint != fingerprint:
        raise KeyReusedError("This Idempotency-Key was used for another request; choose a new key.")
    if outcome.status is None or outcome.answer is None:
        # The process died between the effect and its answer: what can be told is the transaction.
        return 200, json.dumps({"transaction_id": outcome.transaction_id}).encode()
    answer = outcome.answer.encode()
    if _OPTIONS.encode() in answer:
        now = options or {}
        answer = _with_options(answer, lambda given: {name: now[name] for name in given if name in now})
    return outcome.status, answer


def effect_of(principal: str, key: str, fingerprint: Callable[[], str]) -> Callable[..., None]:
    """Return what marks a request as carried out, inside the transaction of its effect."""
    attempts: set[str] = set()

    def mark(connection: Connection, transaction_id: str) -> None:
        attempts.add(transaction_id)
        if idempotency.mark(connection, principal, key, fingerprint(), transaction_id):
            return
        # An operation of several commits marks itself with each of them; the first is what counts.
        known = idempotency.find(connection, principal, key)
        if known is None or known.transaction_id not in attempts:
            raise ConcurrentModificationError("The same request is being carried out by another server; try again.")

    return mark
