"""Columns of functions and expressions: declared by the client, kept by the server."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableColumnNotFoundError,
    TableSchemaValidationError,
)

import pennon
from pennon.client.columns import column_entries
from pennon.functions import read_envelope
from tests.clients.remote.data import new_name, rows
from tests.unit.client.test_arrow_types import TYPES

if TYPE_CHECKING:
    from pennon.client import Connection, Table

#: Lance forgets that a dictionary is ordered, and LanceDB's client cannot read a table with a map.
NOT_KEPT = {pa.dictionary(pa.int8(), pa.int64(), ordered=True), pa.map_(pa.string(), pa.int64())}


class Language(NamedTuple):
    lang: str
    score: float


class Sign(NamedTuple):
    lang: str
    sign: str


@pennon.udf(version="1", manifest={"pip": ["attrs"]}, image="repo:tag", auto_backfill=False)
def length(text: str) -> int:
    return len(text)


@pennon.udf(version="2", input_columns=["text", "id"])
def longer(text: str, number: int) -> int:
    return len(text) + number


@pennon.udf
def language(text: str) -> Language:
    return Language("en", 1.0)


def metadata(table: Table, column: str) -> dict[str, str]:
    found = table.schema.field(column).metadata or {}
    return {key.decode(): value.decode() for key, value in found.items()}


def values(table: Table, column: str) -> list[Any]:
    return list(table.search().select([column]).limit(3).to_arrow()[column].to_pylist())


def test_a_function_is_tied_to_its_column(table: Table) -> None:
    assert table.add_columns({"length": length}).version == 2
    assert table.schema.field("length").type == pa.int64()
    kept = metadata(table, "length")
    assert kept["virtual_column"] == "true"
    assert kept["virtual_column.udf_name"] == "length"
    assert kept["virtual_column.udf_version"] == "1"
    assert kept["virtual_column.udf_backend"] == "pennon"
    assert kept["virtual_column.image"] == "repo:tag"
    assert kept["virtual_column.auto_backfill"] == "false"
    assert json.loads(kept["virtual_column.udf_inputs"]) == ["text"]
    assert json.loads(kept["virtual_column.manifest"]) == {"pip": ["attrs"]}
    assert values(table, "length") == [None, None, None]


def test_the_server_keeps_the_very_bytes(table: Table) -> None:
    table.add_columns({"length": length})
    kept = Path(table.uri.removeprefix("file://")) / metadata(table, "length")["virtual_column.udf"]
    content = kept.read_bytes()
    assert content == length.pack()
    assert kept.name == hashlib.sha256(content).hexdigest()
    assert read_envelope(content).inputs == ("text",)


def test_one_function_fills_several_columns(table: Table) -> None:
    table.add_columns({("lang", "certainty"): language})
    assert table.schema.field("lang").type == pa.string()
    assert table.schema.field("certainty").type == pa.float64()
    assert metadata(table, "lang")["virtual_column.struct_field"] == "lang"
    assert metadata(table, "certainty")["virtual_column.struct_field"] == "score"
    assert metadata(table, "lang")["virtual_column.udf"] == metadata(table, "certainty")["virtual_column.udf"]


def test_columns_of_one_function_get_another_one_together(table: Table) -> None:
    @pennon.udf(version="2")
    def other(text: str) -> Language:
        return Language("fr", 0.5)

    @pennon.udf
    def unlike(text: str) -> Sign:
        return Sign("fr", "+")

    table.add_columns({("lang", "certainty"): language})
    with pytest.raises(InvalidInputError, match=r"together with 'certainty'.*no output 'score' for 'certainty'"):
        table.alter_columns({"path": "lang", "function": unlike})
    table.alter_columns({"path": "lang", "function": other})
    first, second = metadata(table, "lang"), metadata(table, "certainty")
    assert first["virtual_column.udf_version"] == second["virtual_column.udf_version"] == "2"
    assert first["virtual_column.udf"] == second["virtual_column.udf"]
    assert (first["virtual_column.struct_field"], second["virtual_column.struct_field"]) == ("lang", "score")
    table.alter_columns({"path": "lang", "function": pennon.udf(version="3", data_type=pa.string())(lambda text: "de")})
    assert metadata(table, "certainty") == second
    with pytest.raises(InvalidInputError, match=r"several outputs \(lang, score\), and the column takes none"):
        table.alter_columns({"path": "lang", "function": other})


def test_expressions_computed_columns_and_functions_are_added_together(table: Table) -> None:
    table.add_columns({"double": "id * 2", "half": pennon.computed("id / 2"), "length": length})
    assert values(table, "double") == [0, 2, 4]
    assert values(table, "half") == [None, None, None]
    assert metadata(table, "half")["computed_column.expression"] == "id / 2"
    assert table.schema.field("length").type == pa.int64()


def test_what_lancedb_adds_is_added_by_it(table: Table) -> None:
    table.add_columns({"double": "id * 2"})
    table.add_columns(pa.field("empty", pa.int32()))
    table.add_columns(computed={"half": "id / 2"})
    assert table.schema.names[-3:] == ["double", "empty", "half"]
    with pytest.raises(TypeError, match="two calls"):
        table.add_columns({"length": length}, computed={"x": "id"})


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in NOT_KEPT], ids=str)
def test_a_column_has_the_type_of_its_function(db: Connection, kind: pa.DataType) -> None:
    @pennon.udf(data_type=pa.struct([("x", kind)]))
    def function(id: int) -> Any:  # noqa: A002
        return None

    table = db.create_table(new_name(), [{"id": 1}])
    table.add_columns({"x": function})
    assert table.schema.field("x").type == kind


def test_a_column_gets_another_function(table: Table) -> None:
    table.add_columns({"length": length})
    first = metadata(table, "length")
    assert table.alter_columns({"path": "length", "function": longer}).version is not None
    second = metadata(table, "length")
    assert second["virtual_column.udf"] != first["virtual_column.udf"]
    assert second["virtual_column.udf_version"] == "2"
    assert json.loads(second["virtual_column.udf_inputs"]) == ["text", "id"]


def test_other_alterations_go_along_or_are_lancedbs(table: Table) -> None:
    table.add_columns({"length": length})
    table.alter_columns({"path": "length", "function": longer}, {"path": "colour", "rename": "hue"})
    assert "hue" in table.schema.names
    table.alter_columns({"path": "hue", "rename": "colour"})
    assert "colour" in table.schema.names


def test_a_view_of_a_branch_is_refused(db: Connection, table: Table) -> None:
    dev = table.branches.create("dev")
    with pytest.raises(ValueError, match="reads the main branch"):
        db.create_materialized_view("of_a_branch", dev, with_no_data=True)


def test_a_branch_is_changed_for_itself(db: Connection, table: Table) -> None:
    dev = table.branches.create("dev")
    assert repr(dev).endswith("on branch dev>")
    dev.add_columns({"length": length})
    assert "length" in dev.schema.names
    assert "length" not in db.open_table(table.name).schema.names
    assert "length" in table.branches.checkout("dev").schema.names
    assert "dev" in table.branches.list()
    assert "length" in db.open_table(table.name, branch="dev").schema.names


def test_a_table_at_an_old_version_is_not_changed(table: Table) -> None:
    table.add(rows(100, 101))
    table.checkout(1)
    with pytest.raises(ValueError, match="at version 1; call checkout_latest"):
        table.add_columns({"length": length})
    table.checkout_latest()
    table.add_columns({"length": length})


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"manifest": "{}", "manifest_checksum": "0" * 64}, "manifest_checksum is not the sha256"),
        ({"manifest": '{"pip": "attrs"}'}, "'pip' must be a list"),
        ({"manifest": '{"pip": ["https://127.0.0.1/a.tar.gz#a-1-py3-none-any.whl"]}'}, "neither a package"),
    ],
)
def test_an_environment_that_cannot_be_is_refused(table: Table, environment: dict[str, str], said: str) -> None:
    (entry,) = column_entries({"length": length})
    entry["virtual_column"] |= {"manifest_checksum": None, **environment}
    with pytest.raises(InvalidInputError, match=said):
        table._change("add_columns", {"new_columns": [entry]})
    table.add_columns({"length": length})
    with pytest.raises(InvalidInputError, match=said):
        table._change("alter_columns", {"alterations": [{"path": "length", "virtual_column": environment}]})
    assert json.loads(metadata(table, "length")["virtual_column.manifest"]) == {"pip": ["attrs"]}


@pytest.mark.parametrize("inputs", ["not json", "5", "[5]", "[" * 100_000, None])
def test_metadata_that_somebody_changed_hinders_only_who_needs_it(table: Table, inputs: str | None) -> None:
    table.add_columns({"length": length, "half": pennon.computed("id / 2")})
    changes = {"length": {"virtual_column.udf_inputs": inputs}, "half": {"computed_column.expression": None}}
    updates = [{"path": path, "metadata": metadata} for path, metadata in changes.items()]
    table._change("update_field_metadata", {"updates": updates})
    for column, said in (("length", "has no input_columns"), ("half", "has no expression in its metadata")):
        with pytest.raises(InvalidInputError, match=said):
            table.column_state(column)
        with pytest.raises(InvalidInputError, match=said):
            table.backfill(column)
    table.alter_columns({"path": "colour", "rename": "hue"})
    table.drop_columns(["hue"])
    table.alter_columns({"path": "length", "function": longer})
    assert table.column_state("length").missing == 100


def test_refusals_are_errors_of_the_protocol(table: Table) -> None:
    with pytest.raises(TableSchemaValidationError, match="'colour' already exists"):
        table.add_columns({"colour": length})
    with pytest.raises(TableColumnNotFoundError, match=r"colur.*colour"):
        table.alter_columns({"path": "colur", "function": length})
    with pytest.raises(LanceNamespaceError):
        table.add_columns({"x": pennon.computed("colur || 'x'")})
    assert table.version == 1
