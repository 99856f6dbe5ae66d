"""Move large bodies with as little work as possible: the client must not be what is measured."""

from __future__ import annotations

import contextlib
import http.client
import selectors
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from load import Client
from servers import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servers import Server

ARROW = "application/vnd.apache.arrow.stream"
_BUFFER = 1024 * 1024
_SLICE = 8 * 1024 * 1024
_SILENCE_SECONDS = 120.0
_END = b"0\r\n\r\n"


def post_head(server: Server, path: str, kind: str, length: int | None, *, close: bool = False) -> bytes:
    """Write the head of a POST; without a length the body is chunked."""
    head = f"POST {path} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: {kind}\r\n"
    head += "Transfer-Encoding: chunked\r\n" if length is None else f"Content-Length: {length}\r\n"
    return (head + ("Connection: close\r\n\r\n" if close else "\r\n")).encode()


def post_arrow(server: Server, path: str, content: bytes) -> bytes:
    """Write a POST of an Arrow stream for a kept-alive connection."""
    return post_head(server, path, ARROW, len(content)) + content


@dataclass(frozen=True)
class Upload:
    """How a sent body was answered."""

    status: int
    body: bytes
    seconds: float


def upload(server: Server, path: str, wire: bytearray) -> Upload:
    """Send a body that is encoded as chunks already; a server may answer before it has all of it."""
    began = time.perf_counter()
    with _connect(server) as connection:
        connection.sendall(post_head(server, path, ARROW, None, close=True))
        with memoryview(wire) as view, contextlib.suppress(ConnectionError):
            for start in range(0, len(view), _SLICE):
                connection.sendall(view[start : start + _SLICE])
        try:
            answer = http.client.HTTPResponse(connection, method="POST")
            answer.begin()
            return Upload(answer.status, answer.read(), time.perf_counter() - began)
        except (OSError, http.client.HTTPException) as problem:
            server.check()
            return Upload(0, repr(problem).encode(), time.perf_counter() - began)


class Download:
    """An answer that is read and thrown away, to the end of the connection."""

    def __init__(self, server: Server, path: str, body: str) -> None:
        self._server = server
        content = body.encode()
        self.socket = _connect(server)
        self._began = time.perf_counter()
        self.socket.sendall(post_head(server, path, "application/json", len(content), close=True) + content)
        self._head = b""
        self._tail = b""
        self.bytes = 0
        self.first = 0.0
        self.seconds = 0.0

    def receive(self, buffer: memoryview) -> bool:
        """Read what has come; tell whether more is to come."""
        count = self.socket.recv_into(buffer)
        now = time.perf_counter() - self._began
        if not count:
            self.seconds = now
            self._check()
            return False
        if self.bytes:
            self.bytes += count
        else:
            self._head += bytes(buffer[:count])
            blank = self._head.find(b"\r\n\r\n")
            if blank >= 0:
                self.bytes = len(self._head) - blank - 4
        if self.bytes and not self.first:
            self.first = now
        self._tail = (self._tail + bytes(buffer[max(count - len(_END), 0) : count]))[-len(_END) :]
        return True

    def _check(self) -> None:
        """Raise unless the whole answer came, and a good one."""
        head, _, body = self._head.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1] if b" " in head else b"nothing"
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        complete = self.bytes == int(lengths[0].split(b":")[1]) if lengths else self._tail == _END
        if status != b"200" or not complete:
            self._server.check()
            said = body[:200].decode(errors="replace")
            raise BenchmarkError(f"{self._server.name} answered {status.decode()}, {self.bytes} bytes: {said}")


def download(server: Server, requests: Sequence[tuple[str, str]]) -> list[Download]:
    """Ask for several answers at once, each on a connection of its own, and read all of them."""
    buffer = memoryview(bytearray(_BUFFER))
    running = []
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for path, body in requests:
            one = Download(server, path, body)
            stack.callback(one.socket.close)
            selector.register(one.socket, selectors.EVENT_READ, one)
            running.append(one)
        while selector.get_map():
            ready = selector.select(_SILENCE_SECONDS)
            if not ready:
                raise BenchmarkError(f"{server.name} sent nothing for {_SILENCE_SECONDS:.0f} s")
            for key, _ in ready:
                if not key.data.receive(buffer):
                    selector.unregister(key.fileobj)
    return running


class AnswerClient(Client):
    """A kept-alive connection whose answers may come in chunks; they are small, and only their ends are looked at."""

    def receive(self) -> bool:
        """Read what has come; tell whether the answer is complete."""
        assert self._socket is not None
        got = self._socket.recv(_BUFFER)
        if not got:
            raise ConnectionError("closed before the answer was complete")
        self._buffer += got
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank or not _is_complete(head.lower(), body):
            return False
        self.latencies.append((time.perf_counter() - self._sent) * 1e3)
        if head.split(b" ", 2)[1] == b"200":
            self.succeeded += 1
        else:
            self.problems.append(body[:200].decode(errors="replace"))
        self._buffer = b""
        return True


def _is_complete(head: bytes, body: bytes) -> bool:
    """Tell whether a small answer has come whole."""
    announced = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    return len(body) >= int(announced[0]) if announced else body.endswith(_END)


def fetch(server: Server, path: str, body: str) -> bytes:
    """Return an answer whole, to look at it."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=_SILENCE_SECONDS)
    try:
        connection.request("POST", path, body.encode(), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    except OSError as problem:
        server.check()
        raise BenchmarkError(f"{server.name} did not answer {path}: {problem}") from problem
    finally:
        connection.close()
    if answer.status != 200:
        raise BenchmarkError(f"{server.name}: {path} answered {answer.status}: {content[:300]!r}")
    return content


def _connect(server: Server) -> socket.socket:
    connection = socket.create_connection((server.host, server.port), timeout=_SILENCE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
