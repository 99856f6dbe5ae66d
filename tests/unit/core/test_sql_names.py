"""Names are quoted for SQL in one place."""

from __future__ import annotations

import pytest

from pennon.core.sql_names import quote_name


@pytest.mark.parametrize(("name", "quoted"), [("a", "`a`"), ("a b", "`a b`"), ("a`b", "`a``b`"), ("``", "``````")])
def test_a_name_is_put_in_backticks_and_those_in_it_are_doubled(name: str, quoted: str) -> None:
    assert quote_name(name) == quoted
