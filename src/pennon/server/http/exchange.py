"""One HTTP request and its answer, as far as the binding needs them: thin, because every request pays for it."""

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

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Headers = tuple[tuple[bytes, bytes], ...]

#: No answer is anything else than it says, whatever a browser finds in it.
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
#: The headers by which answers that are given again may differ: who asks, from which web page, and in which database.
#: Nothing else is looked at to make these (a test sees to that), and an id or a trace is another with each request.
TELLING = ("host", "origin", "x-api-key", "authorization", "x-lancedb-database")


#: Longer query strings are not remembered: anyone can send them, before it is known who calls.
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


# Clients send the same few query strings all the time.
_cached_query = lru_cache(maxsize=1024)(_read_query)


def new_request_id() -> str:
    """Return an id for a request that came without one."""
    return f"{random.getrandbits(128):032x}"


def version_header(version: int) -> Headers:
    """Return the header that tells the version which an answer was read from."""
    return ((b"x-lancedb-version", str(version).encode()),)


class BodyTooLargeError(InvalidInputError):
    """The body is larger than the settings allow."""


class ClientGoneError(InvalidInputError):
    """The client went away in the middle of its request, or does not go on with it."""


class Exchange:
    """A request that is being answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        #: The headers by their lower-case names.
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        given = self.headers.get("x-request-id", "")
        #: The id the client gave the request, or a new one.
        self.request_id = given if _REQUEST_ID.fullmatch(given) else new_request_id()
        self._query_string: bytes = scope["query_string"]
        self._first: MutableMapping[str, Any] | None = None
        self._complete = False
        #: The status of the answer; 0 before there is one.
        self.status = 0
        #: Whether the head of an answer was sent.
        self.started = False
        self._gone: asyncio.Task[None] | None = None
        self._receive = receive
        self._send = send

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters; the last of a name counts."""
        return _parse_query(self._query_string)

    def essence(self, body: bytes) -> tuple[Hashable, ...]:
        """Return all of a request by which an answer that is given again may differ from another."""
        return self.method, self.raw_path, self._query_string, body, *map(self.headers.get, TELLING)

    @property
    def query_string(self) -> str:
        """The query, as the client wrote it."""
        return self._query_string.decode("latin-1")

    def all_of(self, name: str) -> list[str]:
        """Return every value of a query parameter that may be given several times."""
        text = self._query_string.decode("ascii", errors="replace")
        return [value for key, value in parse_qsl(text, keep_blank_values=True) if key == name]

    @property
    def path(self) -> str:
        """The path, as the client wrote it."""
        return self.raw_path.decode("latin-1")

    @property
    def announced(self) -> int:
        """The length of the body that its client announced; 0 when it did not."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isdigit() and len(text) < 20 else 0

    async def chunks(self, limit: int | None, size: int = 0) -> AsyncIterator[bytes]:
        """Give the body as it comes, or refuse it: by its announced length before any of it is read.

        ``size`` bytes of it were read before. Raises ``ClientGoneError`` when the connection ends before the body does,
        or nothing more comes.
        """
        self.refuse_announced(limit)
        more = True
        while more:
            message = self._first or await self._receive()
            self._first = None
            if message["type"] == "http.disconnect":
                raise ClientGoneError("The connection ended before the body was complete.")
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            self._complete = not more
            if more and not chunk:  # so the connection tells that nothing came for too long
                raise ClientGoneError("Nothing more of the body came for as long as the server's stall_seconds say.")
            size += len(chunk)
            if limit is not None and size > limit:
                raise BodyTooLargeError(f"The body has more than {limit} bytes, the most that is allowed.")
            yield chunk

    async def first_bytes(self, limit: int) -> tuple[bytes, bool]:
        """Return the body as far as a limit, and whether that is all of it; the rest is for ``chunks``."""
        message = await self._receive()
        if not message.get("more_body") and message["type"] == "http.request" and len(message["body"]) <= limit:
            return message["body"], True  # by far the most bodies come in one piece
        self._first = message
        read = b""
        async for chunk in self.chunks(None):
            if len(read) + len(chunk) > limit:
                self._first = {"type": "http.request", "body": chunk, "more_body": not self._complete}
                return read, False
            read += chunk
        return read, True

    def refuse_announced(self, limit: int | None) -> None:
        """Raise when the client announced a longer body."""
        if limit is not None and self.announced > limit:
            raise BodyTooLargeError(f"The body has {self.announced} bytes; {limit} are allowed.")

    async def start(self, status: int, media_type: bytes, headers: Headers = ()) -> None:
        """Send the head of an answer whose body follows in pieces."""
        head = [(b"x-request-id", self.request_id.encode()), (b"content-type", media_type), NO_SNIFFING, *headers]
        self.started, self.status = True, status
        self.watch()
        await self._send({"type": "http.response.start", "status": status, "headers": head})

    def watch(self, when_gone: Callable[[], None] | None = None) -> None:
        """Begin to look whether the client goes away, and what to call then; only once its body was read."""
        if self._gone is None:
            self._gone = asyncio.ensure_future(self._wait_for_end())
        if when_gone is not None:
            self._gone.add_done_callback(lambda _: when_gone())

    def client_is_gone(self) -> bool:
        """Tell whether nobody waits any more for an answer, as far as that was watched."""
        return self._gone is not None and self._gone.done()

    async def _wait_for_end(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def send(self, content: bytes, *, more: bool) -> None:
        """Send a piece of the body; waits while the client is behind."""
        await self._send({"type": "http.response.body", "body": content, "more_body": more})

    async def answer(
        self, status: int, body: bytes, media_type: bytes = b"application/json", headers: Headers = ()
    ) -> None:
        """Send an answer whole."""
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
