"""The bodies of requests in memory: how much of one is read for whom, and how much all of them may take together."""

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

#: A body up to this size is read at once and not counted: its connection buffers as much anyway.
SMALL_BYTES = 64 * 1024
#: The largest body that is read for who calls, which some clients state in it and not in a header.
STRANGER_BYTES = 1024 * 1024
#: Strangers get an eighth of the memory, so that they cannot keep callers with a key from theirs, and what is made of
#: JSON gets half of it. No request waits for a share while it holds of a later one, so that none waits for ever.
_STRANGER_SHARE, _PARSED_SHARE = 8, 2
_WAIT_SECONDS = 30.0
#: Parsing holds the interpreter for about 35 ns a value and 0.7 µs a key; with these, for 0.2 s at most.
_MAX_JSON_VALUES = 2_000_000
_MAX_JSON_KEYS = 200_000


class BodyBudget:
    """Bytes that bodies may hold together. Counts on any thread; waits on the event loop, in the order of arrival."""

    def __init__(self, limit: int, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._used = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """The bytes that are held now."""
        return self._used

    @property
    def is_exceeded(self) -> bool:
        """Whether those that can wait have to."""
        return self._used > self._limit

    def add(self, size: int) -> None:
        """Count bytes that are held already."""
        with self._lock:
            self._used += size

    def remove(self, size: int) -> None:
        """Count bytes no longer; lets those go on that wait for them."""
        with self._lock:
            self._used -= size
            first = self._waiting[0][1] if self._waiting else None
        if first is not None:
            first.get_loop().call_soon_threadsafe(self._admit)

    async def acquire(self, size: int) -> None:
        """Count bytes once there is room for them; raises ``ThrottlingError`` when there is none for too long."""
        with self._lock:
            if not self._waiting and self._fits(size):
                self._used += size
                return
            admitted = asyncio.get_running_loop().create_future()
            self._waiting.append((size, admitted))
        try:
            await asyncio.wait_for(asyncio.shield(admitted), self._wait_seconds)
        except TimeoutError:
            raise ThrottlingError(
                "The server's memory for request bodies (body_memory_bytes) is used up by other requests; "
                "nothing was done. Try again later."
            ) from None
        finally:
            self._leave(size, admitted)

    def _leave(self, size: int, admitted: asyncio.Future[None]) -> None:
        """Forget one that waited; what it was given and will not use is free again."""
        if not admitted.done():
            admitted.cancel()
            with self._lock:
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
    """A body that was read, and who sent it where that was to be known before."""

    content: bytes = b""
    principal: Principal | None = None
    #: What it holds of which budgets.
    held: list[tuple[BodyBudget, int]] = field(default_factory=list)

    @property
    def is_large(self) -> bool:
        """Whether to handle it on a thread, because it would keep the event loop too long."""
        return len(self.content) > SMALL_BYTES

    async def reserve(self, budget: BodyBudget, size: int) -> None:
        """Wait until there is room in a budget, and hold it."""
        await budget.acquire(size)
        self.held.append((budget, size))

    def release(self) -> None:
        """Give its memory back."""
        while self.held:
            budget, size = self.held.pop()
            budget.remove(size)


class BodyReader:
    """Reads JSON bodies: small ones at once, large ones once it is known who calls, and within a budget."""

    def __init__(self, max_bytes: int, memory_bytes: int) -> None:
        self._max_bytes = max_bytes
        strangers, parsed = memory_bytes // _STRANGER_SHARE, memory_bytes // _PARSED_SHARE
        #: The memory of callers that were recognised; streams count in it, too.
        self.budget = BodyBudget(memory_bytes - strangers - parsed)
        self._strangers = BodyBudget(strangers)
        self._parsed = BodyBudget(parsed)

    async def read(self, exchange: Exchange, recognise: Callable[[], Awaitable[Principal]]) -> RequestBody:
        """Return the body of a request. The caller of this releases it."""
        limit = self._max_bytes
        exchange.refuse_announced(limit)  # before a client is told to go on with it
        body = RequestBody()
        if exchange.announced <= SMALL_BYTES:
            body.content, complete = await exchange.first_bytes(min(SMALL_BYTES, limit))
            if complete:
                return body
        body.principal = await _known(exchange, recognise)
        try:
            await self._read_rest(exchange, body)
            await body.reserve(self._parsed, _parsed_bytes(body.content))
        except BaseException:
            body.release()
            raise
        return body

    async def _read_rest(self, exchange: Exchange, body: RequestBody) -> None:
        is_stranger = body.principal is None
        most = min(STRANGER_BYTES, self._max_bytes) if is_stranger else self._max_bytes
        if is_stranger and exchange.announced > most:
            raise _needs_header()
        await body.reserve(self._strangers if is_stranger else self.budget, exchange.announced or most)
        parts, size = [body.content], len(body.content)
        async for chunk in exchange.chunks(self._max_bytes, size):
            size += len(chunk)
            if is_stranger and size > most:
                raise _needs_header()
            parts.append(chunk)
        body.content = b"".join(parts)


async def _known(exchange: Exchange, recognise: Callable[[], Awaitable[Principal]]) -> Principal | None:
    """Return who calls by the headers alone; none when they do not say and the body may."""
    try:
        return await recognise()
    except UnauthenticatedError:
        if has_credential(exchange):
            raise
        return None


def _needs_header() -> UnauthenticatedError:
    return UnauthenticatedError(
        f"A request with a body of more than {STRANGER_BYTES} bytes must have its API key in a header; send it as "
        "x-api-key or as a bearer token."
    )


def _parsed_bytes(content: bytes) -> int:
    """Return about how much memory the objects of a JSON text take, or refuse one with too many of them."""
    separators, keys = content.count(b","), content.count(b":")
    if separators > _MAX_JSON_VALUES or keys > _MAX_JSON_KEYS:
        raise InvalidInputError(
            f"The JSON body has too many values: {separators} of at most {_MAX_JSON_VALUES} commas, {keys} of at most "
            f"{_MAX_JSON_KEYS} colons. Split the request."
        )
    return 36 * (separators + keys) + 40 * (content.count(b"[") + content.count(b"{")) + 15 * content.count(b'"')
