"""What Pennon does otherwise than uvicorn at the socket.

The head of an answer goes out together with the first of its body: uvicorn writes both by themselves, which costs every
small answer a second system call, and its client a second read. Small answers that are made in one turn of the event
loop are written together at its end. The application hears when a request arrives, so that requests which arrive
together need only one look at what has changed. What is no HTTP is answered with the protocol's error, too. And a
client that stops in the middle of something is waited for only so long.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from lance_namespace.errors import InvalidInputError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pennon.server.error_responses import error_body
from pennon.server.http.exchange import new_request_id

_UNREADABLE = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"x-content-type-options: nosniff\r\n"
)
_LARGE = 64 * 1024
#: The most that may come of a request without being of its body.
_LARGEST_HEAD = 1024 * 1024
#: How often it is looked, in the time for which a client is waited for, whether it goes on.
_LOOKS = 4
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
            self._send(data)

    def end(self) -> None:
        """Let a head that nothing follows be an answer."""
        if self._head is not None:
            self.write(b"")

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._answer, self._head = self._answer or self._head, None, None
        if waiting is not None:
            self._send(waiting)

    def _send(self, data: bytes) -> None:
        if not self.is_closing():  # or lost: uvloop raises for a connection that it has closed
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection, after what is still to be written."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol over a transport that joins heads and bodies, with an end to every wait for a client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]
        stall_seconds: float = self.app.stall_seconds
        self._patience = {"ask": self.timeout_keep_alive, "send": stall_seconds, "read": stall_seconds}
        self._pause = min(self._patience.values()) / _LOOKS
        self._head_bytes = 0
        # What the last look saw, for how long the client had not gone on by then, and whether it did since.
        self._turn: tuple[str | None, object] = None, None
        self._unread = 0
        self._waited = 0.0
        self._went_on = False
        self._next_look = self.loop.call_later(self._pause, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the connection has ended."""
        self._next_look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in bytes of a request."""
        self.app.begin_request()
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The head of the request has more than {_LARGEST_HEAD} bytes.")

    def on_body(self, body: bytes) -> None:
        """Take in a piece of a body."""
        self._head_bytes, self._went_on = 0, True
        super().on_body(body)

    def resume_writing(self) -> None:
        """Go on with an answer: the client has read what was sent of it."""
        self._went_on = True
        super().resume_writing()

    def look(self) -> None:
        """Look whether the client went on since the last look, and wait no longer for one that did not for too long."""
        self._next_look = self.loop.call_later(self._pause, self.look)
        unread = self.transport.get_write_buffer_size()
        turn = self._turn_of_client(unread)
        went_on = self._went_on or turn != self._turn or unread < self._unread
        self._waited = 0.0 if went_on else self._waited + self._pause
        self._turn, self._unread, self._went_on = turn, unread, False
        act, _ = turn
        if act is None or self._waited < self._patience[act]:
            return
        self._waited = 0.0
        if act == "send":
            # The application is given an empty piece now, by which it knows, and the connection ends with its answer.
            self.cycle.keep_alive = False
            self.cycle.message_event.set()
        else:
            self.transport.abort()

    def _turn_of_client(self, unread: int) -> tuple[Literal["ask", "send", "read"] | None, object]:
        """Return what the client has to do next, and the last request; nothing to do while it is the server's turn."""
        request = self.cycle
        if unread:
            return "read", request
        if request is None or request.response_complete:
            # Between two requests uvicorn keeps the time, but only until the first byte, whatever comes after it.
            return "ask" if self.timeout_keep_alive_task is None else None, request
        sends = request.more_body and not request.waiting_for_100_continue and not self.flow.read_paused
        return "send" if sends else None, request

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
        self._head_bytes = 0
        self.transport.end()  # type: ignore[attr-defined]
        super().on_response_complete()
