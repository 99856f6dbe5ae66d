"""The context a client sends along with a request, by any of the three ways the protocol has had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.server.exchange import Exchange

_PREFIX = "x-lance-ctx-"
#: How an entry is called that is, or was to be, sent as a header of its own.
_HEADER = "header."
_MOST_ENTRIES = 64
_LONGEST = 1024
#: Headers that are secret.
_SECRET = re.compile(r"authorization|cookie|credential|jwt|password|secret|signature|token|(access|api)[-_]?key")
#: Headers that say nothing of the caller's own context.
_OTHERS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
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
        context[name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else f"{_HEADER}{name}"] = value
    kept = [(key[:_LONGEST], value[:_LONGEST]) for key, value in context.items() if not _is_withheld(key.lower())]
    return dict(kept[:_MOST_ENTRIES])


def _is_withheld(key: str) -> bool:
    """Tell whether an entry is a header that nobody is to find recorded; Lance's clients repeat theirs in the body."""
    name = key.removeprefix(_HEADER)
    return name != key and (name in _OTHERS or _SECRET.search(name) is not None)
