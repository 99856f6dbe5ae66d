"""HTTP requests beyond those of LanceDB's client: JSON, Arrow streams and server-sent events."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypedDict, Unpack, cast
from urllib.parse import quote, urlencode

import urllib3
from lance_namespace.errors import ErrorCode, LanceNamespaceError, ServiceUnavailableError, from_error_code
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

import pennon
from pennon.client.server_events import EventParser, ServerEvent

#: A JSON object. Callers cast a response to the type of their operation.
JsonObject: TypeAlias = dict[str, object]
Headers: TypeAlias = Mapping[str, str]
#: The body of a request.
Body: TypeAlias = Mapping[str, object] | None

_ATTEMPTS = 4
_FIRST_BACKOFF_SECONDS = 0.25
_MAX_BACKOFF_SECONDS = 5.0
_CONNECT_SECONDS = 30.0
_READ_SECONDS = 300.0
_CHUNK_BYTES = 1 << 16
_MAX_EXCERPT_LENGTH = 300

#: Transient errors: another process is handling the same request, or the server or its storage is down or overloaded.
_TRANSIENT = {ErrorCode.CONCURRENT_MODIFICATION, ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.THROTTLING}
#: The error codes of responses that do not come from Pennon, for example from a proxy.
_CODES = {401: 16, 403: 15, 406: 0, 429: 21, 502: 17, 503: 17, 504: 17}


class TlsFiles(TypedDict, total=False):
    """Certificates of a connection, as urllib3 takes them."""

    cert_file: str
    key_file: str
    ca_certs: str
    assert_hostname: bool


class _RequestOptions(TypedDict, total=False):
    timeout: urllib3.Timeout
    preload_content: bool


class Transport:
    """Sends requests to one server, for one of its databases.

    A request that never reached the server is retried. A request that may have reached it is retried only if that is
    safe: if it only reads, or has an idempotency key, with which the server executes it once.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        database: str | None = None,
        headers: Headers | None = None,
        header_provider: Callable[[], Headers] | None = None,
        tls: TlsFiles | None = None,
        attempts: int = _ATTEMPTS,
        seconds: float | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"user-agent": f"pennon/{pennon.__version__}", **(headers or {})}
        if api_key:
            self._headers["x-api-key"] = api_key
        if database:
            self._headers["x-lancedb-database"] = database
        self._header_provider = header_provider
        self._tls: TlsFiles = tls or {}
        self._attempts = attempts
        self._seconds = seconds
        self._pool = self._new_pool()

    def __getstate__(self) -> JsonObject:
        return {name: value for name, value in self.__dict__.items() if name != "_pool"}

    def __setstate__(self, state: JsonObject) -> None:
        self.__dict__.update(state)
        self._pool = self._new_pool()

    def post(self, path: str, body: Body = None, *, idempotency_key: str | None = None) -> JsonObject:
        """Send a POST request that may change something, and return the response."""
        headers = {"idempotency-key": idempotency_key} if idempotency_key else {}
        return self._json_of(self._post(path, body, headers, is_repeatable=idempotency_key is not None))

    def read(self, path: str, body: Body = None) -> JsonObject:
        """Send a POST request that only reads, and return the response."""
        return self._json_of(self._post(path, body, {}, is_repeatable=True))

    def read_all(self, path: str, body: Mapping[str, object], items: str, limit: int | None = None) -> list[JsonObject]:
        """Return the items of all pages of a listing that is read with POST, or the first ``limit`` of them."""
        return cast(list[JsonObject], _all_items(lambda page: self.read(path, {**body, **page}), items, limit))

    def get(self, path: str, query: Mapping[str, object] | None = None) -> JsonObject:
        """Send a GET request, and return the response."""
        return self._json_of(self._send("GET", _with_query(path, query or {}), None, {}, is_repeatable=True))

    def get_all(self, path: str, items: str, limit: int | None = None) -> list[str]:
        """Return the names of all pages of a listing that is read with GET, or the first ``limit`` of them."""
        return cast(list[str], _all_items(lambda page: self.get(path, page), items, limit))

    def read_bytes(self, path: str, body: Body = None) -> bytes:
        """Send a POST request that only reads, and return the bytes of the response."""
        return self._post(path, body, {}, is_repeatable=True).data

    def stream_bytes(self, path: str, body: Body = None) -> Iterator[bytes]:
        """Send a POST request that only reads, and yield the bytes of the response as they arrive."""
        response = self._post(path, body, {}, is_repeatable=True, preload_content=False)
        try:
            yield from response.stream(_CHUNK_BYTES)
        except HTTPError as error:
            raise self._connection_error(error, never_sent=False) from error
        finally:
            response.close()

    def stream_events(
        self, path: str, *, after: str = "", quiet_seconds: float = 15.0, until: float | None = None
    ) -> Iterator[ServerEvent]:
        """Yield server-sent events until the stream ends, breaks, is quiet for too long, or ``until`` (monotonic).

        The end of a stream does not mean that its subject has ended: the caller must poll, and may connect again.
        """
        left = quiet_seconds if until is None else min(quiet_seconds, until - time.monotonic())
        headers = {"accept": "text/event-stream", **({"last-event-id": after} if after else {})}
        timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=max(left, 0.05))
        response = self._send("GET", path, None, headers, is_repeatable=False, timeout=timeout, preload_content=False)
        parser = EventParser()
        try:
            while until is None or time.monotonic() < until:
                chunk = response.read1(_CHUNK_BYTES)
                if not chunk:
                    return
                yield from parser.feed(chunk)
        except HTTPError:
            return
        finally:
            response.close()

    def _post(
        self, path: str, body: Body, headers: Headers, *, is_repeatable: bool, **options: Unpack[_RequestOptions]
    ) -> urllib3.BaseHTTPResponse:
        content = json.dumps(body or {}).encode()
        json_headers = {"content-type": "application/json", **headers}
        return self._send("POST", path, content, json_headers, is_repeatable=is_repeatable, **options)

    def _send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Headers,
        *,
        is_repeatable: bool,
        **options: Unpack[_RequestOptions],
    ) -> urllib3.BaseHTTPResponse:
        attempt = 1
        while True:
            try:
                response = self._pool.request(
                    method,
                    f"{self.url}{path}",
                    body=content,
                    headers={**self._headers, **(self._header_provider() if self._header_provider else {}), **headers},
                    retries=False,
                    redirect=False,
                    **options,
                )
            except HTTPError as error:
                never_sent = isinstance(error, (NewConnectionError, ConnectTimeoutError))
                if attempt >= self._attempts or not (is_repeatable or never_sent):
                    raise self._connection_error(error, never_sent=never_sent) from error
                retry_after = None
            else:
                if response.status < 300:
                    return response
                failure = error_of(response)
                if attempt >= self._attempts or not (is_repeatable and failure.code in _TRANSIENT):
                    raise failure
                retry_after = response.headers.get("retry-after")
            time.sleep(_backoff(attempt, retry_after))
            attempt += 1

    def _connection_error(self, error: HTTPError, *, never_sent: bool) -> LanceNamespaceError:
        if never_sent:
            reason = str(error).partition("): ")[2] or str(error)  # without the name of urllib3's own object
            return ServiceUnavailableError(f"Cannot connect to the server at {self.url}: {reason}")
        return ServiceUnavailableError(
            f"Lost the connection to {self.url} before its response; the request may or may not have been executed: "
            f"{error}"
        )

    def _json_of(self, response: urllib3.BaseHTTPResponse) -> JsonObject:
        try:
            content = json.loads(response.data or b"{}")
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ServiceUnavailableError(f"{self.url} is not a Pennon server. It responds: {_excerpt(response.data)}")
        return content

    def _new_pool(self) -> urllib3.PoolManager:
        timeout = urllib3.Timeout(connect=self._seconds or _CONNECT_SECONDS, read=self._seconds or _READ_SECONDS)
        return urllib3.PoolManager(timeout=timeout, maxsize=4, **self._tls)


