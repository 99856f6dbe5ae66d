"""The same on the wire, as the specification's clients and LanceDB's own write their requests."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest

from tests.integration.views.guards.services import stream_of

if TYPE_CHECKING:
    from tests.support.rest import RestClient
    from tests.support.server import PennonProcess

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
ROWS = stream_of(pa.table({"__source_row_id": pa.array([9], pa.int64()), "a": [9]}))

#: How the address of an operation ends, and how a refusal is answered there: LanceDB's client would repeat a 409.
DIALECTS = pytest.mark.parametrize(("slash", "refused"), [("", 409), ("/", 400)], ids=["specification", "lancedb"])

#: Each write: the end of its address, and its body.
WRITES: dict[str, tuple[str, Any]] = {
    "insert": ("insert", ROWS),
    "overwrite": ("insert?mode=overwrite", ROWS),
    "create over it": ("create?mode=overwrite", ROWS),
    "merge": ("merge_insert?on=a&when_not_matched_insert_all=true", ROWS),
    "update": ("update", {"updates": [["a", "1"]]}),
    "delete": ("delete", {"predicate": "true"}),
    "restore": ("restore", {"version": 1}),
    "upload": ("multipart_write/create", {}),
    "drop column": ("drop_columns", {"columns": ["a"]}),
    "rename column": ("alter_columns", {"alterations": [{"path": "a", "rename": "b"}]}),
}


@pytest.fixture
def view(http: RestClient) -> str:
    """The name of a view over a table; that is called the same, with a ``t`` before it."""
    name = f"v{secrets.token_hex(6)}"
    source = stream_of(pa.table({"a": [1, 2]}))
    assert http.raw.post(f"/v1/table/t{name}/create", content=source, headers=ARROW).status_code == 200
    http.post(
        f"/v1/materialized_view/{name}/create",
        {"kind": "query", "output_schema": None, "source_query": f'{{"source": "t{name}"}}'},
        expect=201,
    )
    return name


@DIALECTS
def test_every_write_is_refused(http: RestClient, view: str, slash: str, refused: int) -> None:
    for name, (end, body) in WRITES.items():
        verb, _, query = end.partition("?")
        sent: dict[str, Any] = {"json": body} if isinstance(body, dict) else {"content": body, "headers": ARROW}
        answer = http.raw.post(f"/v1/table/{view}/{verb}{slash}?{query}", **sent)
        assert (answer.status_code, answer.json()["code"]) == (refused, 19), name
        assert f"'{view}' is a materialized view" in answer.json()["error"], name
    assert http.post(f"/v1/table/{view}/count_rows") == 0


def test_lance_does_not_write_a_view(pennon_server: PennonProcess, view: str) -> None:
    client = ln.connect("rest", {"uri": pennon_server.url})
    rows = pa.table({"__source_row_id": pa.array([9], pa.int64()), "a": [9]})
    with pytest.raises(OSError, match="version 2"):
        lance.write_dataset(rows, namespace_client=client, table_id=[view], mode="append")
    dataset = lance.dataset(namespace_client=client, table_id=[view])
    assert (dataset.version, dataset.count_rows()) == (1, 0)
    dataset.update_config({"kept": "yes"})
    assert dataset.version == 2


@DIALECTS
def test_cascade_is_a_field_of_the_request(http: RestClient, view: str, slash: str, refused: int) -> None:
    refusal = http.post(f"/v1/table/t{view}/drop_columns{slash}", {"columns": ["a"]}, expect=refused)
    assert refusal["code"] == 19
    assert f"view '{view}'" in refusal["error"]
    assert http.post(f"/v1/table/t{view}/drop{slash}", expect=refused)["code"] == 19
    assert http.post(f"/v1/table/t{view}/drop{slash}", {"cascade": "perhaps"}, expect=400)["code"] == 13
    http.post(f"/v1/table/t{view}/drop{slash}", {"cascade": True})
    http.post(f"/v1/materialized_view/{view}/describe", expect=404)


def test_the_graph_of_a_table(http: RestClient, view: str) -> None:
    graph = http.post(f"/v1/table/t{view}/lineage", {"direction": "downstream"})
    assert {"source": f"t{view}", "target": view} in graph["edges"]
    assert {"source": f"t{view}:a", "target": f"{view}:a"} in graph["edges"]
    assert http.post(f"/v1/table/t{view}/lineage", {"depth": 0}, expect=400)["code"] == 13
    assert http.post("/v1/table/no_such_table/lineage", expect=404)["code"] == 4
