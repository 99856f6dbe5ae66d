"""Which columns a view needs, in whatever form it was asked for: those cannot be taken away, others can."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as errors
import pyarrow as pa
import pytest

import pennon
from pennon.namespace.models.lineage import DescribeLineageRequest
from tests.integration.views.api.view_catalog import entry_of

if TYPE_CHECKING:
    from tests.integration.views.api.view_catalog import ViewCatalog


@pennon.udf
def length(a: str) -> int:
    return len(a)


@pennon.chunker
def letter(a: str) -> Iterator[str]:
    yield from a


@pennon.udtf(output_schema=pa.schema({"total": pa.int64()}), input_columns=["b"], partition_by="a")
def total(table: pa.Table) -> Any:
    return {"total": [table.num_rows]}


LENGTH = {"udf": base64.b64encode(length.pack()).decode(), "inputs": ["a"], "outputs": {"n": ""}}
#: Queries over a table, the function that makes rows of them, and what each column of the view is made of.
FORMS: list[tuple[dict[str, Any] | str, Any, dict[str, set[str]]]] = [
    ({"source": "{}", "columns": {"n": "length(a) + 1"}, "where": "b > 0"}, None, {"n": {"a"}}),
    ({"source": "{}", "columns": {"twice": "b * 2"}, "functions": [LENGTH]}, None, {"twice": {"b"}, "n": {"a"}}),
    ({"source": "{}", "columns": ["b"]}, letter, {"b": {"b"}, "letter": {"a"}}),
    ({"source": "{}"}, total, {"total": {"b"}}),
    ("SELECT upper(a) AS n FROM {} WHERE b > 0", None, {"n": {"a"}}),
    ("SELECT x.a, count(*) AS n FROM {} x JOIN t ON x.b = t.id GROUP BY x.a", None, {"a": {"a"}, "n": set()}),
    ("WITH w AS (SELECT a, b + 1 AS more FROM {}) SELECT max(more) AS n FROM w", None, {"n": {"b"}}),
]


@pytest.mark.parametrize(("query", "function", "made_of"), FORMS)
def test_what_a_view_is_made_of_stays(
    shared: ViewCatalog, query: Any, function: Any, made_of: dict[str, set[str]]
) -> None:
    table = f"needed{FORMS.index((query, function, made_of))}"
    view = f"{table}_view"
    shared.put(table, pa.table({"a": ["x"], "b": [1], "c": [2]}))
    query = {**query, "source": table} if isinstance(query, dict) else query.format(table)
    kind = "query" if function is None else "udtf" if function is total else "chunker"
    entry = None if function is None else entry_of(function, kind=kind)
    shared.create(view, query, kind=kind, udtf_spec=entry)
    request = DescribeLineageRequest.model_validate({"id": [view], "direction": "upstream"})
    edges = shared.ns.describe_lineage(request).edges
    found = {(edge.target, edge.source) for edge in edges if edge.source.startswith(f"{table}:")}
    assert found == {(f"{view}:{name}", f"{table}:{part}") for name, parts in made_of.items() for part in parts}
    for column in ("a", "b"):  # what chooses and groups rows is needed as well
        with pytest.raises(errors.InvalidTableStateError, match=f"Column '{column}' is needed by view '{view}'"):
            shared("AlterTableDropColumns", table, columns=[column])
    shared("AlterTableDropColumns", table, columns=["c"])
    assert shared.schema(table).names == ["a", "b"]
