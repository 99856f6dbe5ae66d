"""One HTTP request and its response. Kept thin, because every request pays for it."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, MutableMapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl

from lance_namespace.errors import InvalidInputError

#: Scopes and messages of ASGI.
Message = MutableMapping[str, Any]
Scope = Message
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Headers = tuple[tuple[bytes, bytes], ...]

#: Keeps browsers from guessing another media type.
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
#: The header that cached responses vary by. A test ensures that cacheable operations read no others, except those that
#: authenticate the caller.
VARY_HEADER = "x-lancedb-database"

#: Longer query strings are not cached: unauthenticated callers can send them.
_CACHED_QUERY_BYTES = 512
_MAX_PARAMETERS = 1000


def _parse_query(text: bytes) -> Mapping[str, str]:
    return _cached_query(text) if len(text) <= _CACHED_QUERY_BYTES else _read_query(text)


def _read_query(text: bytes) -> Mapping[str, str]:
    if text.count(b"&") >= _MAX_PARAMETERS:
        raise InvalidInputError(f"The query string has more than {_MAX_PARAMETERS} parameters.")
    try:
        return MappingProxyType(dict(parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict")))
    except ValueError:
        raise InvalidInputError("The query string is not valid UTF-8.") from None


# Most requests have one of a few query strings.
_cached_query = lru_cache(maxsize=1024)(_read_query)


def new_request_id() -> str:
    """Return an id for a request whose client sent none."""
    return f"{random.getrandbits(128):032x}"


def version_header(version: int) -> Headers:
    """Return the header with the version that a response was read from."""
    return ((b"x-lancedb-version", str(version).encode()),)


class BodyTooLargeError(InvalidInputError):
    """The body is larger than the settings allow."""


class ClientGoneError(InvalidInputError):
    """The client disconnected during its request, or stopped sending it."""


class Exchange:
    """A request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        #: The headers by their lower-case names.
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        given = self.headers.get("x-request-id", "")
        #: The id that the client sent, or a new one.
        self.request_id = given if _REQUEST_ID.fullmatch(given) else new_request_id()
        self._query_string: bytes = scope["query_string"]
        self._first: Message | None = None
        self._complete = False
        #: The status of the response; 0 before it is sent.
        self.status = 0
        #: Whether the headers of the response were sent.
        self.started = False
        self._gone: asyncio.Task[None] | None = None
        self._receive = receive
        self._send = send

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters; the last value of each name."""
        return _parse_query(self._query_string)

    def cache_key(self, caller: Hashable, body: bytes) -> tuple[Hashable, ...]:
        """Return all that a cached response may depend on."""
        return caller, self.method, self.raw_path, self._query_string, body, self.headers.get(VARY_HEADER)

    @property
    def query_string(self) -> str:
        """The query string, undecoded."""
        return self._query_string.decode("latin-1")

    def query_values(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        text = self._query_string.decode("ascii", errors="replace")
        return [value for key, value in parse_qsl(text, keep_blank_values=True) if key == name]

    @property
    def path(self) -> str:
        """The path, undecoded."""
        return self.raw_path.decode("latin-1")

    @property
    def content_length(self) -> int:
        """The Content-Length of the body; 0 without one."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isdigit() and len(text) < 20 else 0

    async def chunks(self, limit: int | None, size: int = 0) -> AsyncIterator[bytes]:
        """Yield the body in chunks as it arrives; ``size`` bytes of it have been read before.

        Raises ``BodyTooLargeError`` for a body above the limit, before reading any of it if its Content-Length is, and
        ``ClientGoneError`` when the client disconnects or stops sending before the body is complete.
        """
        self.check_content_length(limit)
        more = True
        while more:
            message = self._first or await self._receive()
            self._first = None
            if message["type"] == "http.disconnect":
                raise ClientGoneError("The connection ended before the body was complete.")
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            self._complete = not more
            if more and not chunk:  # how the protocol reports that the client has stalled
                raise ClientGoneError(
                    "The client stopped sending the body for longer than the server's stall_timeout_seconds."
                )
            size += len(chunk)
            if limit is not None and size > limit:
                raise BodyTooLargeError(f"The body has more than {limit} bytes, the maximum.")
            yield chunk

    async def first_bytes(self, limit: int) -> tuple[bytes, bool]:
        """Return the body up to a limit, and whether that is all of it; ``chunks`` yields the rest."""
        message = await self._receive()
        if not message.get("more_body") and message["type"] == "http.request" and len(message["body"]) <= limit:
            return message["body"], True  # most bodies arrive in one piece
        self._first = message
        read = b""
        async for chunk in self.chunks(None):
            if len(read) + len(chunk) > limit:
                self._first = {"type": "http.request", "body": chunk, "more_body": not self._complete}
                return read, False
            read += chunk
        return read, True

    def check_content_length(self, limit: int | None) -> None:
        """Raise ``BodyTooLargeError`` if the Content-Length is above a limit."""
        if limit is not None and self.content_length > limit:
            raise BodyTooLargeError(f"The body has {self.content_length} bytes, the maximum is {limit}.")

    async def start(self, status: int, media_type: bytes, headers: Headers = ()) -> None:
        """Send the headers of a response whose body follows in pieces."""
        head = [(b"x-request-id", self.request_id.encode()), (b"content-type", media_type), NO_SNIFFING, *headers]
        self.started, self.status = True, status
        self.watch()
        await self._send({"type": "http.response.start", "status": status, "headers": head})

    def watch(self, when_gone: Callable[[], None] | None = None) -> None:
        """Watch for the client to disconnect, and call a function then. Only after the body was read."""
        if self._gone is None:
            self._gone = asyncio.ensure_future(self._wait_for_disconnect())
        if when_gone is not None:
            self._gone.add_done_callback(lambda _: when_gone())

    def client_is_gone(self) -> bool:
        """Tell whether the client has disconnected; always false before ``watch``."""
        return self._gone is not None and self._gone.done()

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def send(self, content: bytes, *, more: bool) -> None:
        """Send a piece of the body; waits while the client reads slowly."""
        await self._send({"type": "http.response.body", "body": content, "more_body": more})

    async def respond(
        self, status: int, body: bytes, media_type: bytes = b"application/json", headers: Headers = ()
    ) -> None:
        """Send a complete response."""
        head = [
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", self.request_id.encode()),
            NO_SNIFFING,
            *headers,
        ]
        self.status = status
        if body:
            head.append((b"content-type", media_type))
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body if self.method != "HEAD" else b""})
