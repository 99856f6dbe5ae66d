"""Requests to a server that LanceDB's client has no call for: JSON, Arrow streams and event streams over HTTP."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3
from lance_namespace.errors import ErrorCode, LanceNamespaceError, ServiceUnavailableError, from_error_code
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

import pennon
from pennon.client.server_events import EventParser, ServerEvent

Json = dict[str, Any]
Headers = Mapping[str, str]

_ATTEMPTS = 4
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_CONNECT_SECONDS = 30.0
_READ_SECONDS = 300.0
_PIECE = 1 << 16
_LONGEST_QUOTE = 300

#: Errors that pass: another server is busy with the very request, storage or the server is away, or overloaded.
_PASSING = {ErrorCode.CONCURRENT_MODIFICATION, ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.THROTTLING}
#: What an answer means that is not the protocol's own, say a proxy's.
_CODES = {401: 16, 403: 15, 406: 0, 429: 21, 502: 17, 503: 17, 504: 17}


class Transport:
    """Sends requests to one server, for one database of it.

    What never reached the server is sent again. What may have reached it is sent again only when that is harmless:
    a request that just reads, or one with an idempotency key, under which the server carries it out once.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        database: str | None = None,
        headers: Headers | None = None,
        more_headers: Callable[[], Headers] | None = None,
        tls: Mapping[str, Any] | None = None,
        attempts: int = _ATTEMPTS,
        seconds: float | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"user-agent": f"pennon/{pennon.__version__}", **(headers or {})}
        if api_key:
            self._headers["x-api-key"] = api_key
        if database:
            self._headers["x-lancedb-database"] = database
        self._more_headers = more_headers
        self._tls = dict(tls or {})
        self._attempts = attempts
        self._seconds = seconds
        self._pool = self._new_pool()

    def __getstate__(self) -> Json:
        return {name: value for name, value in self.__dict__.items() if name != "_pool"}

    def __setstate__(self, state: Json) -> None:
        self.__dict__.update(state)
        self._pool = self._new_pool()

    def post(self, path: str, body: Json | None = None, *, idempotency_key: str | None = None) -> Json:
        """Send a request that may change something, and return its answer."""
        keyed = {"idempotency-key": idempotency_key} if idempotency_key else {}
        return self._json_of(self._post(path, body, keyed, repeatable=idempotency_key is not None))

    def ask(self, path: str, body: Json | None = None) -> Json:
        """Send a request that changes nothing, and return its answer."""
        return self._json_of(self._post(path, body, {}, repeatable=True))

    def ask_all(self, path: str, body: Json, items: str, limit: int | None = None) -> list[Json]:
        """Return the items of all pages of a listing, or so many of the first ones."""
        return _all_items(lambda page: self.ask(path, {**body, **page}), items, limit)

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Json:
        """Read what is at a path, and return the answer."""
        return self._json_of(self._send("GET", _with_query(path, query or {}), None, {}, repeatable=True))

    def get_all(self, path: str, items: str, limit: int | None = None, **query: Any) -> list[Any]:
        """Return the items of all pages of a listing that is read, or so many of the first ones."""
        return _all_items(lambda page: self.get(path, {**query, **page}), items, limit)

    def fetch(self, path: str, body: Json | None = None) -> bytes:
        """Send a request that changes nothing, and return the bytes of its answer."""
        return self._post(path, body, {}, repeatable=True).data

    def stream_bytes(self, path: str, body: Json | None = None) -> Iterator[bytes]:
        """Send a request that changes nothing, and yield the bytes of its answer as they come."""
        response = self._post(path, body, {}, repeatable=True, preload_content=False)
        try:
            yield from response.stream(_PIECE)
        except HTTPError as error:
            raise self._unreachable(error, never_sent=False) from error
        finally:
            response.close()

    def stream_events(
        self, path: str, *, after: str = "", quiet_seconds: float = 15.0, until: float | None = None
    ) -> Iterator[ServerEvent]:
        """Yield the events of a stream until it ends, breaks, is quiet for too long, or the (monotonic) time has come.

        A stream that ends says nothing about what it tells of; whoever follows it asks afterwards, and again.
        """
        left = quiet_seconds if until is None else min(quiet_seconds, until - time.monotonic())
        headers = {"accept": "text/event-stream", **({"last-event-id": after} if after else {})}
        timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=max(left, 0.05))
        response = self._send("GET", path, None, headers, repeatable=False, timeout=timeout, preload_content=False)
        parser = EventParser()
        try:
            while until is None or time.monotonic() < until:
                piece = response.read1(_PIECE)
                if not piece:
                    return
                yield from parser.feed(piece)
        except HTTPError:
            return
        finally:
            response.close()

    def _post(
        self, path: str, body: Json | None, headers: Headers, *, repeatable: bool, **options: Any
    ) -> urllib3.BaseHTTPResponse:
        content = json.dumps(body or {}).encode()
        stated = {"content-type": "application/json", **headers}
        return self._send("POST", path, content, stated, repeatable=repeatable, **options)

    def _send(
        self, method: str, path: str, content: bytes | None, headers: Headers, *, repeatable: bool, **options: Any
    ) -> urllib3.BaseHTTPResponse:
        attempt = 1
        while True:
            try:
                response = self._pool.request(
                    method,
                    f"{self.url}{path}",
                    body=content,
                    headers={**self._headers, **(self._more_headers() if self._more_headers else {}), **headers},
                    retries=False,
                    redirect=False,
                    **options,
                )
            except HTTPError as error:
                never_sent = isinstance(error, (NewConnectionError, ConnectTimeoutError))
                if attempt >= self._attempts or not (repeatable or never_sent):
                    raise self._unreachable(error, never_sent=never_sent) from error
                wanted = None
            else:
                if response.status < 300:
                    return response
                answered = error_of(response)
                if attempt >= self._attempts or not (repeatable and answered.code in _PASSING):
                    raise answered
                wanted = response.headers.get("retry-after")
            time.sleep(_pause(attempt, wanted))
            attempt += 1

    def _unreachable(self, error: HTTPError, *, never_sent: bool) -> LanceNamespaceError:
        if never_sent:
            said = str(error).partition("): ")[2] or str(error)  # without the name of urllib3's own object
            return ServiceUnavailableError(f"There is no server at {self.url}: {said}")
        return ServiceUnavailableError(
            f"The answer of {self.url} was lost, so the request may have been carried out or not: {error}"
        )

    def _json_of(self, response: urllib3.BaseHTTPResponse) -> Json:
        try:
            answer = json.loads(response.data or b"{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServiceUnavailableError(f"{self.url} does not answer as a Pennon does: {_quote(response.data)}")
        return answer

    def _new_pool(self) -> urllib3.PoolManager:
        timeout = urllib3.Timeout(connect=self._seconds or _CONNECT_SECONDS, read=self._seconds or _READ_SECONDS)
        return urllib3.PoolManager(timeout=timeout, maxsize=4, **self._tls)


def new_key() -> str:
    """Return a fresh idempotency key."""
    return str(uuid.uuid4())


def error_of(response: urllib3.BaseHTTPResponse) -> LanceNamespaceError:
    """Return the error that an answer states, of the class that belongs to its code."""
    content = response.data
    try:
        stated = json.loads(content)
    except ValueError:
        stated = None
    if not isinstance(stated, dict) or not isinstance(stated.get("code"), int):
        code = _CODES.get(response.status, int(ErrorCode.INTERNAL))
        said = f"The answer {response.status} is none of a Pennon; check the address. It says: {_quote(content)}"
        return from_error_code(code, said)
    error = from_error_code(stated["code"], str(stated.get("error") or "The server gave no reason."))
    if stated.get("detail"):
        error.add_note(str(stated["detail"]))
    if stated.get("request_id"):
        error.add_note(f"The server's log has it under request {stated['request_id']}.")
    return error


def _all_items(fetch: Callable[[Json], Json], items: str, limit: int | None) -> list[Any]:
    """Fetch one page after the other, each told what is asked for of it, until there are enough items or no more."""
    found: list[Any] = []
    after: Json = {}
    while limit is None or len(found) < limit:
        answer = fetch(after if limit is None else {**after, "limit": limit - len(found)})
        found += answer.get(items) or []
        if not answer.get("page_token"):
            break
        after = {"page_token": answer["page_token"]}
    return found


def _pause(attempt: int, wanted: str | None) -> float:
    """Return how long to wait after an attempt: as long as the server wants, or ever longer, never all alike."""
    if wanted is not None and wanted.isdecimal():
        return min(float(wanted), _LONGEST_PAUSE)
    longest: float = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
    return longest * random.uniform(0.5, 1)  # noqa: S311 (nothing to guess here)


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    stated = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(stated)}" if stated else path


def _quote(content: bytes) -> str:
    text = " ".join(content.decode(errors="replace").split()) or "nothing."
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
