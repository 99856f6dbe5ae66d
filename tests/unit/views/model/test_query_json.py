"""Queries written as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, UnsupportedOperationError

from pennon.views.model.definition import Column
from pennon.views.model.query import QueryFunction, StructuredQuery, TableUse
from pennon.views.query_parser import parse_client_query, parse_source_query
from pennon.views.sql.spark_sql import SparkQuery

UDF = base64.b64encode(b"a function").decode()


def parse(**document: Any) -> Any:
    return parse_source_query(json.dumps(document))


class TestPennonsForm:
    def test_the_least_there_can_be(self) -> None:
        assert parse(source="t") == StructuredQuery(TableUse(("t",)))

    def test_all_there_can_be(self) -> None:
        function = {"udf": UDF, "inputs": ["a"], "outputs": {"x": "", "y": "part"}, "manifest": "{}"}
        query = parse(
            source=["ns", "t"],
            version="gold",
            columns={"b": "a + 1"},
            where="a > 1",
            limit=5,
            offset=0,
            functions=[function],
        )
        assert query == StructuredQuery(
            TableUse(("ns", "t"), "gold"),
            (Column("b", "a + 1"),),
            "a > 1",
            5,
            0,
            (QueryFunction(b"a function", ("a",), (("x", ""), ("y", "part")), "{}"),),
        )

    def test_names_of_columns_are_quoted_where_they_become_expressions(self) -> None:
        assert parse(source="ns.t", columns=["a", "b`c"]).columns == (Column("a", "`a`"), Column("b`c", "`b``c`"))

    def test_sql_in_it_is_sparks(self) -> None:
        assert isinstance(parse(sql="SELECT a FROM t"), SparkQuery)

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            ({"source": "t", "colums": ["a"]}, "'colums'. Did you mean 'columns'"),
            ({"sorce": "t"}, "'sorce'. Did you mean 'source'"),
            ({}, "'source' must name a table"),
            ({"source": ""}, "'source' must name a table"),
            ({"source": [1]}, "'source' must name a table"),
            ({"source": "t", "version": 0}, "'version' must be"),
            ({"source": "t", "version": True}, "'version' must be"),
            ({"source": "t", "columns": "a"}, "'columns' must be"),
            ({"source": "t", "columns": [1]}, "'columns' must be"),
            ({"source": "t", "columns": {"a": 1}}, "'columns' must be"),
            ({"source": "t", "where": 1}, "'where' must be a non-empty string"),
            ({"source": "t", "where": " "}, "'where' must be a non-empty string"),
            ({"source": "t", "limit": -1}, "'limit' must be a non-negative whole number"),
            ({"source": "t", "limit": "5"}, "'limit' must be a non-negative whole number"),
            ({"source": "t", "limit": 2**63}, "'limit' must be a non-negative whole number"),
            ({"source": "t", "offset": 1.5}, "'offset' must be a non-negative whole number"),
            ({"source": "t", "functions": {}}, "'functions' must be a list"),
            ({"source": "t", "functions": ["f"]}, "must be an object"),
            ({"source": "t", "functions": [{"udf": "?", "inputs": [], "outputs": {"x": ""}}]}, "not base64"),
            ({"source": "t", "functions": [{"udf": UDF, "inputs": "a", "outputs": {"x": ""}}]}, "list of column names"),
            ({"source": "t", "functions": [{"udf": UDF, "inputs": ["a"], "outputs": {}}]}, "'outputs' must be"),
            ({"source": "t", "functions": [{"udf": UDF, "input": ["a"], "outputs": {"x": ""}}]}, "mean 'inputs'"),
            ({"sql": "SELECT a FROM t", "source": "t"}, "no other key"),
            ({"sql": 1}, "a SELECT as its value"),
        ],
    )
    def test_errors_name_what_is_wrong(self, document: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            parse(**document)

    @pytest.mark.parametrize("text", ["", "  ", "{", "{]", '{"a"', "[" * 10_000, "{" * 10_000])
    def test_other_texts_are_not_queries(self, text: str) -> None:
        with pytest.raises(LanceNamespaceError):
            parse_source_query(text)


class TestGenevasForm:
    def test_its_base_query_is_read(self) -> None:
        base = {"filter": "a > 1", "columns": ["a"], "limit": 3, "offset": 2, "vector": None}
        query = parse(
            base=base,
            shuffle=False,
            shuffle_seed=None,
            fragment_ids=None,
            with_row_address=False,
            column_udfs=None,
            source_table="ns$t",
            source_db_uri="db://x",
        )
        assert query == StructuredQuery(TableUse(("ns", "t")), (Column("a", "`a`"),), "a > 1", 3, 2)

    def test_its_functions_are_kept(self) -> None:
        udf = {"name": "f", "backend": "DockerUDFSpecV1", "udf_payload": UDF, "runner_payload": None}
        entry = {"output_index": 0, "output_name": "x", "udf": udf, "input_columns": ["a"]}
        query = parse(base={}, source_table="t", column_udfs=[entry])
        assert query.functions == (QueryFunction(b"a function", ("a",), (("x", ""),), is_foreign=True),)

    @pytest.mark.parametrize("name", ["shuffle", "fragment_ids"])
    def test_unsupported_options_are_refused(self, name: str) -> None:
        with pytest.raises(UnsupportedOperationError, match=name):
            parse(base={}, source_table="t", **{name: [1]})

    @pytest.mark.parametrize("name", ["vector", "full_text_query", "order_by", "fragment_ids", "take_offsets"])
    def test_unsupported_options_of_the_base_query_are_refused(self, name: str) -> None:
        with pytest.raises(UnsupportedOperationError, match=name):
            parse(base={name: [1]}, source_table="t")


class TestTheClientsForm:
    def test_row_by_row_it_is_lances(self) -> None:
        assert isinstance(parse_client_query('SELECT "a" FROM "t" LIMIT 5'), StructuredQuery)

    def test_anything_else_is_sparks(self) -> None:
        assert isinstance(parse_client_query('SELECT "a", count(*) AS c FROM "t" GROUP BY "a"'), SparkQuery)

    def test_an_empty_one_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="empty"):
            parse_client_query(" ")
