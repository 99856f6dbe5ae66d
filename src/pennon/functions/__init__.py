"""Functions that fill columns: declaring them, their envelope, and applying them to batches.

Client, server and executors share this layer, so importing it costs next to nothing. Only ``loader`` unpickles, and
only executors import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.functions.decorators.chunker import chunker
    from pennon.functions.decorators.udf import Function, udf
    from pennon.functions.decorators.udtf import udtf
    from pennon.functions.envelope import Envelope, read_envelope
    from pennon.functions.error_policy import ErrorPolicy
    from pennon.functions.outputs import Output

__all__ = ["udf", "chunker", "udtf", "Function", "Output", "ErrorPolicy", "Envelope", "read_envelope"]

_HOMES = {
    "udf": "decorators.udf",
    "chunker": "decorators.chunker",
    "udtf": "decorators.udtf",
    "Function": "decorators.udf",
    "Output": "outputs",
    "ErrorPolicy": "error_policy",
    "Envelope": "envelope",
    "read_envelope": "envelope",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