def new_key() -> str:
    """Return a new idempotency key."""
    return str(uuid.uuid4())


def error_of(response: urllib3.BaseHTTPResponse) -> LanceNamespaceError:
    """Return the error in a response, as the class of its code."""
    content = response.data
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("code"), int):
        code = _CODES.get(response.status, int(ErrorCode.INTERNAL))
        message = f"This is not a Pennon server; check the URL. It responds {response.status}: {_excerpt(content)}"
        return from_error_code(code, message)
    error = from_error_code(document["code"], str(document.get("error") or "The server gave no reason."))
    if document.get("detail"):
        error.add_note(str(document["detail"]))
    if document.get("request_id"):
        error.add_note(f"Request id in the server's log: {document['request_id']}")
    return error


def _all_items(fetch: Callable[[JsonObject], JsonObject], items: str, limit: int | None) -> list[object]:
    """Fetch page after page, until there are enough items or no more pages."""
    found: list[object] = []
    page: JsonObject = {}
    while limit is None or len(found) < limit:
        response = fetch(page if limit is None else {**page, "limit": limit - len(found)})
        found += cast(list[object], response.get(items) or [])
        if not response.get("page_token"):
            break
        page = {"page_token": response["page_token"]}
    return found


def _backoff(attempt: int, retry_after: str | None) -> float:
    """Return the seconds to wait after an attempt: the server's Retry-After, or exponential backoff with jitter."""
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), _MAX_BACKOFF_SECONDS)
    longest: float = min(_FIRST_BACKOFF_SECONDS * 2**attempt, _MAX_BACKOFF_SECONDS)
    return longest * random.uniform(0.5, 1)  # noqa: S311 (jitter need not be unpredictable)


def without_none(body: Mapping[str, object]) -> JsonObject:
    """Return the fields that have a value; the server has a default for the others."""
    return {name: value for name, value in body.items() if value is not None}


def object_path(kind: str, path: Sequence[str], verb: str) -> str:
    """Return the path of an operation on a table, namespace or view."""
    return f"/v1/{kind}/{quote('$'.join(path) or '$', safe='$')}/{verb}"


def _with_query(path: str, query: Mapping[str, object]) -> str:
    params = without_none(query)
    return f"{path}?{urlencode(params)}" if params else path


def _excerpt(content: bytes) -> str:
    text = " ".join(content.decode(errors="replace").split()) or "(empty)"
    return text if len(text) <= _MAX_EXCERPT_LENGTH else f"{text[:_MAX_EXCERPT_LENGTH]}…"
