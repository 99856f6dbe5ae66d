"""Pennon: an open server for Lance tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.client import Job, computed, connect, query
    from pennon.functions import ErrorPolicy, chunker, udf, udtf

__version__ = "0.1.0"

#: The public names and their modules, which are imported on first use: the server and its workers need few of them.
_MODULES = {
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


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
