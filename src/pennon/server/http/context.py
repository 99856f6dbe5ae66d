"""The context a client sends along with a request, by any of the three ways the protocol has had."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.server.http.exchange import Exchange

_PREFIX = "x-lance-ctx-"
#: How an entry is called that is, or was to be, sent as a header of its own.
_HEADER = "header."
_MOST_ENTRIES = 64
_LONGEST = 1024
#: Headers that are secret: not recorded, even when the settings name them.
_SECRET = re.compile(r"authorization|cookie|credential|jwt|password|secret|signature|token|(access|api)[-_]?key")


def context_of(exchange: Exchange, body: Mapping[str, Any], recorded: Collection[str] = ()) -> dict[str, str]:
    """Return the context of a request: its body's map, ``x-lance-ctx-<key>`` headers, and other recorded headers.

    Which others are recorded is for the settings to say, in lower case: proxies add headers that are nobody's business.
    """
    stated = body.get("context")
    context = {str(k): v for k, v in stated.items() if isinstance(v, str)} if isinstance(stated, dict) else {}
    for name, value in exchange.headers.items():
        context[name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else f"{_HEADER}{name}"] = value
    kept = [(k[:_LONGEST], v[:_LONGEST]) for k, v in context.items() if _is_recorded(k.lower(), recorded)]
    return dict(kept[:_MOST_ENTRIES])


def _is_recorded(key: str, recorded: Collection[str]) -> bool:
    """Tell whether an entry is context, or a header that is recorded; Lance's clients repeat theirs in the body."""
    name = key.removeprefix(_HEADER)
    return name == key or (name in recorded and _SECRET.search(name) is None)
