"""What Pennon does otherwise than uvicorn at the socket.

The head of an answer goes out together with the first of its body: uvicorn writes both by themselves, which costs every
small answer a second system call, and its client a second read. And the application hears when a request arrives, so
that requests which arrive together need only one look at what has changed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LARGE = 64 * 1024
_FINAL_HEADS = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")


class JoiningTransport:
    """A transport that keeps the head of an answer until more follows."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write bytes, with the head that waits for them."""
        if self._head is not None:
            head, self._head = self._head, None
            # A large piece is not worth copying for it.
            if len(data) <= _LARGE:
                self._transport.write(head + bytes(data))
                return
            self._transport.write(head)
        elif isinstance(data, bytes) and data.startswith(_FINAL_HEADS) and data.endswith(b"\r\n\r\n"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Write a head that nothing follows."""
        if self._head is not None:
            self.write(b"")

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

    def shutdown(self) -> None:
        """Take note that the server is to stop."""
        self.app.notice_end()
        super().shutdown()

    def on_response_complete(self) -> None:
        """End an answer, also one that has only a head."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()
