"""What is computed from what, as a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.core.caller import Caller, Grant, Principal, Role, set_caller
from pennon.namespace.models.lineage import DescribeLineageRequest

if TYPE_CHECKING:
    from tests.integration.views.guards.services import ViewLake

Graph = tuple[dict[str, tuple[str, int]], set[tuple[str, str]]]


def graph(lake: ViewLake, table: str, **more: object) -> Graph:
    """Return the nodes around a table, with kind and depth, and the edges between them."""
    request = DescribeLineageRequest.model_validate({"id": table.split("$"), **more})
    answer = lake.ns.describe_lineage(request)
    nodes = {node.id: (node.kind, node.depth) for node in answer.nodes}
    return nodes, {(edge.source, edge.target) for edge in answer.edges}


def test_a_graph_goes_up_and_down(lake: ViewLake) -> None:
    lake("AlterTableAddColumns", "t", new_columns=[{"name": "half", "computed": "c / 2"}])
    lake.view("above", "v", {"loud": "text"})
    nodes, edges = graph(lake, "v")
    assert nodes == {
        "t": ("table", -1),
        "v": ("view", 0),
        "above": ("view", 1),
        "t:a": ("column", -1),
        "t:b": ("column", -1),
        "t:c": ("column", -1),
        "t:half": ("feature_column", -1),
        "v:a": ("column", 0),
        "v:text": ("column", 0),
        "above:loud": ("column", 1),
    }
    assert edges == {
        ("t", "v"),
        ("v", "above"),
        ("t:a", "v:a"),
        ("t:b", "v:text"),
        ("t:c", "t:half"),
        ("v:text", "above:loud"),
    }


def test_a_graph_ends_at_the_given_depth(lake: ViewLake) -> None:
    lake.view("above", "v", {"loud": "text"})
    lake.view("top", "above", {"loud": "loud"})
    assert {n for n in graph(lake, "t", depth=1)[0] if ":" not in n} == {"t", "v"}
    assert {n for n in graph(lake, "above", direction="upstream")[0] if ":" not in n} == {"t", "v", "above"}
    assert {n for n in graph(lake, "above", direction="downstream")[0] if ":" not in n} == {"above", "top"}


def test_a_graph_shows_what_the_caller_may_see(lake: ViewLake) -> None:
    lake("CreateNamespace", "mine")
    lake("CreateNamespace", "theirs")
    lake("CreateTable", "mine$t", data=pa.table({"a": [1]}))
    lake.view("theirs$secret", "mine$t", {"a": "a"})
    lake.view("mine$over", "theirs$secret", {"a": "a"})
    try:
        set_caller(Caller(Principal("me", (Grant(Role.READER, ("mine",)),))))
        assert set(graph(lake, "mine$t")[0]) == {"mine$t"}
        assert set(graph(lake, "mine$over")[0]) == {"mine$over", "mine$over:a"}
    finally:
        set_caller(Caller())
