"""Paths of fields: whatever their names are, they come apart again as they were put together."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError

from pennon.columns.feature_columns import feature_columns
from pennon.tables.field_paths import find_field, join_path, split_path

NAMES = st.text(alphabet=st.sampled_from("ab.` é"), min_size=1, max_size=6)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_path_comes_apart_as_it_was_put_together(names: list[str]) -> None:
    assert split_path(join_path(names)) == names


def test_a_path_may_be_long() -> None:
    assert len(split_path("a." * 1_000_000 + "a")) == 1_000_001  # in minutes, if the rest were copied each time


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "`a", "`a`b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError):
        split_path(path)


def test_a_field_is_found_by_its_path() -> None:
    schema = pa.schema([pa.field("s", pa.struct([pa.field("x.y", pa.int8())]))])
    assert find_field(schema, "s.`x.y`").type == pa.int8()
    with pytest.raises(TableColumnNotFoundError, match=r"s\.x"):
        find_field(schema, "s.x")


def test_columns_that_something_fills_are_found_at_any_depth() -> None:
    filled = {"virtual_column": "true"}
    inner = pa.struct([pa.field("b", pa.int8(), metadata={"computed_column": "true"}), pa.field("c", pa.int8())])
    schema = pa.schema([pa.field("a", pa.int8(), metadata=filled), pa.field("s", inner), pa.field("t", pa.string())])
    assert feature_columns(schema) == ["a", "s.b"]
