"""Pickles of functions that load where only their packages are installed, and are the same for the same code.

What is installed (the standard library, site-packages) is pickled by reference, anything else by value: scripts,
notebooks, and modules that merely lie on the path of the one who declares the function.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

_PROTOCOL = 5
_ALWAYS_USED = ("cloudpickle", "pyarrow")
_PLACE = frozenset({"__file__", "__cached__", "__loader__", "__spec__", "__path__"})
_REGISTRY = threading.Lock()


@dataclass(frozen=True)
class Packed:
    """A pickle, its checksum, and the versions of the packages that it refers to."""

    pickle: bytes
    sha256: str
    packages: dict[str, str]


def pack(thing: Any, shipped: Collection[str] = ()) -> Packed:
    """Pickle a callable; shipped modules come with its environment and are pickled by reference."""
    with _REGISTRY, _by_value(shipped) as modules:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, modules)
        pickler.dump(thing)
    content = _with_steady_ids(buffer.getvalue())
    foreign = {module.__name__.partition(".")[0] for module in modules}
    used = (pickler.used - foreign - {"__main__", "pennon"}) | set(_ALWAYS_USED)
    return Packed(content, hashlib.sha256(content).hexdigest(), _versions(used))


def _plain_code(code: CodeType) -> Any:
    """Pickle code without its place, so that the same function has the same digest wherever it is written."""
    plain = code.replace(co_filename=sys.intern(f"<{code.co_name}>"), co_firstlineno=1)
    return cloudpickle.Pickler.dispatch_table[CodeType](plain)


def _plain_module(module: ModuleType) -> Any:
    """Pickle a module without its place, too, when it is pickled by value."""
    constructor, (name, *contents) = cloudpickle.Pickler.dispatch_table[ModuleType](module)
    plain = [{key: value for key, value in content.items() if key not in _PLACE} for content in contents]
    return constructor, (name, *plain)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler that leaves out where code was written, and notes which top-level modules it refers to."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _plain_code, ModuleType: _plain_module})

    def __init__(self, buffer: io.BytesIO, by_value: Collection[ModuleType]) -> None:
        super().__init__(buffer, protocol=_PROTOCOL)
        self.used: set[str] = set()
        for module in by_value:
            names = {name: vars(module)[name] for name in ("__name__", "__package__") if name in vars(module)}
            self.globals_ref[id(vars(module))] = names  # without __file__, which is nobody's business elsewhere

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            self._note(obj.__name__)
        elif isinstance(obj, type | FunctionType):
            self._note(obj.__module__)
        else:
            self._note(type(obj).__module__)
        return super().reducer_override(obj)

    def _note(self, module: str | None) -> None:
        if module:
            self.used.add(module.partition(".")[0])


@contextmanager
def _by_value(shipped: Collection[str]) -> Iterator[list[ModuleType]]:
    """Have modules that are not installed pickled by value, for as long as the context lasts."""
    modules = [module for module in list(sys.modules.values()) if _is_foreign(module, shipped)]
    known = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in known and module.__name__ != "__main__"]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield modules
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _is_foreign(module: Any, shipped: Collection[str]) -> bool:
    """Tell whether a module cannot be expected on another machine that has the same packages."""
    if not isinstance(module, ModuleType) or sys.modules.get(module.__name__) is not module:
        return False
    if module.__name__ == "__main__":
        return True
    file = vars(module).get("__file__")
    top = module.__name__.partition(".")[0]
    if not isinstance(file, str) or not file.endswith(".py") or top in shipped or top == "pennon":
        return False
    path = Path(file)
    return not {"site-packages", "dist-packages"}.intersection(path.parts) and not any(
        path.is_relative_to(folder) for folder in _standard_library()
    )


@lru_cache
def _standard_library() -> tuple[Path, ...]:
    folders = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return tuple(folders | {folder.resolve() for folder in folders})


def _with_steady_ids(content: bytes) -> bytes:
    """Replace the random ids that classes get by ones made from the content, which a loader may trust as much.

    A process that has loaded a class of the same id uses that class; equal ids must therefore mean equal code.
    """
    tracked = list(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID)  # noqa: SLF001 - nothing public has the ids
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
