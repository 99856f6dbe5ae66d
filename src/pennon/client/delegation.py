"""Wrappers that pass every other attribute on to the wrapped object."""

from __future__ import annotations

from typing import Any


class Delegating:
    """A wrapper that has every attribute of the wrapped object."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # whatever type the wrapped attribute has
        # On an object that is being copied or unpickled, looking these up would recurse without end.
        if name == "_inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._inner)})
