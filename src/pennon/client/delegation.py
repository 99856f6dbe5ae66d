"""Objects that stand before others: what they do not do themselves, those do."""

from __future__ import annotations

from typing import Any


class Delegating:
    """Has every attribute of the object within."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        # Asked of an object that is being copied or unpickled, these would never come to an end.
        if name == "_inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._inner)})
