"""Event streams are read as the HTML standard says, however their bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.client.server_events import EventParser, ServerEvent

STREAM = (
    "\ufeff: a comment\r\n\r\nid: 1\ndata: first\ndata:second\n\n"
    'event: progress\rid: 2\rdata: {"rows": "7 é"}\r\r'
    "data\r\n\r\nevent: nothing\n\nretry: 100\nunknown: x\ndata:  two spaces\n\ndata: cut off"
).encode()
EVENTS = [
    ServerEvent("message", "first\nsecond", "1"),
    ServerEvent("progress", '{"rows": "7 é"}', "2"),
    ServerEvent("message", "", "2"),
    ServerEvent("message", " two spaces", "2"),
]


def test_a_stream_in_one_piece() -> None:
    assert EventParser().feed(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_a_stream_in_any_pieces(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STREAM)]
    parser = EventParser()
    pieces = [STREAM[start:end] for start, end in pairwise(bounds)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


def test_an_event_is_there_as_soon_as_its_empty_line_is() -> None:
    parser = EventParser()
    assert parser.feed(b"data: 1\n") == []
    assert parser.feed(b"\n") == [ServerEvent("message", "1", "")]


@pytest.mark.parametrize("line", ["id: a\0b", "id", ""])
def test_an_invalid_event_id_is_ignored_and_an_empty_one_resets_it(line: str) -> None:
    parser = EventParser()
    parser.feed(b"id: 5\ndata: x\n\n")
    (event,) = parser.feed(f"{line}\ndata: y\n\n".encode() if line else b"data: y\n\n")
    assert event.id == ("" if line == "id" else "5")
