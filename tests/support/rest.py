"""A client for JSON over HTTP that says what went wrong when an answer is not the expected one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import httpx

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 60.0


class RestClient:
    """Talk to one server; `raw` is the client beneath, for what is not JSON."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        # The environment's proxies are not for a server on this machine.
        self.raw = httpx.Client(base_url=url, headers=dict(headers or {}), timeout=SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.raw.close()

    def get(self, path: str, *, expect: int = 200, **parameters: Any) -> Any:
        """GET a path and return the JSON of the answer."""
        return self._answer(self.raw.get(path, params=parameters), expect)

    def post(self, path: str, body: Any = None, *, expect: int = 200, **parameters: Any) -> Any:
        """POST a JSON body and return the JSON of the answer."""
        return self._answer(self.raw.post(path, json={} if body is None else body, params=parameters), expect)

    @staticmethod
    def _answer(response: httpx.Response, expect: int) -> Any:
        request = response.request
        status = response.status_code
        assert status == expect, f"{request.method} {request.url} gave {status}: {response.text[:2000]}"
        return response.json() if response.content else None
