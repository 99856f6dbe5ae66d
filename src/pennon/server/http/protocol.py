"""The HTTP protocol: uvicorn's, with write batching, timeouts for stalled clients and errors as JSON.

uvicorn writes the head and the body of a response separately, which costs every small response a second system call and
its client a second read: here they are written together. Small responses of one iteration of the event loop are written
at its end. Invalid HTTP gets the protocol's error response. Every wait for a client has a timeout.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from lance_namespace.errors import InvalidInputError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pennon.server.error_responses import error_body
from pennon.server.http.exchange import new_request_id

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"x-content-type-options: nosniff\r\n"
)
#: Copying a larger piece costs more than a second write.
_MAX_BATCHED_BYTES = 64 * 1024
#: The limit for everything in a request except its body.
_MAX_HEAD_BYTES = 1024 * 1024
#: How often a client is checked for progress within the shortest timeout.
_CHECKS_PER_TIMEOUT = 4
_FINAL_HEADS = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")


class WriteBatcher:
    """Writes the small responses of one iteration of the event loop at its end.

    A write wakes up its client, which then competes for the processor with the responses that are not made yet.
    """

    def __init__(self) -> None:
        self._waiting: list[CoalescingTransport] = []

    def add(self, transport: CoalescingTransport) -> None:
        """Flush a transport at the end of this iteration."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._waiting.append(transport)

    def _flush_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            transport.flush()


_batcher = WriteBatcher()


class CoalescingTransport:
    """A transport that holds back a head until its body follows, and a small response until it is flushed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._response: bytes | None = None
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write bytes, together with the head before them."""
        if self._head is not None and len(data) <= _MAX_BATCHED_BYTES:
            self._response, self._head = self._head + bytes(data), None
            _batcher.add(self)
            return
        self.flush()
        if isinstance(data, bytes) and data.startswith(_FINAL_HEADS) and data.endswith(b"\r\n\r\n"):
            self._head = data
        else:
            self._send(data)

    def end(self) -> None:
        """Complete a response that has no body."""
        if self._head is not None:
            self.write(b"")

    def flush(self) -> None:
        """Write what was held back."""
        waiting, self._response, self._head = self._response or self._head, None, None
        if waiting is not None:
            self._send(waiting)

    def _send(self, data: bytes) -> None:
        if not self.is_closing():  # uvloop raises for a connection that it has closed
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after writing what was held back."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol over a coalescing transport, with a timeout for every wait for a client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start a connection."""
        super().connection_made(CoalescingTransport(transport))  # type: ignore[arg-type]
        stall_timeout_seconds: float = self.app.stall_timeout_seconds
        self._timeouts = {
            "request": self.timeout_keep_alive,
            "body": stall_timeout_seconds,
            "read": stall_timeout_seconds,
        }
        self._check_seconds = min(self._timeouts.values()) / _CHECKS_PER_TIMEOUT
        self._head_bytes = 0
        # What the last check saw, how long the client had made no progress by then, and whether it did since.
        self._awaited: tuple[str | None, object] = None, None
        self._unread_bytes = 0
        self._stalled_seconds = 0.0
        self._progressed = False
        self._next_check = self.loop.call_later(self._check_seconds, self.check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._next_check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The headers of the request have more than {_MAX_HEAD_BYTES} bytes.")

    def on_body(self, body: bytes) -> None:
        """Receive a piece of a body."""
        self._head_bytes, self._progressed = 0, True
        super().on_body(body)

    def resume_writing(self) -> None:
        """Resume a response: the client has read what was sent."""
        self._progressed = True
        super().resume_writing()

    def check_progress(self) -> None:
        """Check whether the client made progress since the last check, and stop waiting after its timeout."""
        self._next_check = self.loop.call_later(self._check_seconds, self.check_progress)
        unread = self.transport.get_write_buffer_size()
        awaited = self._awaited_from_client(unread)
        progressed = self._progressed or awaited != self._awaited or unread < self._unread_bytes
        self._stalled_seconds = 0.0 if progressed else self._stalled_seconds + self._check_seconds
        self._awaited, self._unread_bytes, self._progressed = awaited, unread, False
        action, _ = awaited
        if action is None or self._stalled_seconds < self._timeouts[action]:
            return
        self._stalled_seconds = 0.0
        if action == "body":
            # The application receives an empty chunk, which tells it of the stall; its response ends the connection.
            self.cycle.keep_alive = False
            self.cycle.message_event.set()
        else:
            self.transport.abort()

    def _awaited_from_client(self, unread: int) -> tuple[Literal["request", "body", "read"] | None, object]:
        """Return what the server waits for, if anything, and the last request."""
        request = self.cycle
        if unread:
            return "read", request
        if request is None or request.response_complete:
            # Between two requests uvicorn has a timeout of its own, which ends with the first byte of the next.
            return "request" if self.timeout_keep_alive_task is None else None, request
        is_sending = request.more_body and not request.waiting_for_100_continue and not self.flow.read_paused
        return "body" if is_sending else None, request

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP, and close the connection."""
        request_id = new_request_id()
        body = error_body(InvalidInputError(msg), "", request_id)
        length = f"x-request-id: {request_id}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(_BAD_REQUEST + length.encode() + body)
        self.transport.close()

    def shutdown(self) -> None:
        """Shut down gracefully."""
        self.app.begin_shutdown()
        super().shutdown()

    def on_response_complete(self) -> None:
        """Complete a response, including one that has only a head."""
        self._head_bytes = 0
        self.transport.end()  # type: ignore[attr-defined]
        super().on_response_complete()
