"""Requests made from the OpenAPI document: mostly what it allows, sometimes what it does not."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.integration.data.tables import rows, stream_of

Json = dict[str, Any]
Values = st.SearchStrategy[Any]

DEEPEST = 4
TEXTS = [
    "", "id", "word", "vector", "id > 3", "id +", "SELECT 1", "'", "`", "a.b", "main", "dev", "first", "../up",
    "\u0000", "é✓", "x" * 300, "append", "overwrite", "create", "ExistOk", "BTREE", "IVF_FLAT", "FTS", "l2", "30s",
    "{}", "[]", "1", "true", "int64", "fuzz", "id_idx", "id / 0 = 1", "sum(id)",
]  # fmt: skip
NUMBERS = [-1, 0, 1, 2, 100]
WIDE_NUMBERS = [*NUMBERS, 2**31, 2**63 - 1, 2**63, -(2**63), 2**70]
JUNK: list[Any] = [None, True, 3, -1.5, "", "x", [], [1], ["a", None], {}, {"a": 1}, [[[]]], {"id": ["other"]}]
IDENTIFIERS = ["fuzz", "fuzz", "fuzz", "missing", "$", "none$fuzz", "fuzz$", "..", "é", "%00", "a%2Fb", "x" * 400]
INDICES = ["id_idx", "nothing", "%20", "a%2Fb"]


def values_of(schema: Json, document: Json, depth: int = 0, *, careful: bool = False) -> Values:
    """Return the values that a schema allows, and now and then another."""
    if "$ref" in schema:
        return values_of(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], document, depth)
    proper = _proper(schema, document, depth, careful)
    return st.one_of(proper, proper, proper, st.sampled_from(JUNK))


def _proper(schema: Json, document: Json, depth: int, careful: bool) -> Values:
    if depth > DEEPEST:
        return st.none()
    if "anyOf" in schema:
        return st.one_of([values_of(choice, document, depth + 1, careful=careful) for choice in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        return _objects(schema, document, depth, careful)
    if kind == "array":
        items = values_of(schema.get("items", {}), document, depth + 1, careful=careful)
        return st.lists(items, max_size=3)
    simple: dict[Any, Values] = {
        "string": st.one_of(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.text(max_size=12)),
        "integer": st.sampled_from(NUMBERS if careful else WIDE_NUMBERS),
        "number": st.sampled_from([-1.0, 0.0, 0.5, 1e300]),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind, st.sampled_from(JUNK))


def _objects(schema: Json, document: Json, depth: int, careful: bool) -> Values:
    named = {
        name: values_of(part, document, depth + 1, careful=careful)
        for name, part in schema.get("properties", {}).items()
        if not (depth == 0 and name == "id")  # the path names the object; another one here is always refused
    }
    required = {name: values for name, values in named.items() if name in schema.get("required", ())}
    optional = {name: values for name, values in named.items() if name not in required}
    if named:
        return st.fixed_dictionaries(required, optional=optional)
    inner = schema.get("additionalProperties")
    parts = values_of(inner, document, depth + 1, careful=careful) if isinstance(inner, dict) else st.sampled_from(JUNK)
    return st.dictionaries(st.sampled_from(TEXTS), parts, max_size=3)


def arrow_bodies() -> Values:
    """Return bodies that are Arrow streams, or nearly."""
    whole = stream_of(rows(5))
    other = stream_of(pa.table({"other": ["x", None]}))
    empty = stream_of(pa.schema([pa.field("id", pa.int64())]).empty_table())
    nothing = io.BytesIO()
    pa.ipc.new_stream(nothing, pa.schema([])).close()
    parts = [whole[:cut] for cut in (3, 40, 200, len(whole) - 9, len(whole) - 1)]
    return st.sampled_from([whole, whole, other, empty, nothing.getvalue(), *parts, b"", b"text", whole + whole])


def texts_of(schema: Json) -> st.SearchStrategy[str]:
    """Return values of a query parameter."""
    kinds: dict[str, st.SearchStrategy[str]] = {
        "boolean": st.sampled_from(["true", "false", "maybe", ""]),
        "integer": st.sampled_from(["0", "1", "-1", "x", "99999999999999999999999"]),
    }
    return kinds.get(schema["type"], st.sampled_from(TEXTS))
