"""Names as people type them: with dots, and with ``$`` where names have dots."""

from __future__ import annotations

import pytest
from lance_namespace.errors import InvalidInputError

from pennon.cli.names import format_name, namespace_route, parse_name, parse_table, table_route


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("teas", ("teas",)),
        ("shop.teas", ("shop", "teas")),
        ("shop$teas", ("shop", "teas")),
        ("shop$v1.2", ("shop", "v1.2")),
        ("$v1.2", ("v1.2",)),
        ("$", ()),
    ],
)
def test_a_name_is_an_identifier_and_can_be_typed_again(text: str, identifier: tuple[str, ...]) -> None:
    assert parse_name(text) == identifier
    assert parse_name(format_name(identifier)) == identifier


@pytest.mark.parametrize("text", ["", "shop.", ".teas", "a..b", "a$$b", "a/b"])
def test_an_invalid_name_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_name(text)


def test_the_root_namespace_is_no_table() -> None:
    with pytest.raises(InvalidInputError, match="pass a table name"):
        parse_table("$")


def test_routes_are_those_of_the_protocol() -> None:
    assert table_route(("a b", "t"), "drop") == "/v1/table/a%20b$t/drop"
    assert namespace_route((), "list") == "/v1/namespace/$/list"
