"""Server-sent events: the live part of an answer, told apart as its bytes arrive."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ServerEvent:
    """An event of a stream: its kind, its text, and the id after which a broken stream goes on."""

    kind: str
    data: str
    id: str


class EventParser:
    """Reads an event stream in pieces of any size, as the HTML standard describes it."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False
        self._kind = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Take in a piece of the stream and return the events that it completes."""
        found = (self._take(line) for line in self._lines(piece))
        return [event for event in found if event is not None]

    def _lines(self, piece: bytes) -> list[str]:
        text = self._rest + piece
        if not self._started:
            if _BOM.startswith(text[:3]) and len(text) < len(_BOM):
                self._rest = text
                return []
            text, self._started = text.removeprefix(_BOM), True
        # A carriage return at the very end may be the first half of a line's end.
        kept = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _LINE_END.split(text.removesuffix(kept) if kept else text)
        self._rest = rest + kept
        return [line.decode(errors="replace") for line in lines]

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, self._data = self._data, []
        kind, self._kind = self._kind, ""
        return ServerEvent(kind or "message", "\n".join(data), self._id) if data else None
