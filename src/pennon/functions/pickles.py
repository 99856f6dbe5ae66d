"""Pickles of functions: self-contained apart from installed packages, and identical for identical code.

Installed code (the standard library, site-packages) is pickled by reference. All other code is pickled by value:
scripts, notebooks, and modules that are only on the import path of the process that declares the function.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TypeAlias

import cloudpickle  # type: ignore[import-untyped]

_PROTOCOL = 5
_ALWAYS_USED = ("cloudpickle", "pyarrow")
_LOCATION_ATTRIBUTES = frozenset({"__file__", "__cached__", "__loader__", "__spec__", "__path__"})
#: cloudpickle's registry of modules to pickle by value is global.
_REGISTRY_LOCK = threading.Lock()
#: What pickle's reducers return.
_Reduced: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class Packed:
    """A pickle, its sha256, and the versions of the packages that it refers to."""

    pickle: bytes
    sha256: str
    packages: dict[str, str]


def pack(target: Callable[..., object], bundled: Collection[str] = ()) -> Packed:
    """Pickle a callable; bundled modules are part of its environment and are pickled by reference."""
    with _REGISTRY_LOCK, _by_value(bundled) as modules:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, modules)
        pickler.dump(target)
    content = _with_stable_ids(buffer.getvalue())
    by_value = {module.__name__.partition(".")[0] for module in modules}
    used = (pickler.used - by_value - {"__main__", "pennon"}) | set(_ALWAYS_USED)
    return Packed(content, hashlib.sha256(content).hexdigest(), _versions(used))


def _code_without_location(code: CodeType) -> _Reduced:
    """Pickle code without file name and line, so that the same function has the same digest wherever it is defined."""
    plain = code.replace(co_filename=sys.intern(f"<{code.co_name}>"), co_firstlineno=1)
    reduced: _Reduced = cloudpickle.Pickler.dispatch_table[CodeType](plain)
    return reduced


def _module_without_location(module: ModuleType) -> _Reduced:
    """Pickle a module by value without its file name."""
    constructor, (name, *contents) = cloudpickle.Pickler.dispatch_table[ModuleType](module)
    plain = [{key: value for key, value in content.items() if key not in _LOCATION_ATTRIBUTES} for content in contents]
    return constructor, (name, *plain)


_REDUCERS = {CodeType: _code_without_location, ModuleType: _module_without_location}


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler that omits the location of code, and collects the top-level modules that it refers to."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child(_REDUCERS)

    def __init__(self, buffer: io.BytesIO, by_value: Collection[ModuleType]) -> None:
        super().__init__(buffer, protocol=_PROTOCOL)
        self.used: set[str] = set()
        for module in by_value:
            names = {name: vars(module)[name] for name in ("__name__", "__package__") if name in vars(module)}
            self.globals_ref[id(vars(module))] = names  # without __file__, a path of this machine

    def reducer_override(self, obj: object) -> object:
        if isinstance(obj, ModuleType):
            self._add_module(obj.__name__)
        elif isinstance(obj, type | FunctionType):
            self._add_module(obj.__module__)
        else:
            self._add_module(type(obj).__module__)
        return super().reducer_override(obj)

    def _add_module(self, module: str | None) -> None:
        if module:
            self.used.add(module.partition(".")[0])


@contextmanager
def _by_value(bundled: Collection[str]) -> Iterator[list[ModuleType]]:
    """Pickle modules that are not installed by value, within the context."""
    modules = [module for module in list(sys.modules.values()) if not _is_installed(module, bundled)]
    known = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in known and module.__name__ != "__main__"]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield modules
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: object, bundled: Collection[str]) -> bool:
    """Return whether another machine with the same packages and bundled modules has this module, too."""
    if not isinstance(module, ModuleType) or sys.modules.get(module.__name__) is not module:
        return True
    if module.__name__ == "__main__":
        return False
    file = vars(module).get("__file__")
    top = module.__name__.partition(".")[0]
    if not isinstance(file, str) or not file.endswith(".py") or top in bundled or top == "pennon":
        return True
    path = Path(file)
    return bool({"site-packages", "dist-packages"}.intersection(path.parts)) or any(
        path.is_relative_to(folder) for folder in _standard_library()
    )


@lru_cache
def _standard_library() -> tuple[Path, ...]:
    folders = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return tuple(folders | {folder.resolve() for folder in folders})


def _with_stable_ids(content: bytes) -> bytes:
    """Replace cloudpickle's random class ids by ids derived from the content.

    A process that has already loaded a class with the same id reuses it, so equal ids must mean equal code.
    """
    tracked = list(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID)  # noqa: SLF001 - no public name for the ids
    ids = sorted((known for known in map(str.encode, tracked) if known in content), key=content.index)
    blank = content
    for number, known in enumerate(ids):
        blank = blank.replace(known, b"%032x" % number)
    for number, known in enumerate(ids):
        content = content.replace(known, hashlib.sha256(b"%d" % number + blank).hexdigest()[:32].encode())
    return content


def _versions(modules: Collection[str]) -> dict[str, str]:
    distributions = _distributions()
    names = {name for module in modules for name in distributions.get(module, ())}
    return {name: importlib.metadata.version(name) for name in sorted(names)}


@lru_cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())
