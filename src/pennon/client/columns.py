"""Columns that functions and expressions fill, as requests declare them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_namespace_urllib3_client.models import (
    AddColumnsEntry,
    AddVirtualColumnEntry,
    AddVirtualColumnOutputEntry,
    AlterColumnsEntry,
    AlterVirtualColumnEntry,
)

from pennon.client.arrow_types import type_to_json
from pennon.client.manifests import manifest_fields
from pennon.functions import Function
from pennon.functions.envelope import COLUMN_KINDS

if TYPE_CHECKING:
    import pyarrow as pa

_BACKEND = "pennon"

#: The column of a function's only output, or the columns of its several ones, in their order.
ColumnNames = str | tuple[str, ...]


@dataclass(frozen=True)
class Computed:
    """An SQL expression that backfills evaluate, and not the moment the column is added."""

    expression: str


def computed(expression: str) -> Computed:
    """Say that a column is computed by an SQL expression when it is filled, and again when its inputs change."""
    return Computed(expression)


Definition = str | Computed | Function[..., Any]


def needs_server(columns: Any) -> bool:
    """Tell whether columns are declared in a way that only Pennon knows, not LanceDB's client."""
    if isinstance(columns, Function):
        raise TypeError("Say which column the function fills: add_columns({'name': function}).")
    return isinstance(columns, Mapping) and any(isinstance(value, Computed | Function) for value in columns.values())


def column_entries(columns: Mapping[ColumnNames, Definition]) -> list[dict[str, Any]]:
    """Return the entries of a request that adds columns."""
    return [_entry(names, definition).to_dict() for names, definition in columns.items()]


def names_function(alteration: Mapping[str, Any]) -> bool:
    """Tell whether an alteration gives a column another function."""
    return "function" in alteration


def alteration_entry(alteration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a request that alters a column."""
    given = dict(alteration)
    function = given.pop("function", None)
    kind: pa.DataType | None = given.pop("data_type", None)
    unknown = sorted(given.keys() - {"path", "rename", "nullable"})
    if unknown:
        raise TypeError(
            f"An alteration has no {unknown[0]!r}; it has a path, rename, nullable, data_type and function."
        )
    if kind is not None:
        given["data_type"] = type_to_json(kind)
    if function is not None:
        given["virtual_column"] = AlterVirtualColumnEntry(**_binding(_checked(function)))
    return AlterColumnsEntry(**given).to_dict()


def _entry(names: ColumnNames, definition: Definition) -> AddColumnsEntry:
    if isinstance(definition, Function):
        _checked(definition)
        columns = (names,) if isinstance(names, str) else names
        virtual = AddVirtualColumnEntry(outputs=_outputs(columns, definition), **_binding(definition))
        return AddColumnsEntry(name=columns[0], virtual_column=virtual)
    if not isinstance(names, str):
        raise TypeError(f"The columns {names!r} need a function; an expression fills one column.")
    if isinstance(definition, Computed):
        return AddColumnsEntry(name=names, computed=definition.expression)
    if not isinstance(definition, str):
        raise TypeError(
            f"The column {names!r} is defined by a function of pennon.udf or by SQL, not by {definition!r}."
        )
    return AddColumnsEntry(name=names, expression=definition)


def _outputs(columns: tuple[str, ...], function: Function[..., Any]) -> list[AddVirtualColumnOutputEntry]:
    outputs = function.outputs
    if len(columns) != len(outputs):
        if len(outputs) == 1:
            raise ValueError(f"The function {function.name!r} has 1 output; give it a column.")
        fields = ", ".join(repr(output.struct_field) for output in outputs)
        raise ValueError(
            f"The function {function.name!r} has {len(outputs)} outputs; give it a tuple of columns, "
            f"one for each of {fields}."
        )
    return [
        AddVirtualColumnOutputEntry(
            column=column,
            struct_field=output.struct_field,
            data_type=type_to_json(output.data_type),
            nullable=output.nullable,
        )
        for column, output in zip(columns, outputs, strict=True)
    ]


def _binding(function: Function[..., Any]) -> dict[str, Any]:
    """Return what ties a column to its function, whether it is new or altered."""
    return {
        "input_columns": list(function.inputs),
        "image": function.options.image or "",
        "udf": base64.b64encode(function.pack()).decode(),
        "udf_name": function.name,
        "udf_version": function.version,
        "udf_backend": _BACKEND,
        "auto_backfill": function.options.auto_backfill,
        **manifest_fields(function.options.manifest),
    }


def _checked(function: Any) -> Function[..., Any]:
    if not isinstance(function, Function) or function.kind not in COLUMN_KINDS:
        raise TypeError(f"The function of a column is made by pennon.udf; {function!r} is not.")
    return function
