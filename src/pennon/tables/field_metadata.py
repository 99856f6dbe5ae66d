"""The metadata of a field that declares it as a feature column, by the keys that clients know."""

from __future__ import annotations

from typing import Any

COMPUTED_KEY = "computed_column.expression"
COMPUTED_INPUTS_KEY = "computed_column.inputs"
KIND_KEY = "computed_column.kind"
#: All that declares a column as computed by an expression.
COMPUTED_KEYS = ("computed_column", KIND_KEY, COMPUTED_KEY, COMPUTED_INPUTS_KEY)
IDENTITY_KEY = "pennon.column_id"
INPUTS_KEY = "virtual_column.udf_inputs"
#: The field of its function's result that a column takes, where the function fills several.
STRUCT_FIELD_KEY = "virtual_column.struct_field"


def with_declarations(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema, as clients are given it, in which every column of an expression declares its kind.

    Those that were added by an earlier release do not, and LanceDB's client would write nothing to their tables.
    """
    for field in schema["fields"]:
        metadata = field.get("metadata") or {}
        if metadata.get("computed_column") == "true" and COMPUTED_KEY in metadata:
            metadata.setdefault(KIND_KEY, "sql")
    return schema
