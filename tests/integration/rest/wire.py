"""HTTP as it is on the wire: paths and bodies go out byte for byte, and every answer is looked at closely."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What an answer must never hold: it would tell of the inside of the server.
INSIDE = ("Traceback", "SELECT", "INSERT INTO", "sqlite", "psycopg", "site-packages", ".py", "/rustc/", ".rs:")
ERROR_FIELDS = {"error", "code", "detail", "instance", "request_id"}
NOTHING: dict[str, str] = {}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    content: bytes
    path: str = field(repr=False, default="")

    @property
    def json(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.content)

    @property
    def outcome(self) -> tuple[int, int | None]:
        """The status, and the code if it is an error."""
        return self.status, self.json["code"] if self.status >= 400 else None


class Wire:
    """A connection to a server."""

    def __init__(self, url: str, secrets: Iterable[str] = ()) -> None:
        self.address = urlsplit(url)
        self._secrets = tuple(secrets)
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        assert self.address.hostname is not None
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=60)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = NOTHING,
    ) -> Answer:
        """Send a request as it is and return the answer, which must be a proper one."""
        path_bytes = path.encode("latin-1").decode("latin-1")
        try:
            self._connection.putrequest(method, path_bytes, skip_accept_encoding=True, skip_host="host" in headers)
            for name, value in headers.items():
                self._connection.putheader(name, value)
            if body is not None and "transfer-encoding" not in headers and "content-length" not in headers:
                self._connection.putheader("content-length", str(len(body)))
            self._connection.endheaders(body)
            response = self._connection.getresponse()
            content = response.read()
        except Exception:
            self._connection.close()
            raise
        found = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, found, content, path)
        self.check(answer)
        return answer

    def get(self, path: str, headers: Mapping[str, str] = NOTHING) -> Answer:
        """GET a path."""
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] = NOTHING) -> Answer:
        """POST a body: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.send("POST", path, content, {"content-type": "application/json", **headers})

    def check(self, answer: Answer) -> None:
        """Make sure that an answer is one: an id, a spec's body for an error, and nothing of the inside."""
        assert answer.headers.get("x-request-id"), answer
        assert answer.headers.get("x-content-type-options") == "nosniff", answer
        if answer.status < 400:
            return
        assert answer.status != 500, f"{answer.path}: {answer.content[:500]!r}"
        assert answer.headers["content-type"] == "application/json"
        body = answer.json
        assert set(body) == ERROR_FIELDS
        assert isinstance(body["error"], str)
        assert body["error"]
        assert type(body["code"]) is int
        assert 0 <= body["code"] <= 23
        assert body["request_id"] == answer.headers["x-request-id"]
        assert len(body["error"]) < 2000
        said = body["error"] + str(body["detail"])
        for word in (*INSIDE, *self._secrets):
            assert word not in said, f"{word!r} is in {said!r}"


def quoted(identifier: str) -> str:
    """Return an identifier as it stands in a path."""
    return identifier.replace("$", "%24")
