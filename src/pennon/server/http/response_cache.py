"""Cache of responses to identical requests of one caller, valid while the reads they were made from are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.catalog.read_cache import CachedRead
    from pennon.core.caller import Principal
    from pennon.server.http.exchange import Exchange

_MAX_ENTRIES = 32_768
_MAX_ENTRY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """The body of a response, and what it depends on."""

    content: bytes
    #: The cached reads that it was made from.
    reads: Sequence[CachedRead[Any]]
    #: Checks again what it depends on outside the catalog.
    is_fresh: Callable[[], bool]


class ResponseCache:
    """Caches small responses that were made from cached reads. The caller of a request is authenticated before."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, CachedResponse] = {}

    def find(self, principal: Principal, exchange: Exchange, body: bytes) -> bytes | None:
        """Return the cached response to a request, if it is still valid."""
        found = self._entries.get(exchange.cache_key(principal, body))
        if found is None or not all(read.is_valid for read in found.reads) or not found.is_fresh():
            return None
        return found.content

    def put(self, principal: Principal, exchange: Exchange, body: bytes, response: CachedResponse) -> None:
        """Cache a response."""
        key = exchange.cache_key(principal, body)
        size = len(response.content) + sum(len(part) for part in key if isinstance(part, bytes | str))
        if size <= _MAX_ENTRY_BYTES:
            self._entries[key] = response
            if len(self._entries) > _MAX_ENTRIES:
                del self._entries[next(iter(self._entries))]  # the oldest
