"""What Pennon does otherwise than uvicorn at the socket.

The head of an answer goes out together with the first of its body: uvicorn writes both by themselves, which costs every
small answer a second system call, and its client a second read. Small answers that are made in one turn of the event
loop are written together at its end. The application hears when a request arrives, so that requests which arrive
together need only one look at what has changed. And what is no HTTP is answered with the protocol's error, too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from lance_namespace.errors import InvalidInputError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pennon.server.exchange import new_request_id
from pennon.server.failures import error_body

_UNREADABLE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n"
_LARGE = 64 * 1024
_FINAL_HEADS = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")


class Outbox:
    """Small answers on their way: all that one turn of the event loop has made are written at its end.

    A write wakes its client up, which then takes the processor from the answers that are still to be made.
    """

    def __init__(self) -> None:
        self._waiting: list[JoiningTransport] = []

    def add(self, transport: JoiningTransport) -> None:
        """Take note of a transport that has an answer to write."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._empty)
        self._waiting.append(transport)

    def _empty(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            transport.flush()


_outbox = Outbox()


class JoiningTransport:
    """A transport that keeps a head until more follows, and a small answer until the end of the loop's turn."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._answer: bytes | None = None
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write bytes, with the head that waits for them."""
        if self._head is not None and len(data) <= _LARGE:  # a large piece is not worth copying for it
            self._answer, self._head = self._head + bytes(data), None
            _outbox.add(self)
            return
        self.flush()
        if isinstance(data, bytes) and data.startswith(_FINAL_HEADS) and data.endswith(b"\r\n\r\n"):
            self._head = data
        else:
            self._transport.write(data)

    def end(self) -> None:
        """Let a head that nothing follows be an answer."""
        if self._head is not None:
            self.write(b"")

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._answer, self._head = self._answer or self._head, None, None
        if waiting is not None:
            self._transport.write(waiting)

    def close(self) -> None:
        """Close the connection, after what is still to be written."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol over a transport that joins heads and bodies."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Take in bytes of a request."""
        self.app.notice_arrival()
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read as a request, and end the connection."""
        request_id = new_request_id()
        body = error_body(InvalidInputError(msg), "", request_id)
        length = f"x-request-id: {request_id}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(_UNREADABLE + length.encode() + body)
        self.transport.close()

    def shutdown(self) -> None:
        """Take note that the server is to stop."""
        self.app.notice_end()
        super().shutdown()

    def on_response_complete(self) -> None:
        """End an answer, also one that has only a head."""
        self.transport.end()  # type: ignore[attr-defined]
        super().on_response_complete()
