"""Definitions of columns that UDFs and SQL expressions compute, as requests carry them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, cast

import pyarrow as pa
from lance_namespace_urllib3_client.models import (
    AddColumnsEntry,
    AddVirtualColumnEntry,
    AddVirtualColumnOutputEntry,
    AlterColumnsEntry,
    AlterVirtualColumnEntry,
)

from pennon.client.arrow_types import type_to_json
from pennon.client.manifests import manifest_fields
from pennon.client.queries import AnyFunction
from pennon.functions import Function
from pennon.functions.envelope import COLUMN_KINDS

_BACKEND = "pennon"

#: The column of a UDF with one output, or the columns of one with several, in order.
ColumnNames: TypeAlias = str | tuple[str, ...]


@dataclass(frozen=True)
class Computed:
    """An SQL expression that backfills evaluate, unlike a plain string, which is evaluated when the column is added."""

    expression: str


def computed(expression: str) -> Computed:
    """Define a column by an SQL expression that a backfill computes, and computes again when its inputs change."""
    return Computed(expression)


Definition: TypeAlias = str | Computed | AnyFunction


class Alteration(TypedDict, total=False):
    """An alteration of a column: a new name, type or nullability, or another UDF."""

    path: str
    rename: str
    nullable: bool
    data_type: pa.DataType
    function: AnyFunction


class _Binding(TypedDict):
    input_columns: list[str]
    image: str
    udf: str
    udf_name: str
    udf_version: str
    udf_backend: str
    auto_backfill: bool
    manifest: str | None
    manifest_checksum: str | None


def has_definitions(columns: object) -> bool:
    """Return whether columns are defined by UDFs or ``computed``, which LanceDB's client does not support."""
    if isinstance(columns, Function):
        raise TypeError("Name the column that the function computes: add_columns({'name': function}).")
    return isinstance(columns, Mapping) and any(isinstance(value, Computed | Function) for value in columns.values())


def column_entries(columns: Mapping[ColumnNames, Definition]) -> list[dict[str, Any]]:
    """Return the entries of a request that adds columns."""
    return [_entry(names, definition).to_dict() for names, definition in columns.items()]


def alteration_entry(alteration: Mapping[str, object]) -> dict[str, Any]:
    """Return the entry of a request that alters a column."""
    unknown = sorted(alteration.keys() - Alteration.__annotations__.keys())
    if unknown:
        raise TypeError(f"Unknown key {unknown[0]!r} in an alteration; use {', '.join(Alteration.__annotations__)}.")
    given = cast(Alteration, alteration)
    entry: dict[str, object] = {name: given[name] for name in ("path", "rename", "nullable") if name in given}
    if given.get("data_type") is not None:
        entry["data_type"] = type_to_json(given["data_type"])
    if given.get("function") is not None:
        entry["virtual_column"] = AlterVirtualColumnEntry(**_binding(_checked(given["function"])))
    return AlterColumnsEntry.model_validate(entry).to_dict()


def _entry(names: ColumnNames, definition: Definition) -> AddColumnsEntry:
    if isinstance(definition, Function):
        _checked(definition)
        columns = (names,) if isinstance(names, str) else names
        virtual = AddVirtualColumnEntry(outputs=_outputs(columns, definition), **_binding(definition))
        return AddColumnsEntry(name=columns[0], virtual_column=virtual)
    if not isinstance(names, str):
        raise TypeError(f"The columns {names!r} need a UDF; an SQL expression computes one column.")
    if isinstance(definition, Computed):
        return AddColumnsEntry(name=names, computed=definition.expression)
    if not isinstance(definition, str):
        raise TypeError(f"The column {names!r} must be defined by a UDF or by SQL, not by {definition!r}.")
    return AddColumnsEntry(name=names, expression=definition)


def _outputs(columns: tuple[str, ...], function: AnyFunction) -> list[AddVirtualColumnOutputEntry]:
    outputs = function.outputs
    if len(columns) != len(outputs):
        if len(outputs) == 1:
            raise ValueError(f"The function {function.name!r} has 1 output; name one column for it.")
        fields = ", ".join(repr(output.struct_field) for output in outputs)
        raise ValueError(
            f"The function {function.name!r} has {len(outputs)} outputs; name a tuple of columns, "
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


def _binding(function: AnyFunction) -> _Binding:
    """Return the fields that bind a column, new or altered, to its function."""
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


def _checked(function: object) -> AnyFunction:
    if not isinstance(function, Function) or function.kind not in COLUMN_KINDS:
        raise TypeError(f"The function of a column must be declared with pennon.udf; {function!r} is not.")
    return function
