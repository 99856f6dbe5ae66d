"""Requests out of paths, queries and bodies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.server.http.codec import QUERY_PARAMETERS, build_request, parse_body, read_params
from pennon.server.http.exchange import BodyTooLargeError, ClientGoneError
from pennon.server.operations.model import Operation
from pennon.server.operations.table import OPERATIONS
from tests.unit.server.exchanges import body_of, exchange

BY_ID = {row.id: row for row in OPERATIONS}


def build(operation: str, query: str = "", body: dict[str, Any] | None = None, raw_id: bytes = b"t") -> Any:
    row: Operation = BY_ID[operation]
    values = {"id": raw_id} if "{id}" in row.path else {}
    return build_request(row, read_params(row, exchange(query=query), dict(body or {}), values))


class TestBodies:
    @pytest.mark.parametrize("body", [b"", b"null", b" null ", b"{}", b" {} ", b"\n{}\n"])
    def test_nothing_is_an_empty_request(self, body: bytes) -> None:
        assert parse_body(body) == {}

    def test_an_object_is_what_it_says(self) -> None:
        assert parse_body('{"a": [1, 2.5, null, true], "ü": "\\u00fc"}'.encode()) == {
            "a": [1, 2.5, None, True],
            "ü": "ü",
        }

    @pytest.mark.parametrize(
        "body",
        [
            b"[]",
            b"1",
            b'"x"',
            b"true",
            b"{",
            b"{}{}",
            b"{'a': 1}",
            b'{"a": 1,}',
            b'{"a": NaN}',
            b'{"a": Infinity}',
            b'{"a": -Infinity}',
            b'{"a": 01}',
            b"\xff",
            b'{"a": "\xff"}',
            b'{"a": "\xed\xa0\x80"}',
            b'{"a": "\\ud800"}',
            b'{"a": "\\udc00"}',
            b'{"a": "\n"}',
            b"\xef\xbb\xbf{}",
            b"PK\x03\x04",
            b"[" * 200_000,
            b'{"a":' * 200_000,
            b"[" * 200_000 + b"]" * 200_000,
            b'{"a": ' + b"9" * 5000,
        ],
        ids=lambda body: repr(body[:20]),
    )
    def test_anything_else_is_refused(self, body: bytes) -> None:
        with pytest.raises(InvalidInputError, match=r"JSON"):
            parse_body(body)

    @given(st.binary())
    def test_no_bytes_break_it(self, body: bytes) -> None:
        try:
            assert isinstance(parse_body(body), dict)
        except InvalidInputError:
            return

    def test_a_body_comes_in_pieces(self) -> None:
        pieces = [{"type": "http.request", "body": b"a", "more_body": True}] * 3
        assert body_of([*pieces, {"type": "http.request", "body": b"b", "more_body": False}], 4) == b"aaab"

    def test_a_body_is_refused_as_soon_as_it_is_too_large(self) -> None:
        piece = {"type": "http.request", "body": b"aaaa", "more_body": True}
        with pytest.raises(BodyTooLargeError):
            body_of([piece, piece], 7)
        with pytest.raises(BodyTooLargeError):
            body_of([{**piece, "more_body": False}], 3)
        with pytest.raises(BodyTooLargeError):
            body_of([{**piece, "body": b""}], 7, {"content-length": "8"})
        assert body_of([{**piece, "more_body": False}], 4) == b"aaaa"

    def test_a_body_that_ends_too_soon_is_no_body(self) -> None:
        gone: dict[str, Any] = {"type": "http.disconnect"}
        piece: dict[str, Any] = {"type": "http.request", "body": b"{}", "more_body": True}
        for messages in ([gone], [piece, gone]):
            with pytest.raises(ClientGoneError):
                body_of(messages, 100)


class TestIdentifiers:
    @pytest.mark.parametrize(
        ("raw", "query", "expected"),
        [
            (b"t", "", ["t"]),
            (b"a$t", "", ["a", "t"]),
            (b"a%24t", "delimiter=%24", ["a", "t"]),
            (b"a.t", "delimiter=.", ["a", "t"]),
            (b"a%2Ft", "delimiter=%2F", ["a", "t"]),
            (b"%C3%BC", "", ["ü"]),
        ],
    )
    def test_the_path_names_the_object(self, raw: bytes, query: str, expected: list[str]) -> None:
        assert build("DescribeTable", query, raw_id=raw).id == expected
        assert build("DescribeTable", query, {"id": expected}, raw_id=raw).id == expected

    @pytest.mark.parametrize("stated", [["u"], ["t", "t"], "t", {"t": 1}, 0, False, [["t"]]])
    def test_a_body_may_not_name_another(self, stated: Any) -> None:
        with pytest.raises(InvalidInputError, match="not the one in the path"):
            build("DescribeTable", body={"id": stated})

    @pytest.mark.parametrize("stated", [None, []])
    def test_a_body_may_leave_it_out(self, stated: Any) -> None:
        assert build("DescribeTable", body={"id": stated}).id == ["t"]

    @pytest.mark.parametrize("query", ["delimiter=", "delimiter"])
    def test_an_empty_delimiter_is_refused(self, query: str) -> None:
        with pytest.raises(InvalidInputError, match="delimiter is empty"):
            build("DescribeTable", query)

    def test_a_transaction_id_is_one_piece(self) -> None:
        assert build("DescribeTransaction", raw_id=b"a$b").id == ["a$b"]


class TestQueries:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("true", True), ("TRUE", True), ("1", True), ("false", False), ("False", False), ("0", False)],
    )
    def test_booleans_are_read(self, text: str, value: bool) -> None:
        assert build("DescribeTable", f"with_table_uri={text}").with_table_uri is value

    @pytest.mark.parametrize("text", ["", "yes", "2", "on", "tru", "%00"])
    def test_other_texts_are_no_booleans(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match="'with_table_uri' must be true or false"):
            build("DescribeTable", f"with_table_uri={text}")

    def test_integers_are_read(self) -> None:
        assert build("ListTables", "limit=12").limit == 12
        assert build("ListTables", "limit=-12").limit == -12

    @pytest.mark.parametrize(
        "text",
        ["", "x", "1.0", "1e3", "1_000", "+1", "%201", "0x1", "9223372036854775808", "9" * 5000, "%D9%A1", "--1"],
    )
    def test_other_texts_are_no_integers(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match="'limit' must be a 64-bit integer"):
            build("ListTables", f"limit={text}")

    def test_the_query_wins_over_the_body_and_the_last_of_a_name_counts(self) -> None:
        assert build("ListTableVersions", "limit=2&limit=3", {"limit": 1}).limit == 3

    def test_an_empty_token_is_none(self) -> None:
        assert build("ListTables", "page_token=").page_token is None

    def test_unknown_parameters_do_not_matter(self) -> None:
        assert build("ListTables", "id=other&nonsense=1&mode=x").id == ["t"]

    @pytest.mark.parametrize("query", ["limit=%FF", "a=%C3%28&limit=1"])
    def test_a_query_that_is_not_utf8_is_refused(self, query: str) -> None:
        with pytest.raises(InvalidInputError, match="UTF-8"):
            build("ListTables", query)

    def test_every_parameter_of_the_table_can_be_read(self) -> None:
        assert {name for row in OPERATIONS for name in row.query} <= set(QUERY_PARAMETERS)


class TestModels:
    def test_unknown_fields_are_ignored(self) -> None:
        assert build("DescribeTable", body={"nonsense": {"deep": [1]}}).id == ["t"]

    @pytest.mark.parametrize(
        ("operation", "body", "field"),
        [
            ("DescribeTable", {"version": "1"}, "version"),
            ("DescribeTable", {"version": -1}, "version"),
            ("DescribeTable", {"version": 1.5}, "version"),
            ("DescribeTable", {"version": True}, "version"),
            ("DescribeTable", {"with_table_uri": "true"}, "with_table_uri"),
            ("CreateNamespace", {"properties": {"a": 1}}, "properties.a"),
            ("CreateNamespace", {"properties": []}, "properties"),
            ("CreateNamespace", {"mode": 1}, "mode"),
            ("CreateNamespace", {"context": {"a": {}}}, "context.a"),
            ("CreateNamespace", {"identity": "x"}, "identity"),
            ("RenameTable", {}, "new_table_name"),
            ("RenameTable", {"new_table_name": "u", "new_namespace_id": "a"}, "new_namespace_id"),
            ("RegisterTable", {}, "location"),
            ("CreateTableVersion", {"version": 1}, "manifest_path"),
            ("BatchDeleteTableVersions", {"ranges": [{"start_version": 1}]}, "ranges.0.end_version"),
        ],
    )
    def test_a_wrong_field_is_named(self, operation: str, body: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInputError, match=f"invalid at '{field}'"):
            build(operation, body=body)
