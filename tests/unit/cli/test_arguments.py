"""Vectors, ranges of versions and properties as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError

from pennon.cli.namespaces import parse_properties
from pennon.cli.query import parse_vector
from pennon.cli.versions import parse_range


@pytest.mark.parametrize("text", ["0.5,-1,2e1", "[0.5, -1, 2e1]", " 0.5 , -1 , 20 "])
def test_a_vector_is_numbers_with_commas(text: str) -> None:
    assert parse_vector(text) == [0.5, -1.0, 20.0]


def test_a_long_vector_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "vector.json").write_text("[1, 2, 3]\n", encoding="utf-8")
    assert parse_vector(f"@{tmp_path / 'vector.json'}") == [1.0, 2.0, 3.0]
    with pytest.raises(InvalidInputError, match="No such file"):
        parse_vector(f"@{tmp_path / 'none.json'}")


@pytest.mark.parametrize("text", ["a,b", "1,,2", "[[1],[2]]", '{"a": 1}', "null", "[1,2", "1,2]", "NaN,1", "1e999"])
def test_an_invalid_vector_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--vector"):
        parse_vector(text)


@pytest.mark.parametrize(("text", "bounds"), [("3", (3, 4)), ("1-8", (1, 9)), ("5-5", (5, 6))])
def test_a_range_ends_with_its_last_version(text: str, bounds: tuple[int, int]) -> None:
    assert tuple(parse_range(text).values()) == bounds


@pytest.mark.parametrize("text", ["", "0", "8-1", "-1", "1-", "one"])
def test_an_invalid_range_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInputError, match="1-8"):
        parse_range(text)


def test_a_property_is_a_name_and_a_value() -> None:
    assert parse_properties(["owner=ada", "query=a=b", "empty="]) == {"owner": "ada", "query": "a=b", "empty": ""}
    for text in ("owner", "=ada"):
        with pytest.raises(InvalidInputError, match="NAME=VALUE"):
            parse_properties([text])
