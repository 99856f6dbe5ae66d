"""Tables with feature columns of every kind are written to by LanceDB's client as any other."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import pennon
from tests.clients.remote.data import new_name
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from tests.support.server import PennonProcess

PAIR = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())])

single = pennon.udf(data_type=pa.int64())(lambda id: id)  # noqa: A006
double = pennon.udf(data_type=PAIR)(lambda id: {"a": id, "b": str(id)})  # noqa: A006


def add_virtual(name: str, url: str) -> None:
    """Add a column as another client does: a pickled callable, and no more than the specification asks for."""
    function = base64.b64encode(cloudpickle.dumps(lambda number: number)).decode()
    virtual = {
        "outputs": [{"column": "f", "data_type": {"type": "int64"}, "struct_field": "", "nullable": True}],
        "input_columns": ["id"],
        "udf": function,
        "udf_name": "same",
        "udf_version": "1",
        "image": "",
    }
    with RestClient(url) as rest:
        rest.post(f"/v1/table/{name}/add_columns", {"new_columns": [{"name": "f", "virtual_column": virtual}]})


KINDS: dict[str, Callable[[str, str], Any]] = {
    "expression": lambda name, url: pennon.connect(url).open_table(name).add_columns({"f": pennon.computed("id * 2")}),
    "function": lambda name, url: pennon.connect(url).open_table(name).add_columns({"f": single}),
    "outputs": lambda name, url: pennon.connect(url).open_table(name).add_columns({("a", "b"): double}),
    "virtual": add_virtual,
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_added_updated_and_merged_beside_feature_columns(
    db: Any, pennon_server: PennonProcess, kind: str
) -> None:
    name = db.create_table(new_name(), pa.table({"id": [1, 2, 3], "x": ["a", "b", "c"]})).name
    KINDS[kind](name, pennon_server.url)
    table = db.open_table(name)
    table.add(pa.table({"id": [4], "x": ["d"]}))
    table.add([{"id": 5, "x": "e"}])
    table.update(where="id = 1", values={"x": "z"})
    table.update(where="id = 2", values_sql={"id": "id + 10"})
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete("id = 3").execute(pa.table({"id": [4, 6], "x": ["y", "f"]}))
    found = {row["id"]: row for row in table.search().to_list()}
    assert {number: row["x"] for number, row in found.items()} == {1: "z", 12: "b", 4: "y", 5: "e", 6: "f"}
    features = set(table.schema.names) - {"id", "x"}
    assert features
    assert all(row[feature] is None for row in found.values() for feature in features)


def test_a_column_of_an_expression_declares_what_it_is_computed_from(
    db: Any, table: Any, pennon_server: PennonProcess
) -> None:
    table.add_columns(computed={"half": "id / 2"})
    renaming = {"alterations": [{"path": "id", "rename": "number"}], "cascade": True}
    with RestClient(pennon_server.url) as rest:
        rest.post(f"/v1/table/{table.name}/alter_columns", renaming)
    metadata = db.open_table(table.name).schema.field("half").metadata
    assert metadata[b"computed_column.kind"] == b"sql"
    assert metadata[b"computed_column.inputs"] == b'["number"]'


def test_a_column_that_was_declared_without_its_kind_does_not_keep_rows_out(
    db: Any, pennon_server: PennonProcess
) -> None:
    table = db.create_table(new_name(), pa.table({"id": [1]}))
    table.add_columns(computed={"half": "id / 2"})
    undeclared = {"path": "half", "metadata": {"computed_column.kind": None, "computed_column.inputs": None}}
    with RestClient(pennon_server.url) as rest:
        rest.post(f"/v1/table/{table.name}/update_field_metadata", {"updates": [undeclared]})
    opened = db.open_table(table.name)
    opened.add(pa.table({"id": [2]}))
    assert opened.count_rows() == 2
