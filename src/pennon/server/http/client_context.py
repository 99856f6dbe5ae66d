"""The context that a client sends with a request, in any of the three ways that the protocol has had."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pennon.server.http.exchange import Exchange

_PREFIX = "x-lance-ctx-"
#: Prefix of entries that are headers.
_HEADER = "header."
_MAX_ENTRIES = 64
_MAX_CHARACTERS = 1024
#: Headers that are secret: never recorded, even if the settings name them.
_SECRET = re.compile(r"authorization|cookie|credential|jwt|password|secret|signature|token|(access|api)[-_]?key")


def client_context(exchange: Exchange, body: Mapping[str, JsonValue], recorded: Collection[str] = ()) -> dict[str, str]:
    """Return the context of a request: its body's map, ``x-lance-ctx-<key>`` headers, and other recorded headers.

    The settings name the other headers, in lower case: headers that proxies add may be private.
    """
    in_body = body.get("context")
    context = {str(k): v for k, v in in_body.items() if isinstance(v, str)} if isinstance(in_body, dict) else {}
    for name, value in exchange.headers.items():
        context[name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else f"{_HEADER}{name}"] = value
    kept = [(k[:_MAX_CHARACTERS], v[:_MAX_CHARACTERS]) for k, v in context.items() if _is_recorded(k.lower(), recorded)]
    return dict(kept[:_MAX_ENTRIES])


def _is_recorded(key: str, recorded: Collection[str]) -> bool:
    """Tell whether an entry is context or a recorded header; Lance's clients repeat their headers in the body."""
    name = key.removeprefix(_HEADER)
    return name == key or (name in recorded and _SECRET.search(name) is None)
