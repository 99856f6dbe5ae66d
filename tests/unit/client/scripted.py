"""A real HTTP server that answers by a script, for what a good server does not do: losing answers, stalling, lying."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Step = Callable[[BaseHTTPRequestHandler], None]


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> Step:
    """Answer with JSON, or with bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def step(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(content)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return step


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def stream(*pieces: bytes, then: Callable[[], object] = lambda: None) -> Step:
    """Answer with an event stream in chunks, do something while it is open, and end it."""

    def step(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        then()
        handler.wfile.write(b"0\r\n\r\n")

    return step


@dataclass
class ScriptedServer:
    """Takes the steps of its script one by one, the last one for ever, and remembers the requests."""

    steps: list[Step]
    received: list[Received] = field(default_factory=list)

    def __post_init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._handle(self)

            def do_GET(self) -> None:
                outer._handle(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        content = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.received.append(Received(handler.command, handler.path, headers, json.loads(content) if content else None))
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        step(handler)
