"""Cache of responses to identical requests, valid while the catalog does not change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.server.http.exchange import Exchange

_MAX_ENTRIES = 32_768
_MAX_ENTRY_BYTES = 4096


class ResponseCache:
    """Caches small responses made from the catalog, until the catalog changes.

    Each hit checks again what a response depends on outside the catalog. Responses to callers with keys are not cached,
    because keys expire without a change of the catalog.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._entries: dict[Hashable, tuple[bytes, Callable[[], bool]]] = {}
        self._change_token: Hashable = None

    def find(self, exchange: Exchange, body: bytes) -> bytes | None:
        """Return the cached response to a request, if it is still fresh."""
        change_token = self._database.change_token()
        if change_token != self._change_token or len(self._entries) >= _MAX_ENTRIES:
            self._entries.clear()
            self._change_token = change_token
        response, is_fresh = self._entries.get(exchange.cache_key(body), (None, bool))
        return response if response is not None and is_fresh() else None

    def put(self, exchange: Exchange, body: bytes, response: bytes, is_fresh: Callable[[], bool]) -> None:
        """Cache a response that was made after the last ``find`` for its request."""
        key = exchange.cache_key(body)
        size = len(response) + sum(len(part) for part in key if isinstance(part, bytes | str))
        if self._change_token is not None and size <= _MAX_ENTRY_BYTES:
            self._entries[key] = response, is_fresh
