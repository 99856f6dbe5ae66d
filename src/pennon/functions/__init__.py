"""User-defined functions: decorators (``udf``, ``chunker``, ``udtf``), their envelope, and calling them on batches.

Client, server and executors share this package, so importing it is cheap. Only ``loader`` unpickles, and only
executors import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.functions.decorators.chunker import chunker
    from pennon.functions.decorators.udf import Function, udf
    from pennon.functions.decorators.udtf import udtf
    from pennon.functions.envelope import Envelope, read_envelope
    from pennon.functions.error_policy import ErrorPolicy
    from pennon.functions.outputs import Output

__all__ = ["udf", "chunker", "udtf", "Function", "Output", "ErrorPolicy", "Envelope", "read_envelope"]

_MODULES = {
    "udf": "decorators.udf",
    "chunker": "decorators.chunker",
    "udtf": "decorators.udtf",
    "Function": "decorators.udf",
    "Output": "outputs",
    "ErrorPolicy": "error_policy",
    "Envelope": "envelope",
    "read_envelope": "envelope",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
