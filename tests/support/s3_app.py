"""The S3 server of the tests as a program: ``python -m tests.support.s3_app KEY_ID``.

It serves moto's S3 on a free port of the loopback address, prints the port, and ends when its standard input
does, so that it never outlives the tests. ``GET /_requests`` returns the requests since the last such call, as lines of
a method and a path. Two things are added to moto, without which it is kinder than S3:

* One request is carried out at a time. moto looks whether a key exists and then stores it, in threads, so
  that of two racing conditional puts both could win.
* A request must be signed with the key id of the tests. (The signature itself is not checked.)
"""

from __future__ import annotations

import io
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: The path that returns the requests; no bucket may have a name with an underscore.
REQUESTS = "/_requests"
DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>InvalidAccessKeyId</Code><Message>The key id is not known.</Message></Error>"
)


@runtime_checkable
class Closable(Protocol):
    """A response that calls a function once it has been sent."""

    def close(self) -> None:
        """Release what the answer holds."""


class HonestS3:
    """Make an S3 application atomic, and closed to those without its key id."""

    def __init__(self, application: WSGIApplication, key_id: str) -> None:
        self._application = application
        self._key_id = key_id
        self._one_at_a_time = threading.Lock()
        self._requests: list[str] = []

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == REQUESTS:
            requests, self._requests = self._requests, []
            text = "\n".join(requests).encode()
            start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
            return [text]
        listed = f"?{environ['QUERY_STRING']}" if environ.get("QUERY_STRING") else ""
        self._requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{listed}")
        # The body is read before the lock is taken, so that a client that stalls holds up nobody else.
        _read_body(environ)
        if not self._knows(environ):
            start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(DENIED)))])
            return [DENIED]
        with self._one_at_a_time:
            answer = self._application(environ, start_response)
            try:
                return list(answer)
            finally:
                if isinstance(answer, Closable):
                    answer.close()

    def _knows(self, environ: WSGIEnvironment) -> bool:
        signed = f"{environ.get('HTTP_AUTHORIZATION', '')}&{environ.get('QUERY_STRING', '')}"
        return f"Credential={self._key_id}/" in signed or f"Credential={self._key_id}%2F" in signed


def _read_body(environ: WSGIEnvironment) -> None:
    """Take the whole body off the connection and leave it in the environment."""
    stream = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated"):
        body = stream.read()
        environ["CONTENT_LENGTH"] = str(len(body))
    else:
        body = stream.read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)


class QuietHandler(MotoRequestHandler):  # type: ignore[misc] # moto is untyped to us
    """Write no line for each request."""

    def log_request(self, *_: Any) -> None:
        """Write nothing."""


def main() -> None:
    """Serve until standard input ends."""
    application = HonestS3(DomainDispatcherApplication(create_backend_app), sys.argv[1])
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
