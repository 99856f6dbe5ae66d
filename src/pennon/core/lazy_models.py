"""Lazy import of the protocol's models, without the HTTP client that their package imports first.

Importing that client takes as long as everything else that a command imports, and Pennon does not use it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec

_PACKAGE = "lance_namespace_urllib3_client"


def install_lazy_models() -> None:
    """Make the models' package import its modules on first use instead of all at once."""
    spec = find_spec(_PACKAGE)
    if _PACKAGE in sys.modules or spec is None or spec.loader is None:
        return
    loader, package = spec.loader, module_from_spec(spec)

    def load(name: str) -> object:
        module = f"{_PACKAGE}.{name}"
        if find_spec(module) is not None:
            return import_module(module)
        package.__dict__.pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, name)

    package.__dict__["__getattr__"] = load
    sys.modules[_PACKAGE] = package
