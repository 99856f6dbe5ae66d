"""Put load on a server: wrk for plain requests, a small keep-alive driver for those that need preparation."""

from __future__ import annotations

import http.client
import json
import math
import selectors
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from servers import BenchmarkError, Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SCRIPT = Path(__file__).resolve().parent / "wrk" / "requests.lua"
_ANSWER_SECONDS = 60
JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Request:
    """One HTTP request; `@@` in the path and the body stands for a fresh name."""

    method: str
    path: str
    body: str = ""

    def line(self) -> str:
        """Write the request as a line for the wrk script."""
        return f"{self.method}\t{self.path}\t{self.body}"

    def named(self, name: str) -> Request:
        """Put a name in the place of the mark."""
        return Request(self.method, self.path.replace("@@", name), self.body.replace("@@", name))

    def wire(self, server: Server) -> bytes:
        """Encode the request for a kept-alive connection."""
        body = self.body.encode()
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())
        head += f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


@dataclass(frozen=True)
class Sample:
    """What one timed run gave: the successful requests, and the latencies in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int = 0
    note: str = ""

    @property
    def rate(self) -> float:
        """Count the successes of a second."""
        return self.requests / self.seconds if self.seconds else 0.0


def failed(note: str) -> Sample:
    """Record a run that could not be made."""
    return Sample(0, 0.0, 0.0, 0.0, errors=1, note=note)


def call(server: Server, request: Request, content: bytes = b"", media_type: str = JSON) -> tuple[int, bytes]:
    """Send one request on a connection of its own; its body is JSON, or other content."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=_ANSWER_SECONDS)
    try:
        body = content or request.body.encode() or None
        connection.request(
            request.method, request.path, body=body, headers={"Content-Type": media_type, **server.headers}
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError as problem:
        server.check()
        raise BenchmarkError(f"{server.name} did not answer {request.path}: {problem}") from problem
    finally:
        connection.close()


def require_wrk() -> None:
    """Raise when wrk is not installed."""
    if shutil.which("wrk") is None:
        raise BenchmarkError("wrk is not installed; on Debian: apt-get install wrk")


def run_wrk(server: Server, requests: Path, connections: int, seconds: int, tag: str) -> Sample:
    """Run wrk with the requests of a file."""
    threads = min(2, connections)
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", f"--timeout={_ANSWER_SECONDS}s"]
    command += [part for name, value in server.headers.items() for part in ("-H", f"{name}: {value}")]
    command += ["-s", str(_SCRIPT), server.url, "--", str(requests), tag]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    marked = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    server.check()
    if done.returncode or not marked:
        raise BenchmarkError(f"wrk failed with code {done.returncode}:\n{done.stdout}{done.stderr}")
    found = json.loads(marked[-1].removeprefix("RESULT "))
    errors = found["status"] + found["broken"]
    return Sample(
        requests=found["requests"] - found["status"],
        seconds=found["micros"] / 1e6,
        p50=found["p50"] / 1e3,
        p99=found["p99"] / 1e3,
        errors=errors,
        note=f"{found['status']} bad answers, {found['broken']} broken connections" if errors else "",
    )


@dataclass
class Client:
    """One kept-alive connection: it sends its next request when the last one is answered."""

    feed: Iterator[bytes]
    succeeded: int = 0
    latencies: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _socket: socket.socket | None = None
    _buffer: bytes = b""
    _sent: float = 0.0

    def connect(self, server: Server) -> socket.socket:
        """Open the connection."""
        opened = socket.create_connection((server.host, server.port), timeout=_ANSWER_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = opened
        return opened

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()

    def send(self) -> bool:
        """Send the next request; tell whether there was one."""
        request = next(self.feed, None)
        if request is None:
            return False
        assert self._socket is not None
        self._sent = time.perf_counter()
        self._socket.sendall(request)
        return True

    def receive(self) -> bool:
        """Read what has come; tell whether the answer is complete."""
        assert self._socket is not None
        got = self._socket.recv(65536)
        if not got:
            raise ConnectionError("closed before the answer was complete")
        self._buffer += got
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank or len(body) < _content_length(head):
            return False
        self.latencies.append((time.perf_counter() - self._sent) * 1e3)
        status = int(head.split(b" ", 2)[1])
        if 200 <= status < 300:
            self.succeeded += 1
        else:
            self.problems.append(f"HTTP {status}: {body[:200].decode(errors='replace')}")
        self._buffer = b""
        return True


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise BenchmarkError(f"an answer without Content-Length: {head[:200]!r}")


def drive(server: Server, clients: Sequence[Client], seconds: float | None = None) -> Sample:
    """Let the clients send, each its own requests in turn, until the time is over or a client has no more.

    Without `seconds` all requests of all clients are sent. One thread serves all connections: threads of
    Python would fight for the interpreter's lock and blur the latencies.
    """
    try:
        with selectors.DefaultSelector() as selector:
            for client in clients:
                selector.register(client.connect(server), selectors.EVENT_READ, client)
            elapsed = _turn(selector, clients, seconds)
    except OSError as problem:
        server.check()
        raise BenchmarkError(f"{server.name} broke a connection: {problem!r}") from problem
    finally:
        for client in clients:
            client.close()
    return _sample(clients, elapsed)


def _turn(selector: selectors.BaseSelector, clients: Sequence[Client], seconds: float | None) -> float:
    """Send and receive to the end; return the seconds up to the last answer."""
    began = time.perf_counter()
    deadline = math.inf if seconds is None else began + seconds
    waiting = sum(client.send() for client in clients)
    while waiting:
        ready = selector.select(_ANSWER_SECONDS)
        if not ready:
            raise TimeoutError(f"a request is unanswered after {_ANSWER_SECONDS} s")
        for key, _ in ready:
            if not key.data.receive():
                continue
            waiting -= 1
            if time.perf_counter() >= deadline:
                continue
            if key.data.send():
                waiting += 1
            elif seconds is not None:
                deadline = began
    return time.perf_counter() - began


def _sample(clients: Sequence[Client], elapsed: float) -> Sample:
    latencies = sorted(value for client in clients for value in client.latencies) or [0.0]
    problems = [problem for client in clients for problem in client.problems]
    return Sample(
        requests=sum(client.succeeded for client in clients),
        seconds=elapsed,
        p50=latencies[len(latencies) // 2],
        p99=latencies[int(len(latencies) * 0.99)],
        errors=len(problems),
        note=problems[0] if problems else "",
    )
