"""Requests as the server meets them, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

from pennon.server.http.exchange import Exchange


def exchange(
    path: str = "/v1/table/t/describe",
    query: str = "",
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    messages: list[dict[str, Any]] | None = None,
) -> Exchange:
    """Return a request; its body comes in the given messages."""
    scope = {
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
    }
    waiting = list(messages or [{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(_: Any) -> None: ...

    return Exchange(scope, receive, send)


def body_of(messages: list[dict[str, Any]], limit: int, headers: dict[str, str] | None = None) -> bytes:
    """Read the body that comes in messages."""

    async def read() -> bytes:
        return b"".join([chunk async for chunk in exchange(messages=messages, headers=headers).chunks(limit)])

    return asyncio.run(read())
