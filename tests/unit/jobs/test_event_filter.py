"""Filters over events, as LanceDB's client writes them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.jobs.event_filter import COLUMNS, parse_filter

ROW = {"kind": "unit", "state": "unit", "unit": "it's", "claim_entity": "it's", "updated_by": None, "job_id": "7"}


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        (None, True),
        ("  ", True),
        ("state = 'unit'", True),
        ("STATE='unit'", True),
        ("state != 'unit'", False),
        ("state <> 'done'", True),
        ("unit = 'it''s'", True),
        ("unit in ('a','it''s')", True),
        ("unit NOT IN ('a')", True),
        ("state = 'unit' AND job_id = '8'", False),
        ("state = 'unit' AND job_id = '8' OR kind = 'unit'", True),
        ("kind = 'x' OR state = 'unit' AND job_id = '7'", True),
        ("unit = ' AND state = '", False),
        ("updated_by = ''", False),
        ("updated_by <> 'ada'", False),  # as in SQL, nothing is known of what is null
    ],
)
def test_a_row_passes_or_not(text: str | None, admitted: bool) -> None:
    assert parse_filter(text)(ROW) is admitted


@pytest.mark.parametrize(
    "text",
    ["x", "state", "state =", "state = 1", "state = 'a", "state = 'a' and", "state like 'a'", "state in ()", ";"],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        parse_filter(text)


def test_a_column_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(InvalidInputError, match="'data'.*" + ", ".join(COLUMNS)):
        parse_filter("data = 'x'")


@given(st.text(max_size=40))
def test_any_text_can_be_compared_with(value: str) -> None:
    literal = value.replace("'", "''")
    assert parse_filter(f"unit = '{literal}'")({**ROW, "unit": value})
    assert not parse_filter(f"unit <> '{literal}'")({**ROW, "unit": value})


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    with suppress(InvalidInputError):  # any other error fails the test
        assert parse_filter(text)(ROW) in (True, False)
