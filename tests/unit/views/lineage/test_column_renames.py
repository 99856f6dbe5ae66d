"""Definitions and watermarks follow a column of a source to its new name."""

from __future__ import annotations

import pytest

from pennon.catalog.views import Watermark
from pennon.views.lineage.column_renames import rename_column, rename_field, rename_in_expression
from pennon.views.model.definition import Column, Definition, Expansion, FunctionColumn, Source


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", "`z`"),
        ("`a`", "`z`"),
        ("a + ab + b.a", "`z` + ab + b.a"),
        ("a.b", "`z`.b"),
        ("`a`.`a` + `b`.`a`", "`z`.`a` + `b`.`a`"),
        ("a(a)", "a(`z`)"),
        ("'a' = a", "'a' = `z`"),
        ("'it''s a' || a", "'it''s a' || `z`"),
        ("A", "A"),
    ],
)
def test_only_the_column_gets_another_name(expression: str, expected: str) -> None:
    assert rename_in_expression(expression, "a", "z") == expected


def test_names_are_of_any_alphabet() -> None:
    assert rename_in_expression("état + tat", "état", "z") == "`z` + tat"


def definition(kind: str = "chunker", **more: object) -> Definition:
    stated = {
        "kind": kind,
        "engine": "lance",
        "sources": (Source("t", "1", ("t",), ("a", "b")),),
        "columns": (Column("a", "a"),),
        "expansion": Expansion("_udfs/x", "f", "1", ("a", "b"), ("c",), partition_by_indexed_column="a"),
        **more,
    }
    return Definition(**stated)  # type: ignore[arg-type]


def test_a_chunker_takes_its_inputs_by_their_new_names() -> None:
    found = rename_column(definition(), "1", "a", "z")
    assert found is not None
    assert found.expansion is not None
    assert found.expansion.inputs == ("z", "b")
    assert found.columns == (Column("a", "`z`"),)
    assert found.sources[0].columns == ("z", "b")


def test_a_table_function_keeps_the_names_of_what_it_is_given() -> None:
    found = rename_column(definition("udtf"), "1", "a", "z")
    assert found is not None
    assert found.expansion is not None
    assert found.expansion.inputs == ("a", "b")
    assert found.expansion.partition_by_indexed_column == "z"
    assert found.columns == (Column("a", "`z`"),)


def test_what_cannot_be_followed_safely_is_not() -> None:
    assert rename_column(definition(engine="spark", sql="SELECT a FROM t"), "1", "a", "z") is None
    assert rename_column(definition(where="\"a\" = 'x'"), "1", "a", "z") is None
    assert rename_column(definition(), "1", "a.b", "z") is None
    assert rename_column(definition(where="A = 'x'"), "1", "a", "z") is None


def test_fields_inside_of_the_column_are_followed() -> None:
    read = ("a.b", "ab", "c.a")
    found = rename_column(
        definition(
            sources=(Source("t", "1", ("t",), read),),
            functions=(FunctionColumn("_udfs/y", read, (("y", ""),)),),
            expansion=Expansion("_udfs/x", "f", "1", read, ("c",), partition_by_indexed_column="a.b"),
        ),
        "1",
        "a",
        "z",
    )
    assert found is not None
    assert found.expansion is not None
    renamed = ("z.b", "ab", "c.a")
    assert found.sources[0].columns == found.functions[0].inputs == found.expansion.inputs == renamed
    assert found.expansion.partition_by_indexed_column == "z.b"
    assert rename_field(Watermark({"1": 5}, fields={"1": {"a.b": 3}}), "1", "a", "z").fields == {"1": {"z.b": 3}}


def test_a_watermark_knows_the_column_by_its_new_name() -> None:
    before = Watermark({"1": 5, "2": 7}, fields={"1": {"a": 0, "b": 1}, "2": {"a": 3}})
    after = Watermark({"1": 5, "2": 7}, fields={"1": {"z": 0, "b": 1}, "2": {"a": 3}})
    assert rename_field(before, "1", "a", "z") == after
