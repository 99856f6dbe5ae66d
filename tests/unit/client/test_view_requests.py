"""What a view is asked for with."""

from __future__ import annotations

import json

import pytest

from pennon.client.view_requests import query_body


@pytest.mark.parametrize("text", ["SELECT a FROM t", "\n  select a from t", "with b as (select 1) select * from b"])
def test_sql_is_known_by_how_it_begins(text: str) -> None:
    body = query_body(text, None)
    assert json.loads(str(body["source_query"])) == {"sql": text}
    assert body == query_body(None, text)


@pytest.mark.parametrize("name", ["shop.goods", "selected", "with_tax", "select"])
def test_other_texts_name_tables(name: str) -> None:
    assert "sql" not in json.loads(str(query_body(name, None)["source_query"]))


@pytest.mark.parametrize(("asked", "sql"), [(None, None), ("t", "SELECT 1"), ("SELECT 1", "SELECT 1")])
def test_a_view_shows_one_thing(asked: str | None, sql: str | None) -> None:
    with pytest.raises(TypeError, match="exactly one of them"):
        query_body(asked, sql)
