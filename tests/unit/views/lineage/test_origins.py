"""Which columns of its sources each column of a view comes from."""

from __future__ import annotations

from typing import Any

from pennon.views.lineage.origins import column_origins
from pennon.views.model.definition import Column, Definition, Expansion, FunctionColumn, Source


def source(name: str = "t", *columns: str) -> Source:
    return Source(name, f"id-{name}", (name,), columns)


def expansion(**more: Any) -> Expansion:
    return Expansion("_udfs/x", "f", "1", **{"inputs": None, "outputs": (), **more})


def test_expressions_and_functions_of_one_table() -> None:
    definition = Definition(
        "query",
        "lance",
        (source("t", "a", "B c", "d.e"),),
        columns=(Column("sum", "a + `B c`"), Column("text", "'a'"), Column("part", "d.e")),
        functions=(FunctionColumn("_udfs/x", ("a", "d.e"), (("x", "one"), ("y", "two"))),),
    )
    assert column_origins(definition) == {
        "sum": [("id-t", "a"), ("id-t", "B c")],
        "text": [],
        "part": [("id-t", "d.e")],
        "x": [("id-t", "a"), ("id-t", "d.e")],
        "y": [("id-t", "a"), ("id-t", "d.e")],
    }


def test_children_have_columns_of_their_parent_and_of_their_function() -> None:
    definition = Definition(
        "chunker",
        "lance",
        (source("t", "id", "text"),),
        columns=(Column("id", "`id`"),),
        expansion=expansion(inputs=("text",), outputs=("word",)),
    )
    assert column_origins(definition) == {"id": [("id-t", "id")], "word": [("id-t", "text")]}


def test_a_table_function_makes_its_columns_of_what_it_is_given() -> None:
    definition = Definition(
        "udtf",
        "lance",
        (source("t", "a", "b"),),
        columns=(Column("x", "a + 1"), Column("b", "b")),
        expansion=expansion(outputs=("n",)),
    )
    assert column_origins(definition) == {"n": [("id-t", "a"), ("id-t", "b")]}


def test_columns_of_a_join() -> None:
    sql = (
        "SELECT x.Name AS name, count(*) AS n, sum(y.price) + max(x.tax) AS total FROM source_1 AS x "
        "JOIN source_2 AS y ON x.k = y.k GROUP BY x.Name"
    )
    definition = Definition(
        "query", "spark", (source("source_1", "Name", "k", "tax"), source("source_2", "k", "price")), sql=sql
    )
    found = column_origins(definition)
    assert found["name"] == [("id-source_1", "Name")]
    assert found["n"] == []
    assert set(found["total"]) == {("id-source_2", "price"), ("id-source_1", "tax")}


def test_the_tie_to_the_source_is_no_column() -> None:
    sql = "SELECT `t`.`__source_row_id`, a AS b FROM source_1 AS t"
    definition = Definition("query", "spark", (source("source_1", "a"),), sql=sql)
    assert column_origins(definition) == {"b": [("id-source_1", "a")]}
