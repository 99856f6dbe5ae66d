"""Declarations of columns become the bodies that the specification describes, for every kind of function."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from lance_namespace_urllib3_client.models import AlterTableAddColumnsRequest, AlterTableAlterColumnsRequest

import pennon
from pennon.client.backfill import backfill_body
from pennon.client.columns import alteration_entry, column_entries, computed, has_definitions
from pennon.functions import Function, read_envelope


class Language(NamedTuple):
    lang: str
    score: float


@pennon.udf
def scalar(text: str) -> int:
    return len(text)


@pennon.udf(data_type=pa.float32(), version="7")
def batch(a: pa.Array, b: pa.Array) -> pa.Array:
    return a


@pennon.udf(data_type=pa.list_(pa.float32(), 4), input_columns=["doc.text", "`odd.name`"])
def record_batch(rows: pa.RecordBatch) -> pa.Array:
    return rows[0]


class Model:
    def __init__(self, size: int = 1) -> None:
        self.size = size

    def __call__(self, text: str) -> str:
        return text


stateful = pennon.udf(data_type=pa.string(), name="stateful")(Model)


@pennon.udf
def language(text: str) -> Language:
    return Language("en", 1.0)


MANIFEST = {"pip": ["attrs"], "env_vars": {"A": "é"}}


@pennon.udf(auto_backfill=True, image="repo/image:1", manifest=MANIFEST)
def furnished(text: str) -> str:
    return text


FUNCTIONS: list[tuple[Any, Function[..., Any], list[str], list[tuple[str, str, str]]]] = [
    ("n", scalar, ["text"], [("n", "", "int64")]),
    ("s", batch, ["a", "b"], [("s", "", "float")]),
    ("v", record_batch, ["doc.text", "`odd.name`"], [("v", "", "fixed_size_list")]),
    ("m", stateful, ["text"], [("m", "", "string")]),
    ("k", stateful.constructed_with(3), ["text"], [("k", "", "string")]),
    (("l", "p"), language, ["text"], [("l", "lang", "string"), ("p", "score", "double")]),
]


@pytest.mark.parametrize(("names", "function", "inputs", "outputs"), FUNCTIONS, ids=lambda value: str(value)[:20])
def test_a_function_of_each_kind_is_declared(
    names: Any, function: Function[..., Any], inputs: list[str], outputs: list[tuple[str, str, str]]
) -> None:
    (entry,) = column_entries({names: function})
    assert AlterTableAddColumnsRequest.from_dict({"new_columns": [entry]}) is not None
    virtual = entry["virtual_column"]
    assert entry.keys() == {"name", "virtual_column"}
    assert virtual["input_columns"] == inputs
    assert [
        (output["column"], output["struct_field"], output["data_type"]["type"]) for output in virtual["outputs"]
    ] == outputs
    assert entry["name"] == outputs[0][0]
    assert (virtual["udf_backend"], virtual["udf_name"]) == ("pennon", function.name)
    assert (virtual["image"], virtual["auto_backfill"], virtual["manifest"]) == ("", False, None)
    envelope = read_envelope(base64.b64decode(virtual["udf"]))
    assert (envelope.name, envelope.version, envelope.inputs) == (function.name, virtual["udf_version"], tuple(inputs))
    assert envelope.outputs == function.outputs
    json.dumps(entry)


def test_the_version_is_the_stated_one_or_the_digest() -> None:
    assert column_entries({"s": batch})[0]["virtual_column"]["udf_version"] == "7"
    assert len(column_entries({"n": scalar})[0]["virtual_column"]["udf_version"]) == 64


def test_an_environment_is_sent_with_its_checksum() -> None:
    virtual = column_entries({"f": furnished})[0]["virtual_column"]
    assert (virtual["image"], virtual["auto_backfill"]) == ("repo/image:1", True)
    assert json.loads(virtual["manifest"]) == MANIFEST
    assert virtual["manifest_checksum"] == hashlib.sha256(virtual["manifest"].encode()).hexdigest()


def test_modules_of_this_machine_travel_along(tmp_path: Path) -> None:
    module = tmp_path / "tools.py"
    module.write_text("SIZE = 3")
    function = pennon.udf(manifest={"py_modules": [str(module), "https://example.com/tea-1.whl"]})(scalar.plain)
    shipped = [{"name": "tools.py", "content": base64.b64encode(b"SIZE = 3").decode()}, "https://example.com/tea-1.whl"]
    assert json.loads(column_entries({"n": function})[0]["virtual_column"]["manifest"]) == {"py_modules": shipped}
    body = backfill_body("x", None, {"manifest": {"py_modules": (str(module), *shipped)}})
    assert json.loads(str(body["manifest"])) == {"py_modules": [shipped[0], *shipped]}
    module.unlink()
    with pytest.raises(ValueError, match=r"Cannot read the module '.*tools\.py' of the manifest: No such file"):
        column_entries({"n": function})


def test_expressions_and_functions_share_a_request() -> None:
    entries = column_entries({"a": "id + 1", "b": computed("a * 2"), "n": scalar})
    assert entries[:2] == [
        {"name": "a", "expression": "id + 1"},
        {"name": "b", "computed": "a * 2"},
    ]
    assert [entry["name"] for entry in entries] == ["a", "b", "n"]


@pytest.mark.parametrize("names", ["l", ("l",), ("l", "p", "q")])
def test_each_output_needs_a_column(names: Any) -> None:
    with pytest.raises(ValueError, match=r"'language' has 2 outputs; .* each of 'lang', 'score'"):
        column_entries({names: language})
    with pytest.raises(ValueError, match=r"'scalar' has 1 output; name one column for it"):
        column_entries({("a", "b"): scalar})


def test_an_expression_fills_one_column() -> None:
    with pytest.raises(TypeError, match="need a UDF"):
        column_entries({("a", "b"): "id"})


@pytest.mark.parametrize("value", [3, None, pa.int32(), lambda text: text])
def test_something_else_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="'x' must be defined by"):
        column_entries({"x": value, "n": scalar})


def test_a_function_that_makes_rows_fills_no_column() -> None:
    @pennon.chunker
    def words(text: str) -> Iterator[str]:
        yield from text.split()

    for declare in (lambda: column_entries({"x": words}), lambda: alteration_entry({"path": "x", "function": words})):
        with pytest.raises(TypeError, match=r"declared with pennon\.udf; <chunker function 'words'"):
            declare()


@pytest.mark.parametrize(
    ("columns", "needed"),
    [
        ({"a": "id"}, False),
        ({}, False),
        (None, False),
        (pa.field("a", pa.int32()), False),
        ([pa.field("a", pa.int32())], False),
        ({"a": computed("id")}, True),
        ({"a": "id", "n": scalar}, True),
    ],
    ids=str,
)
def test_what_lancedb_knows_is_left_to_it(columns: Any, needed: bool) -> None:
    assert has_definitions(columns) is needed


def test_a_function_without_a_column_is_refused() -> None:
    with pytest.raises(TypeError, match="Name the column that the function computes"):
        has_definitions(scalar)


class TestAlterations:
    def test_another_function_is_sent_without_outputs(self) -> None:
        entry = alteration_entry({"path": "n", "function": batch})
        assert AlterTableAlterColumnsRequest.from_dict({"alterations": [entry]}) is not None
        assert entry.keys() == {"path", "virtual_column"}
        assert entry["virtual_column"]["input_columns"] == ["a", "b"]
        assert entry["virtual_column"]["udf_version"] == "7"
        assert "outputs" not in entry["virtual_column"]

    def test_other_changes_go_along(self) -> None:
        entry = alteration_entry({"path": "a", "rename": "b", "nullable": True, "data_type": pa.int64()})
        assert entry == {"path": "a", "rename": "b", "nullable": True, "data_type": {"type": "int64"}}

    def test_what_is_no_alteration_is_refused(self) -> None:
        with pytest.raises(TypeError, match="Unknown key 'functoin'"):
            alteration_entry({"path": "a", "functoin": scalar})
        with pytest.raises(TypeError, match=r"declared with pennon\.udf"):
            alteration_entry({"path": "a", "function": lambda text: text})


class TestBackfills:
    def test_only_what_was_stated_is_sent(self) -> None:
        assert backfill_body("x", None, {}) == {"column": "x"}
        assert backfill_body("x", "dev", {"where": "id > 1", "mode": "all", "timeout": 5, "cascade": True}) == {
            "column": "x",
            "branch": "dev",
            "where": "id > 1",
            "mode": "all",
            "timeout_seconds": 5,
            "cascade": True,
        }
        assert backfill_body("x", "dev", {"branch": "other", "concurrency": None}) == {"column": "x", "branch": "other"}

    def test_an_environment_is_sent_as_text(self) -> None:
        assert backfill_body("x", None, {"manifest": {"pip": ["a"]}})["manifest"] == '{"pip": ["a"]}'
        assert backfill_body("x", None, {"manifest": "{}"})["manifest"] == "{}"

    def test_an_option_that_does_not_exist_is_named(self) -> None:
        with pytest.raises(TypeError, match="Unknown option 'concurency' of a backfill"):
            backfill_body("x", None, {"concurency": 3})  # type: ignore[typeddict-unknown-key]
