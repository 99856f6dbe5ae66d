"""Identifiers: what may name an object, and the key under which it is stored."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import (
    MAX_IDENTIFIER_BYTES,
    MAX_NAME_BYTES,
    ROOT,
    check_identifier,
    check_name,
    child_key_range,
    format_identifier,
    identifier_of,
    is_within,
    key_of,
    new_id,
    parse_identifier,
)


def is_name(text: str) -> bool:
    if not text or text in {".", ".."} or any(char in "/\\$" for char in text):
        return False
    return all(unicodedata.category(char) != "Cc" for char in text) and len(text.encode()) <= MAX_NAME_BYTES


names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Z", "Cn", "Co"]), min_size=1, max_size=12)
names = names.filter(is_name)
identifiers = st.lists(names, max_size=6).map(tuple)


class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["a", "A b", "ümläut", "日本", "😀", "...", "a.b", "-", "'", '"; --', "%2e", "\U0010ffff", " ", "x" * 200],
    )
    def test_almost_anything_can_be_a_name(self, name: str) -> None:
        assert check_name(name) == name

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".",
            "..",
            "a/b",
            "/",
            "a\\b",
            "a$b",
            "$",
            "nul\0",
            "line\n",
            "\x1f",
            "\x7f",
            "\x85",
            "x" * 201,
            "ü" * 101,
        ],
    )
    def test_some_texts_cannot(self, name: str) -> None:
        with pytest.raises(InvalidInputError):
            check_name(name)

    def test_half_a_character_cannot(self) -> None:
        with pytest.raises(InvalidInputError, match="not valid Unicode"):
            check_name("half \ud83d")

    def test_the_error_about_a_long_name_is_short(self) -> None:
        with pytest.raises(InvalidInputError) as caught:
            check_name("x" * 100_000)
        assert len(str(caught.value)) < 200

    def test_an_identifier_fits_into_the_index_of_every_database(self) -> None:
        depth = MAX_IDENTIFIER_BYTES // (MAX_NAME_BYTES + 1)
        check_identifier(["x" * MAX_NAME_BYTES] * depth)
        with pytest.raises(InvalidInputError, match="bytes"):
            check_identifier(["x" * MAX_NAME_BYTES] * (depth + 1))
        with pytest.raises(InvalidInputError, match="bytes"):
            check_identifier(["x"] * 50_000)


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "delimiter", "expected"),
        [
            ("$", "$", ()),
            (".", ".", ()),
            ("::", "::", ()),
            ("a", "$", ("a",)),
            ("a$b$c", "$", ("a", "b", "c")),
            ("a.b$", "$$", None),
            ("a.b", ".", ("a", "b")),
            ("a.b", "$", ("a.b",)),
            ("a::b", "::", ("a", "b")),
            ("a::b", ":", None),
            ("a/b", "/", ("a", "b")),
            ("", "$", None),
            ("$a", "$", None),
            ("a$", "$", None),
            ("a$$b", "$", None),
            ("$$", "$", None),
            ("a$..$b", "$", None),
        ],
    )
    def test_parts_are_split_at_the_delimiter(
        self, text: str, delimiter: str, expected: tuple[str, ...] | None
    ) -> None:
        if expected is None:
            with pytest.raises(InvalidInputError):
                parse_identifier(text, delimiter)
        else:
            assert parse_identifier(text, delimiter) == expected

    def test_an_empty_delimiter_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="delimiter is empty"):
            parse_identifier("a", "")

    @given(st.text(), st.text())
    @example("\ud800", "$")
    @example("a\ud800b", "\ud800")
    def test_no_text_breaks_it(self, text: str, delimiter: str) -> None:
        try:
            parsed = parse_identifier(text, delimiter)
        except InvalidInputError:
            return
        assert all(check_name(part) for part in parsed)

    @given(identifiers, st.text(min_size=1, max_size=3))
    def test_what_is_written_out_is_read_back(self, identifier: tuple[str, ...], delimiter: str) -> None:
        # A delimiter that is, or overlaps with, part of a name cannot tell the parts apart.
        text = format_identifier(identifier, delimiter)
        assume(text.split(delimiter) == list(identifier) if identifier else True)
        assert parse_identifier(text, delimiter) == identifier


class TestKeys:
    @given(identifiers)
    def test_a_key_stands_for_its_identifier(self, identifier: tuple[str, ...]) -> None:
        assert identifier_of(key_of(identifier)) == identifier

    @given(identifiers, identifiers)
    def test_no_two_identifiers_share_a_key(self, one: tuple[str, ...], other: tuple[str, ...]) -> None:
        assert (key_of(one) == key_of(other)) == (one == other)

    @given(identifiers, identifiers)
    @example((), ("\U0010ffff",))
    @example((), ("\U0010ffff" * 50,))
    @example(("a",), ("a", "\U0010ffff"))
    @example(("a",), ("a ", "b"))
    @example(("a",), ("a!",))
    def test_the_range_below_a_key_holds_what_is_below_it_and_nothing_else(
        self, ancestor: tuple[str, ...], identifier: tuple[str, ...]
    ) -> None:
        low, high = child_key_range(key_of(ancestor))
        below = is_within(identifier, ancestor) and identifier != ancestor
        assert (low < key_of(identifier) < high) == below

    def test_the_root_is_the_empty_key(self) -> None:
        assert key_of(ROOT) == ""
        assert identifier_of("") == ROOT

    @pytest.mark.parametrize(
        ("identifier", "ancestor", "within"),
        [("", "", True), ("a", "", True), ("a", "a", True), ("ab", "a", True), ("a", "ab", False), ("b", "a", False)],
    )
    def test_an_object_is_within_its_ancestors_and_itself(self, identifier: str, ancestor: str, within: bool) -> None:
        assert is_within(tuple(identifier), tuple(ancestor)) is within


def test_a_new_id_is_like_no_other() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(len(one) == 32 for one in ids)
