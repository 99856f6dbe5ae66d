"""Which requests are the same, so that one's answer may be given to the other."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance_namespace as ln
import pytest

from pennon.catalog.read_cache import CachedRead
from pennon.core.caller import ANONYMOUS_ADMIN, Grant, Principal, Role
from pennon.namespace import PennonNamespace
from pennon.server.dispatch import Dispatcher
from pennon.server.http.exchange import VARY_HEADER
from pennon.server.http.response_cache import CachedResponse, ResponseCache
from pennon.server.operations.table import OPERATIONS
from tests.unit.server.exchanges import exchange

if TYPE_CHECKING:
    from pennon.server.http.exchange import Exchange

HEADERS = {"host": "pennon", "content-type": "application/json", "x-lancedb-database": "shop", "x-request-id": "1"}
CACHEABLE = [row for row in OPERATIONS if row.cacheable]


ADA = Principal("ada", (Grant(Role.READER, ("shop",)),))


@pytest.fixture
def read() -> CachedRead[int]:
    return CachedRead("table t")


@pytest.fixture
def cache(read: CachedRead[int]) -> ResponseCache:
    cache = ResponseCache()
    cache.put(ADA, exchange(headers=HEADERS), b"{}", CachedResponse(b"answer", [read], lambda: True))
    return cache


def test_the_order_of_headers_makes_no_difference(cache: ResponseCache) -> None:
    turned = dict(reversed(HEADERS.items()))
    assert cache.find(ADA, exchange(headers=HEADERS), b"{}") == b"answer"
    assert cache.find(ADA, exchange(headers=turned), b"{}") == b"answer"


def test_other_headers_are_not_part_of_the_cache_key(cache: ResponseCache) -> None:
    for others in (
        {"x-request-id": "2"},
        {"traceparent": "00-1-2-03"},
        {"user-agent": "curl/8"},
        {"x-lance-ctx-a": "b"},
    ):
        assert cache.find(ADA, exchange(headers={**HEADERS, **others}), b"{}") == b"answer"


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
        authenticating = {"host", "origin", "x-api-key", "authorization"}
        assert looked.at <= {VARY_HEADER, "content-length", *authenticating}


@pytest.mark.parametrize(
    "other",
    [
        exchange(headers={**HEADERS, "x-lancedb-database": "other"}),
        exchange(headers={"host": "pennon"}),
        exchange("/v1/table/u/describe", headers=HEADERS),
        exchange(query="check_declared=true", headers=HEADERS),
        exchange(method="GET", headers=HEADERS),
    ],
    ids=["header's value", "headers less", "path", "query", "method"],
)
def test_anything_else_does(cache: ResponseCache, other: Exchange) -> None:
    assert cache.find(ADA, other, b"{}") is None
    assert cache.find(ADA, exchange(headers=HEADERS), b'{"version":1}') is None


@pytest.mark.parametrize(
    "other",
    [ANONYMOUS_ADMIN, Principal("bob", ADA.grants), Principal("ada", ()), Principal("ada", (Grant(Role.ADMIN),))],
)
def test_another_caller_does(cache: ResponseCache, other: Principal) -> None:
    assert cache.find(other, exchange(headers=HEADERS), b"{}") is None


def test_an_answer_whose_read_has_changed_is_not_given(cache: ResponseCache, read: CachedRead[int]) -> None:
    read.is_valid = False
    assert cache.find(ADA, exchange(headers=HEADERS), b"{}") is None


def test_an_answer_that_storage_contradicts_is_not_given(cache: ResponseCache, read: CachedRead[int]) -> None:
    cache.put(ADA, exchange(headers=HEADERS), b"{}", CachedResponse(b"answer", [read], lambda: False))
    assert cache.find(ADA, exchange(headers=HEADERS), b"{}") is None
