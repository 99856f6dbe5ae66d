"""String maps as the catalog stores them."""

from __future__ import annotations

import json
from collections.abc import Mapping

Properties = dict[str, str]


def dump_properties(properties: Mapping[str, str] | None) -> str:
    """Return a map as text."""
    return json.dumps(dict(properties), ensure_ascii=False, sort_keys=True) if properties else "{}"


def load_properties(text: str) -> Properties:
    """Return the map a text holds."""
    if text == "{}":
        return {}
    loaded: Properties = json.loads(text)
    return loaded
