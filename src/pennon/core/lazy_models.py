"""The protocol's models without the HTTP client that their package loads first.

Loading that client takes as long as loading all the rest of a command, and Pennon's own programs never use it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any

_PACKAGE = "lance_namespace_urllib3_client"


def load_client_late() -> None:
    """Let the models' package load what is in it when somebody asks for that, and not when it is imported."""
    spec = find_spec(_PACKAGE)
    if _PACKAGE in sys.modules or spec is None or spec.loader is None:
        return
    loader, package = spec.loader, module_from_spec(spec)

    def load(name: str) -> Any:
        module = f"{_PACKAGE}.{name}"
        if find_spec(module) is not None:
            return import_module(module)
        package.__dict__.pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, name)

    package.__dict__["__getattr__"] = load
    sys.modules[_PACKAGE] = package
