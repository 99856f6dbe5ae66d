"""The context a client sends along with a request, by any of the three ways the protocol has had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.server.exchange import Exchange

_PREFIX = "x-lance-ctx-"
_MOST_ENTRIES = 64
_LONGEST_VALUE = 1024
#: Headers that say nothing of the caller's own context, or that are secret.
_OTHERS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "date",
        "dnt",
        "expect",
        "forwarded",
        "from",
        "host",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "keep-alive",
        "origin",
        "pragma",
        "priority",
        "proxy-authorization",
        "range",
        "referer",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "sec-fetch-user",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "upgrade-insecure-requests",
        "user-agent",
        "via",
        "x-api-key",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip",
        "x-request-id",
    }
)


def context_of(exchange: Exchange, body: Mapping[str, Any]) -> dict[str, str]:
    """Return the context of a request: its body's map, ``x-lance-ctx-<key>`` headers and other headers of its own."""
    stated = body.get("context")
    context = {str(k): v for k, v in stated.items() if isinstance(v, str)} if isinstance(stated, dict) else {}
    for name, value in exchange.headers.items():
        if name.startswith(_PREFIX):
            context[name.removeprefix(_PREFIX)] = value
        elif name not in _OTHERS:
            context[f"header.{name}"] = value
    return {key: value[:_LONGEST_VALUE] for key, value in list(context.items())[:_MOST_ENTRIES]}
