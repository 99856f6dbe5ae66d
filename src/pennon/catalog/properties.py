"""String maps, which the catalog stores as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

Properties = dict[str, str]


def dump_properties(properties: Mapping[str, str] | None) -> str:
    """Return a map as JSON."""
    return json.dumps(dict(properties), ensure_ascii=False, sort_keys=True) if properties else "{}"


def load_properties(text: str) -> Properties:
    """Return the map in a JSON text."""
    if text == "{}":
        return {}
    loaded: Properties = json.loads(text)
    return loaded
