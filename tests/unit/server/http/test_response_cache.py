"""Which requests are the same, so that one's answer may be given to the other."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance_namespace as ln
import pytest

from pennon.namespace import PennonNamespace
from pennon.server.dispatch import Dispatcher
from pennon.server.http.exchange import VARY_HEADERS
from pennon.server.http.response_cache import ResponseCache
from pennon.server.operations.table import OPERATIONS
from tests.unit.server.exchanges import exchange

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.server.http.exchange import Exchange

HEADERS = {"host": "pennon", "content-type": "application/json", "x-api-key": "blue", "x-request-id": "1"}
CACHEABLE = [row for row in OPERATIONS if row.cacheable]


@pytest.fixture
def cache(database: Database) -> ResponseCache:
    cache = ResponseCache(database)
    cache.find(exchange(headers=HEADERS), b"{}")
    cache.put(exchange(headers=HEADERS), b"{}", b"answer", lambda: True)
    return cache


def test_the_order_of_headers_makes_no_difference(cache: ResponseCache) -> None:
    turned = dict(reversed(HEADERS.items()))
    assert cache.find(exchange(headers=HEADERS), b"{}") == b"answer"
    assert cache.find(exchange(headers=turned), b"{}") == b"answer"


def test_other_headers_are_not_part_of_the_cache_key(cache: ResponseCache) -> None:
    for others in (
        {"x-request-id": "2"},
        {"traceparent": "00-1-2-03"},
        {"user-agent": "curl/8"},
        {"x-lance-ctx-a": "b"},
    ):
        assert cache.find(exchange(headers={**HEADERS, **others}), b"{}") == b"answer"


class Looked(dict[str, str]):
    """Headers that know which of them were looked at."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(headers)
        self.at: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.at.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> str:
        return str(self.get(name))

    def __iter__(self) -> Any:
        raise AssertionError("all headers were looked at")

    __contains__ = items = keys = values = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize("slash", ["", "/"], ids=["Lance's client", "LanceDB's client"])
@pytest.mark.parametrize("row", CACHEABLE, ids=lambda row: row.id)
def test_an_answer_comes_of_no_other_headers_than_those_that_count(tmp_path: Path, row: Any, slash: str) -> None:
    with closing(PennonNamespace(directory=str(tmp_path))) as namespace, closing(Dispatcher(namespace)) as dispatcher:
        namespace.declare_table(ln.DeclareTableRequest(id=["t"]))
        asked = exchange(row.path.replace("{id}", "t") + slash)
        asked.headers = looked = Looked({"x-api-key": "no key is needed", "authorization": "Bearer x"})
        assert asyncio.run(dispatcher.dispatch(row, asked, {"id": b"t"})) == 200
        # The length of a body is that of the body.
        assert looked.at <= {*VARY_HEADERS, "content-length"}


@pytest.mark.parametrize(
    "other",
    [
        exchange(headers={**HEADERS, "x-api-key": "green"}),
        exchange(headers={**HEADERS, "origin": "http://evil.example"}),
        exchange(headers={"host": "pennon"}),
        exchange("/v1/table/u/describe", headers=HEADERS),
        exchange(query="check_declared=true", headers=HEADERS),
        exchange(method="GET", headers=HEADERS),
    ],
    ids=["header's value", "one header more", "headers less", "path", "query", "method"],
)
def test_anything_else_does(cache: ResponseCache, other: Exchange) -> None:
    assert cache.find(other, b"{}") is None
    assert cache.find(exchange(headers=HEADERS), b'{"version":1}') is None


def test_an_outdated_response_is_not_returned(cache: ResponseCache) -> None:
    cache.put(exchange(headers=HEADERS), b"{}", b"answer", lambda: False)
    assert cache.find(exchange(headers=HEADERS), b"{}") is None
