"""The metadata keys that declare a field as a feature column; clients use the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.tables.arrow_json import SchemaJson

COMPUTED_KEY = "computed_column.expression"
COMPUTED_INPUTS_KEY = "computed_column.inputs"
KIND_KEY = "computed_column.kind"
#: The keys that declare a column as computed by an SQL expression.
COMPUTED_KEYS = ("computed_column", KIND_KEY, COMPUTED_KEY, COMPUTED_INPUTS_KEY)
IDENTITY_KEY = "pennon.column_id"
INPUTS_KEY = "virtual_column.udf_inputs"
#: The field of the function's result that goes into a column, if the function computes several columns.
STRUCT_FIELD_KEY = "virtual_column.struct_field"


def with_declarations(schema: SchemaJson) -> SchemaJson:
    """Add the kind to each computed column of a schema that lacks it.

    Columns of earlier releases lack it, and LanceDB's client refuses to write to their tables.
    """
    for field in schema["fields"]:
        metadata = field.get("metadata") or {}
        if metadata.get("computed_column") == "true" and COMPUTED_KEY in metadata:
            metadata.setdefault(KIND_KEY, "sql")
    return schema
