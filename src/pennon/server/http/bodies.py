"""Request bodies in memory: how much of a body is read for which caller, and the memory of all bodies together."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, ThrottlingError, UnauthenticatedError

from pennon.server.auth.authentication import has_credential

if TYPE_CHECKING:
    from pennon.core.caller import Principal
    from pennon.server.http.exchange import Exchange

#: A body up to this size is read immediately and not counted: its connection buffers as much anyway.
SMALL_BYTES = 64 * 1024
#: The largest body of an unauthenticated caller: some clients send their key in the body and not in a header.
UNAUTHENTICATED_BYTES = 1024 * 1024
#: Unauthenticated callers get an eighth of the memory, so that they cannot exhaust that of callers with a key. Parsed
#: JSON gets half of it. All requests reserve from the budgets in one order, so that none deadlocks.
_UNAUTHENTICATED_SHARE, _PARSED_SHARE = 8, 2
_WAIT_SECONDS = 30.0
#: Parsing holds the interpreter lock for about 35 ns per value and 0.7 µs per key: with these limits at most 0.2 s.
_MAX_JSON_VALUES = 2_000_000
_MAX_JSON_KEYS = 200_000


class BodyBudget:
    """A limit for the bytes of all bodies. Thread-safe; ``acquire`` waits on the event loop, in order of arrival."""

    def __init__(self, limit: int, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._used = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """The bytes in use."""
        return self._used

    @property
    def is_exceeded(self) -> bool:
        """Whether the bytes in use are above the limit."""
        return self._used > self._limit

    def add(self, size: int) -> None:
        """Count bytes that are in use already."""
        with self._lock:
            self._used += size

    def remove(self, size: int) -> None:
        """Release bytes, and admit requests that wait for them."""
        with self._lock:
            self._used -= size
            first = self._waiting[0][1] if self._waiting else None
        if first is not None:
            first.get_loop().call_soon_threadsafe(self._admit)

    async def acquire(self, size: int) -> None:
        """Wait for bytes and count them; raises ``ThrottlingError`` after too long."""
        with self._lock:
            if not self._waiting and self._fits(size):
                self._used += size
                return
            admitted = asyncio.get_running_loop().create_future()
            self._waiting.append((size, admitted))
        try:
            await asyncio.wait_for(asyncio.shield(admitted), self._wait_seconds)
        except TimeoutError:
            self._withdraw(size, admitted)
            raise ThrottlingError(
                "Other requests use all of the server's memory for request bodies (body_memory_bytes); "
                "nothing was changed. Retry later."
            ) from None
        except asyncio.CancelledError:
            self._withdraw(size, admitted)
            raise

    def _withdraw(self, size: int, admitted: asyncio.Future[None]) -> None:
        """Remove a request from the queue, or release its bytes if it was admitted at the last moment."""
        with self._lock:
            if admitted.done():
                self._used -= size
            else:
                admitted.cancel()
                self._waiting.remove((size, admitted))
        self._admit()

    def _admit(self) -> None:
        with self._lock:
            while self._waiting and self._fits(self._waiting[0][0]):
                size, admitted = self._waiting.popleft()
                self._used += size
                admitted.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._used + size <= self._limit or not self._used


@dataclass
class RequestBody:
    """A body that was read, and its caller if it was authenticated before the body was read."""

    content: bytes = b""
    principal: Principal | None = None
    #: The bytes it has reserved, by budget.
    reserved: list[tuple[BodyBudget, int]] = field(default_factory=list)

    @property
    def is_large(self) -> bool:
        """Whether to parse it on a thread, because it would block the event loop for too long."""
        return len(self.content) > SMALL_BYTES

    async def reserve(self, budget: BodyBudget, size: int) -> None:
        """Reserve bytes of a budget."""
        await budget.acquire(size)
        self.reserved.append((budget, size))

    def release(self) -> None:
        """Release the reserved bytes."""
        while self.reserved:
            budget, size = self.reserved.pop()
            budget.remove(size)


class BodyReader:
    """Reads JSON bodies: small ones immediately, large ones after authentication and within a budget."""

    def __init__(self, max_bytes: int, memory_bytes: int) -> None:
        self._max_bytes = max_bytes
        unauthenticated, parsed = memory_bytes // _UNAUTHENTICATED_SHARE, memory_bytes // _PARSED_SHARE
        #: The memory of authenticated callers; Arrow bodies count in it, too.
        self.budget = BodyBudget(memory_bytes - unauthenticated - parsed)
        self._unauthenticated = BodyBudget(unauthenticated)
        self._parsed = BodyBudget(parsed)

    async def read(self, exchange: Exchange, authenticate: Callable[[], Awaitable[Principal]]) -> RequestBody:
        """Return the body of a request. The caller must release it."""
        limit = self._max_bytes
        exchange.check_content_length(limit)  # before a "100 Continue" invites the client to send it
        body = RequestBody()
        if exchange.content_length <= SMALL_BYTES:
            body.content, complete = await exchange.first_bytes(min(SMALL_BYTES, limit))
            if complete:
                return body
        body.principal = await _principal_by_headers(exchange, authenticate)
        try:
            await self._read_rest(exchange, body)
            await body.reserve(self._parsed, _parsed_bytes(body.content))
        except BaseException:
            body.release()
            raise
        return body

    async def _read_rest(self, exchange: Exchange, body: RequestBody) -> None:
        is_unauthenticated = body.principal is None
        limit = min(UNAUTHENTICATED_BYTES, self._max_bytes) if is_unauthenticated else self._max_bytes
        if is_unauthenticated and exchange.content_length > limit:
            raise _needs_header()
        budget = self._unauthenticated if is_unauthenticated else self.budget
        await body.reserve(budget, exchange.content_length or limit)
        parts, size = [body.content], len(body.content)
        async for chunk in exchange.chunks(self._max_bytes, size):
            size += len(chunk)
            if is_unauthenticated and size > limit:
                raise _needs_header()
            parts.append(chunk)
        body.content = b"".join(parts)


async def _principal_by_headers(
    exchange: Exchange, authenticate: Callable[[], Awaitable[Principal]]
) -> Principal | None:
    """Return the caller by the headers alone; None if they have no credential, which may be in the body."""
    try:
        return await authenticate()
    except UnauthenticatedError:
        if has_credential(exchange):
            raise
        return None


def _needs_header() -> UnauthenticatedError:
    return UnauthenticatedError(
        f"A request with a body of more than {UNAUTHENTICATED_BYTES} bytes must have its API key in a header: send it "
        "as x-api-key or as a bearer token."
    )


def _parsed_bytes(content: bytes) -> int:
    """Return roughly how much memory JSON takes once parsed; raise if it has too many values."""
    separators, keys = content.count(b","), content.count(b":")
    if separators > _MAX_JSON_VALUES or keys > _MAX_JSON_KEYS:
        raise InvalidInputError(
            f"The JSON body has too many values: {separators} commas (at most {_MAX_JSON_VALUES}) and {keys} colons "
            f"(at most {_MAX_JSON_KEYS}). Split the request."
        )
    return 36 * (separators + keys) + 40 * (content.count(b"[") + content.count(b"{")) + 15 * content.count(b'"')
