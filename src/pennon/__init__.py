"""Pennon: an open server for Lance tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.client import Job, computed, connect, query
    from pennon.functions import ErrorPolicy, chunker, udf, udtf

__version__ = "0.1.0"

#: Where the names are that importing ``pennon`` promises: the server and its workers do without most of them.
_HOMES = {
    "Job": "pennon.client",
    "computed": "pennon.client",
    "connect": "pennon.client",
    "query": "pennon.client",
    "ErrorPolicy": "pennon.functions",
    "chunker": "pennon.functions",
    "udf": "pennon.functions",
    "udtf": "pennon.functions",
}

__all__ = ["ErrorPolicy", "Job", "__version__", "chunker", "computed", "connect", "query", "udf", "udtf"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
