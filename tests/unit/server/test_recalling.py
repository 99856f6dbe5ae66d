"""Which requests are the same, so that one's answer may be given to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pennon.server.recalling import Recall
from tests.unit.server.exchanges import exchange

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.server.exchange import Exchange

HEADERS = {"host": "pennon", "content-type": "application/json", "x-team": "blue"}


@pytest.fixture
def recall(database: Database) -> Recall:
    memory = Recall(database)
    memory.find(exchange(headers=HEADERS), b"{}")
    memory.keep(exchange(headers=HEADERS), b"{}", b"answer", lambda: True)
    return memory


def test_the_order_of_headers_makes_no_difference(recall: Recall) -> None:
    turned = dict(reversed(HEADERS.items()))
    assert recall.find(exchange(headers=HEADERS), b"{}") == b"answer"
    assert recall.find(exchange(headers=turned), b"{}") == b"answer"


@pytest.mark.parametrize(
    "other",
    [
        exchange(headers={**HEADERS, "x-team": "green"}),
        exchange(headers={**HEADERS, "origin": "http://evil.example"}),
        exchange(headers={"host": "pennon"}),
        exchange("/v1/table/u/describe", headers=HEADERS),
        exchange(query="check_declared=true", headers=HEADERS),
        exchange(method="GET", headers=HEADERS),
    ],
    ids=["header's value", "one header more", "headers less", "path", "query", "method"],
)
def test_anything_else_does(recall: Recall, other: Exchange) -> None:
    assert recall.find(other, b"{}") is None
    assert recall.find(exchange(headers=HEADERS), b'{"version":1}') is None


def test_an_answer_that_does_not_hold_any_more_is_not_given(recall: Recall) -> None:
    recall.keep(exchange(headers=HEADERS), b"{}", b"answer", lambda: False)
    assert recall.find(exchange(headers=HEADERS), b"{}") is None
