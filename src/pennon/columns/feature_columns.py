"""Feature columns, computed by a function or an SQL expression, as a table's schema declares them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError

from pennon.columns.declarations import read_inputs
from pennon.tables.arrow_json import text_map
from pennon.tables.field_files import field_ids_of, lance_field
from pennon.tables.field_metadata import COMPUTED_KEY, IDENTITY_KEY, STRUCT_FIELD_KEY
from pennon.tables.field_paths import find_field, join_path, plain_path, split_path

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.core.arrow_typing import AnyField

#: Comments and strings, which contain no names; quoted names; words.
_WORD = re.compile(r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*+'|"(?:[^"]|"")*+"|`([^`]+)`|([^\W\d]\w*)""", re.DOTALL)


@dataclass(frozen=True)
class ColumnOutput:
    """A column that a function computes."""

    path: str
    #: Identifies the column, also against dropped ones: Lance reuses field ids.
    key: str
    data_type: pa.DataType
    #: The field of the function's result for this column; empty for the whole result.
    struct_field: str
    #: The field ids of its values in data files.
    field_ids: frozenset[int]

    @property
    def root(self) -> str:
        """The top-level column that contains it, which a file replaces as a whole."""
        return split_path(self.path)[0]


@dataclass(frozen=True)
class FeatureColumn:
    """A column with its function or expression, and all columns that the same function call computes."""

    path: str
    outputs: tuple[ColumnOutput, ...]
    inputs: tuple[str, ...]
    #: The field ids of the inputs in data files.
    input_field_ids: frozenset[int]
    #: Identifies the function: values of another digest are outdated.
    digest: str
    name: str
    version: str
    #: The name of the function in the table's folder; None for an expression.
    reference: str | None = None
    expression: str | None = None
    manifest: str | None = None
    #: The container image of executors.
    image: str | None = None
    auto_backfill: bool = False

    @property
    def output(self) -> ColumnOutput:
        """The column itself."""
        return next(output for output in self.outputs if output.path == self.path)

    @property
    def first(self) -> str:
        """The first column that a call computes: errors of rows are recorded for it and apply to all."""
        return self.outputs[0].path


def find_feature_column(dataset: LanceDataset, path: str) -> FeatureColumn:
    """Return the feature column at a path; raises ``InvalidInputError`` if it is a plain or incomplete column."""
    schema: pa.Schema = dataset.schema
    metadata = text_map(find_field(schema, path).metadata)
    path = plain_path(path)
    if metadata.get("computed_column") == "true":
        return _computed(dataset, path, metadata.get(COMPUTED_KEY))
    if metadata.get("virtual_column") != "true":
        raise InvalidInputError(
            f"The column {path!r} is no feature column: it was added without a function (virtual_column) or an "
            "expression (computed)."
        )
    reference = metadata.get("virtual_column.udf")
    if reference is None:
        raise InvalidInputError(f"The column {path!r} has no function ('udf'); set one with alter_columns.")
    inputs = read_inputs(metadata)
    if inputs is None:
        raise InvalidInputError(f"The function of {path!r} has no input_columns; set them with alter_columns.")
    return FeatureColumn(
        path=path,
        outputs=sibling_outputs(dataset, path, metadata),
        inputs=tuple(inputs),
        input_field_ids=_field_ids_of_all(dataset, inputs, path),
        digest=metadata.get("virtual_column.udf_version") or reference,
        name=metadata.get("virtual_column.udf_name") or path,
        version=metadata.get("virtual_column.udf_version") or "",
        reference=reference,
        manifest=metadata.get("virtual_column.manifest"),
        image=metadata.get("virtual_column.image"),
        auto_backfill=metadata.get("virtual_column.auto_backfill") == "true",
    )


def feature_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of all feature columns, including nested ones."""
    return [path for path, field in _walk(schema, ()) if _is_feature(field)]


def _walk(fields: Iterable[AnyField], parents: tuple[str, ...]) -> Iterator[tuple[str, AnyField]]:
    for field in fields:
        names = (*parents, field.name)
        yield join_path(names), field
        if pa.types.is_struct(field.type):
            yield from _walk(field.type, names)


def _is_feature(field: AnyField) -> bool:
    metadata = text_map(field.metadata)
    return "true" in (metadata.get("virtual_column"), metadata.get("computed_column"))


def feature_inputs(dataset: LanceDataset, column: FeatureColumn) -> list[str]:
    """Return the feature columns that a column is computed from: its inputs, their parts, and their parents."""
    own = {output.path for output in column.outputs}
    inputs = [split_path(path) for path in column.inputs]

    def is_read(path: str) -> bool:
        names = split_path(path)
        return any(names[: len(taken)] == taken[: len(names)] for taken in inputs)

    return [path for path in feature_columns(dataset.schema) if path not in own and is_read(path)]


def expression_inputs(schema: pa.Schema, expression: str) -> tuple[str, ...]:
    """Return the columns that an expression names, in any case: Lance's column names are case-insensitive."""
    words = {(quoted or plain).lower() for quoted, plain in _WORD.findall(expression)}
    return tuple(name for name in schema.names if name.lower() in words)


def _computed(dataset: LanceDataset, path: str, expression: str | None) -> FeatureColumn:
    if expression is None:
        raise InvalidInputError(f"The column {path!r} has no expression in its metadata ('{COMPUTED_KEY}').")
    inputs = expression_inputs(dataset.schema, expression)
    return FeatureColumn(
        path=path,
        outputs=(_output(dataset, path, ""),),
        inputs=inputs,
        input_field_ids=_field_ids_of_all(dataset, inputs, path),
        digest=hashlib.sha256(expression.encode()).hexdigest(),
        name=expression,
        version="",
        expression=expression,
    )


def sibling_outputs(dataset: LanceDataset, path: str, metadata: dict[str, str]) -> tuple[ColumnOutput, ...]:
    """Return the columns that one function call computes, each from one field of the result."""
    own = metadata.get(STRUCT_FIELD_KEY, "")
    if not own:
        return (_output(dataset, path, ""),)
    found = []
    for field in dataset.schema:
        other = text_map(field.metadata)
        same = all(
            other.get(key) == metadata.get(key)
            for key in ("virtual_column.udf", "virtual_column.udf_version", "virtual_column.udf_inputs")
        )
        if same and other.get(STRUCT_FIELD_KEY):
            found.append(_output(dataset, field.name, other[STRUCT_FIELD_KEY]))
    if path not in {output.path for output in found}:
        found.append(_output(dataset, path, own))
    return tuple(found)


def _output(dataset: LanceDataset, path: str, struct_field: str) -> ColumnOutput:
    field, known = lance_field(dataset, path), find_field(dataset.schema, path)
    identity = text_map(known.metadata).get(IDENTITY_KEY)
    key = f"{identity}-{field.id()}" if identity and identity.isalnum() else str(field.id())
    return ColumnOutput(path, key, known.type, struct_field, frozenset(field_ids_of(field)))


def _field_ids_of_all(dataset: LanceDataset, inputs: Iterable[str], column: str) -> frozenset[int]:
    field_ids: set[int] = set()
    for path in inputs:
        try:
            field_ids |= field_ids_of(lance_field(dataset, path))
        except TableColumnNotFoundError as error:
            raise TableColumnNotFoundError(f"{error} It is an input of the function of {column!r}.") from None
    return frozenset(field_ids)
