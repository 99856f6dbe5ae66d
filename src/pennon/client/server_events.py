"""Server-sent events, parsed as their bytes arrive."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ServerEvent:
    """An event of a stream: its kind, its data, and the id from which a broken stream can be resumed."""

    kind: str
    data: str
    id: str


class EventParser:
    """Parses an event stream, given in chunks of any size, as the HTML standard defines it."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False
        self._kind = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Parse a chunk of the stream and return the events that it completes."""
        found = (self._take(line) for line in self._lines(chunk))
        return [event for event in found if event is not None]

    def _lines(self, chunk: bytes) -> list[str]:
        text = self._rest + chunk
        if not self._started:
            if _BOM.startswith(text[:3]) and len(text) < len(_BOM):
                self._rest = text
                return []
            text, self._started = text.removeprefix(_BOM), True
        # A carriage return at the end may be the first half of CRLF.
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
