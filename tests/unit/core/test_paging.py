"""Pages: what a token stands for, and that pages make up the whole."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.core.paging import cut_page, decode_token, encode_token, page_size


def token_of(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


class TestTokens:
    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers(0, 2**63 - 1))
    def test_a_token_stands_for_its_key(self, text: str, number: int) -> None:
        token = encode_token("things", (text, number))
        assert token.isascii()
        assert decode_token("things", token, (str, int)) == (text, number)

    @pytest.mark.parametrize("nothing", [None, ""])
    def test_no_token_is_the_first_page(self, nothing: str | None) -> None:
        assert decode_token("things", nothing, (str,)) is None

    @pytest.mark.parametrize(
        "content",
        [
            ["others", "a"],
            ["things"],
            ["things", 1],
            ["things", True],
            ["things", None],
            ["things", "a", "b"],
            ["things", ["a"]],
            [],
            {},
            "things",
            None,
            7,
            ["things", "nul\0"],
            ["things", "half \ud83d"],
        ],
    )
    def test_a_token_of_something_else_is_refused(self, content: Any) -> None:
        with pytest.raises(InvalidInputError, match="page token"):
            decode_token("things", token_of(content), (str,))

    @pytest.mark.parametrize("number", [2**63, -(2**63), 10**40, 1.5, True, "1"])
    def test_a_number_that_no_item_has_is_refused(self, number: Any) -> None:
        with pytest.raises(InvalidInputError, match="page token"):
            decode_token("things", token_of(["things", number]), (int,))

    @pytest.mark.parametrize("token", ["x", "ümläut", "\ud800", "====", "a b", "Zm9v", "\0", "W" * 100_000, "+/+/"])
    def test_garbage_is_refused(self, token: str) -> None:
        with pytest.raises(InvalidInputError, match="page token"):
            decode_token("things", token, (str,))

    def test_a_deep_token_is_refused(self) -> None:
        deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
        with pytest.raises(InvalidInputError, match="page token"):
            decode_token("things", deep, (str,))

    @given(st.text())
    def test_no_text_breaks_it(self, token: str) -> None:
        try:
            decode_token("things", token, (str,))
        except InvalidInputError:
            return


class TestSizes:
    def test_without_a_limit_a_page_is_as_large_as_it_may_be(self) -> None:
        assert page_size(None, 10) == 10

    def test_a_page_is_never_larger_than_it_may_be(self) -> None:
        assert page_size(10**30, 10) == 10
        assert page_size(3, 10) == 3
        assert page_size(0, 10) == 0

    def test_a_negative_limit_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="limit is -1"):
            page_size(-1, 10)


class TestPages:
    @given(st.sets(st.text(max_size=3)), st.lists(st.integers(1, 5), min_size=1))
    def test_pages_of_any_sizes_are_the_whole_list(self, items: set[str], sizes: list[int]) -> None:
        whole = sorted(items)
        seen: list[str] = []
        token: str | None = None
        for turn in range(len(whole) + 1):
            size = sizes[turn % len(sizes)]
            key = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))) if token else None
            rest = [item for item in whole if key is None or item > key[1]]
            page = cut_page("things", rest[: size + 1], size, lambda item: (item,))
            seen += page.items
            token = page.token
            if token is None:
                break
        assert seen == whole

    def test_a_full_last_page_has_no_token(self) -> None:
        assert cut_page("things", ["a", "b"], 2, lambda item: (item,)).token is None
        assert cut_page("things", ["a", "b", "c"], 2, lambda item: (item,)).token is not None
        assert cut_page("things", ["a"], 0, lambda item: (item,)).token is None
