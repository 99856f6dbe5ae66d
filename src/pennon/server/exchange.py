"""One HTTP request and its answer, as far as the binding needs them: thin, because every request pays for it."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from lance_namespace.errors import InvalidInputError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class BodyTooLargeError(InvalidInputError):
    """The body is larger than the settings allow."""


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
        self.request_id = given if _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"
        self._query_string: bytes = scope["query_string"]
        self._query: dict[str, str] | None = None
        self._receive = receive
        self._send = send

    @property
    def query(self) -> dict[str, str]:
        """The query parameters; the last of a name counts."""
        if self._query is None:
            try:
                text = self._query_string.decode("ascii")
                self._query = dict(parse_qsl(text, keep_blank_values=True, errors="strict"))
            except ValueError:
                raise InvalidInputError("The query string is not valid UTF-8.") from None
        return self._query

    @property
    def path(self) -> str:
        """The path, as the client wrote it."""
        return self.raw_path.decode("latin-1")

    async def body(self, limit: int) -> bytes:
        """Return the whole body, or refuse it: by its announced length before any of it is read."""
        announced = self.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > limit:
            raise BodyTooLargeError(f"The body has {announced} bytes; {limit} are allowed.")
        message = await self._receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            return body
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await self._receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise BodyTooLargeError(f"The body has more than {limit} bytes, the most that is allowed.")
        return b"".join(parts)

    async def answer(
        self,
        status: int,
        body: bytes,
        media_type: bytes = b"application/json",
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        """Send an answer whole."""
        head = [
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", self.request_id.encode()),
            *headers,
        ]
        if body:
            head.append((b"content-type", media_type))
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body if self.method != "HEAD" else b""})
