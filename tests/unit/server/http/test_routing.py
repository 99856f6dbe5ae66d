"""Finding the operation of a path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.server.http.routing import Router, decode_segment
from pennon.server.operations.table import OPERATIONS, UNSUPPORTED


@pytest.fixture
def router() -> Router[str]:
    made: Router[str] = Router()
    made.add("GET", "/v1/table", "all")
    made.add("POST", "/v1/table/{id}/describe", "describe")
    made.add("POST", "/v1/table/{id}/index/{index_name}/drop", "drop index")
    made.add("POST", "/v1/table/{id}/index/list", "list indices")
    made.add("POST", "/v1/table/version/batch-create", "batch")
    made.add("GET", "/", "home")
    return made


def find(router: Router[str], path: bytes, method: str = "POST") -> tuple[str, dict[str, bytes]] | None:
    match = router.find(path)
    return (match.targets[method], match.values) if match and method in match.targets else None


class TestRouting:
    def test_a_placeholder_takes_one_segment(self, router: Router[str]) -> None:
        assert find(router, b"/v1/table/a$b/describe") == ("describe", {"id": b"a$b"})
        assert find(router, b"/v1/table/a/b/describe") is None

    def test_an_encoded_slash_does_not_split_a_segment(self, router: Router[str]) -> None:
        assert find(router, b"/v1/table/a%2Fb/describe") == ("describe", {"id": b"a%2Fb"})
        assert find(router, b"/v1/table%2Fa/describe") is None

    def test_a_literal_wins_and_gives_way_where_it_leads_nowhere(self, router: Router[str]) -> None:
        assert find(router, b"/v1/table/version/batch-create") == ("batch", {})
        assert find(router, b"/v1/table/version/describe") == ("describe", {"id": b"version"})
        assert find(router, b"/v1/table/t/index/list") == ("list indices", {"id": b"t"})
        assert find(router, b"/v1/table/t/index/list/drop") == (
            "drop index",
            {"id": b"t", "index_name": b"list"},
        )

    def test_one_slash_at_the_end_makes_no_difference(self, router: Router[str]) -> None:
        assert find(router, b"/v1/table/t/describe/") == ("describe", {"id": b"t"})
        assert find(router, b"/v1/table/", "GET") == ("all", {})
        assert find(router, b"/v1/table/t/describe//") is None
        assert find(router, b"/", "GET") == ("home", {})

    def test_an_empty_segment_is_a_value_of_its_own(self, router: Router[str]) -> None:
        assert find(router, b"/v1/table//describe") == ("describe", {"id": b""})
        assert find(router, b"//v1/table/t/describe") is None

    @pytest.mark.parametrize(
        "path", [b"", b"*", b"v1/table", b"/V1/table", b"/v1", b"/v1/table/t", b"/v1/table/t/describe/x"]
    )
    def test_other_paths_lead_nowhere(self, router: Router[str], path: bytes) -> None:
        match = router.find(path)
        assert match is None or not match.targets.get("POST")

    @given(st.binary())
    def test_no_path_breaks_it(self, path: bytes) -> None:
        router: Router[str] = Router()
        router.add("GET", "/v1/{id}", "x")
        router.find(path)
        router.find(b"/" + path)

    def test_a_path_of_a_million_segments_is_no_burden(self, router: Router[str]) -> None:
        assert router.find(b"/a" * 1_000_000) is None
        assert router.find(b"/v1/table" + b"/x" * 100_000) is None


class TestSegments:
    @pytest.mark.parametrize(
        ("raw", "text"),
        [
            (b"a", "a"),
            (b"a%24b", "a$b"),
            (b"a$b", "a$b"),
            (b"%C3%BC", "ü"),
            (b"a+b", "a+b"),
            (b"%2F", "/"),
            (b"%", "%"),
        ],
    )
    def test_they_are_decoded_once(self, raw: bytes, text: str) -> None:
        assert decode_segment(raw) == text

    @pytest.mark.parametrize("raw", [b"%FF", b"%C3", b"\xff", b"%ED%A0%80"])
    def test_invalid_utf8_is_refused(self, raw: bytes) -> None:
        with pytest.raises(InvalidInputError, match="UTF-8"):
            decode_segment(raw)


def test_no_two_operations_have_the_same_route() -> None:
    routes = [(row.method, row.path) for row in OPERATIONS] + list(UNSUPPORTED.values())
    assert len(set(routes)) == len(routes)
    ids = [row.id for row in OPERATIONS] + list(UNSUPPORTED)
    assert len(set(ids)) == len(ids)
