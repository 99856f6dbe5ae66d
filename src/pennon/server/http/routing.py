"""Routing by the raw segments of a path, so that an encoded slash never splits a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from lance_namespace.errors import InvalidInputError

Target = TypeVar("Target")


@dataclass
class _Node(Generic[Target]):
    literal: dict[bytes, _Node[Target]] = field(default_factory=dict)
    any: _Node[Target] | None = None
    name: str = ""
    targets: dict[str, Target] = field(default_factory=dict)


@dataclass(frozen=True)
class Match(Generic[Target]):
    """The targets of a path by method, and the raw values of its placeholders."""

    targets: dict[str, Target]
    values: dict[str, bytes]


class Router(Generic[Target]):
    """A tree of path segments. A literal takes precedence over a placeholder; a trailing slash is ignored."""

    def __init__(self) -> None:
        self._root: _Node[Target] = _Node()

    def add(self, method: str, path: str, target: Target) -> None:
        """Route a path such as ``/v1/table/{id}/drop`` to a target."""
        node = self._root
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                node.any = node.any or _Node()
                node = node.any
                node.name = segment[1:-1]
            else:
                node = node.literal.setdefault(segment.encode(), _Node())
        node.targets[method] = target

    def find(self, raw_path: bytes) -> Match[Target] | None:
        """Return the match of a path, if any."""
        segments = raw_path.split(b"/")[1:]
        if len(segments) > 1 and not segments[-1]:
            segments.pop()
        return _find(self._root, segments, 0, {})


def _find(node: _Node[Target], segments: list[bytes], at: int, values: dict[str, bytes]) -> Match[Target] | None:
    if at == len(segments):
        return Match(node.targets, values) if node.targets else None
    literal = node.literal.get(segments[at])
    if literal is not None:
        found = _find(literal, segments, at + 1, values)
        if found is not None:
            return found
    if node.any is not None:
        return _find(node.any, segments, at + 1, {**values, node.any.name: segments[at]})
    return None


def decode_segment(raw: bytes) -> str:
    """Return the text of a raw path segment."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidInputError("The path is not valid UTF-8.") from None
