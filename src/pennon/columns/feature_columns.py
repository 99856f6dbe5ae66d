"""Columns that a function or an expression fills, as the schema of a table describes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError

from pennon.columns.declarations import read_inputs
from pennon.tables.arrow_json import text_map
from pennon.tables.field_files import lance_field, leaves_of
from pennon.tables.field_metadata import COMPUTED_KEY, IDENTITY_KEY, STRUCT_FIELD_KEY
from pennon.tables.field_paths import find_field, join_path, plain_path, split_path

#: Comments and texts, which name nothing, quoted names, and words.
_WORD = re.compile(r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*+'|"(?:[^"]|"")*+"|`([^`]+)`|([^\W\d]\w*)""", re.DOTALL)


@dataclass(frozen=True)
class Output:
    """A column that a function fills."""

    path: str
    #: Tells the column from others, also from one that was dropped: Lance gives the numbers of fields again.
    key: str
    data_type: pa.DataType
    #: The field of the function's result that goes there; empty when the result itself does.
    struct_field: str
    #: The ids under which files hold its values.
    leaves: frozenset[int]

    @property
    def root(self) -> str:
        """The top-level column that holds it, which is what a file replaces."""
        return split_path(self.path)[0]


@dataclass(frozen=True)
class FeatureColumn:
    """A column with what fills it, and the others that the same call of its function fills."""

    path: str
    outputs: tuple[Output, ...]
    inputs: tuple[str, ...]
    #: The ids under which files hold the inputs.
    input_leaves: frozenset[int]
    #: Tells one function from another: values of another digest are stale.
    digest: str
    name: str
    version: str
    #: Where the table's folder keeps the function; none for an expression.
    reference: str | None = None
    expression: str | None = None
    manifest: str | None = None
    #: Of which image executors are to be, where they are containers.
    image: str | None = None
    auto_backfill: bool = False

    @property
    def output(self) -> Output:
        """The column itself."""
        return next(output for output in self.outputs if output.path == self.path)

    @property
    def first(self) -> str:
        """The first of the columns that a call fills: what rows fail of is recorded for it, and holds for all."""
        return self.outputs[0].path


def find_feature_column(dataset: Any, path: str) -> FeatureColumn:
    """Return what fills a column; raises the error that tells why nothing does."""
    schema: pa.Schema = dataset.schema
    metadata = text_map(find_field(schema, path).metadata)
    path = plain_path(path)
    if metadata.get("computed_column") == "true":
        return _computed(dataset, path, metadata.get(COMPUTED_KEY))
    if metadata.get("virtual_column") != "true":
        raise InvalidInputError(
            f"Nothing fills the column {path!r}: it was added without a function (virtual_column) or an expression "
            "(computed)."
        )
    reference = metadata.get("virtual_column.udf")
    if reference is None:
        raise InvalidInputError(f"The column {path!r} was added without its function ('udf').")
    inputs = read_inputs(metadata)
    if inputs is None:
        raise InvalidInputError(f"The function of {path!r} does not say its input_columns.")
    return FeatureColumn(
        path=path,
        outputs=sibling_outputs(dataset, path, metadata),
        inputs=tuple(inputs),
        input_leaves=_leaves_of_all(dataset, inputs, path),
        digest=metadata.get("virtual_column.udf_version") or reference,
        name=metadata.get("virtual_column.udf_name") or path,
        version=metadata.get("virtual_column.udf_version") or "",
        reference=reference,
        manifest=metadata.get("virtual_column.manifest"),
        image=metadata.get("virtual_column.image"),
        auto_backfill=metadata.get("virtual_column.auto_backfill") == "true",
    )


def feature_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns that something fills, also of those inside of others."""
    return [path for path, field in _walk(schema, ()) if _is_feature(field)]


def _walk(fields: Iterable[pa.Field], above: tuple[str, ...]) -> Iterator[tuple[str, pa.Field]]:
    for field in fields:
        names = (*above, field.name)
        yield join_path(names), field
        if pa.types.is_struct(field.type):
            yield from _walk(field.type, names)


def _is_feature(field: pa.Field) -> bool:
    metadata = text_map(field.metadata)
    return "true" in (metadata.get("virtual_column"), metadata.get("computed_column"))


def feature_inputs(dataset: Any, column: FeatureColumn) -> list[str]:
    """Return the feature columns that a column is computed from: inputs, or parts of inputs, or what these are in."""
    own = {output.path for output in column.outputs}
    inputs = [split_path(path) for path in column.inputs]

    def is_read(path: str) -> bool:
        names = split_path(path)
        return any(names[: len(taken)] == taken[: len(names)] for taken in inputs)

    return [path for path in feature_columns(dataset.schema) if path not in own and is_read(path)]


def expression_inputs(schema: pa.Schema, expression: str) -> tuple[str, ...]:
    """Return the columns that an expression names; Lance finds a column in whatever case it is written."""
    words = {(quoted or plain).lower() for quoted, plain in _WORD.findall(expression)}
    return tuple(name for name in schema.names if name.lower() in words)


def _computed(dataset: Any, path: str, expression: str | None) -> FeatureColumn:
    if expression is None:
        raise InvalidInputError(f"The column {path!r} does not say its expression ('{COMPUTED_KEY}').")
    inputs = expression_inputs(dataset.schema, expression)
    return FeatureColumn(
        path=path,
        outputs=(_output(dataset, path, ""),),
        inputs=inputs,
        input_leaves=_leaves_of_all(dataset, inputs, path),
        digest=hashlib.sha256(expression.encode()).hexdigest(),
        name=expression,
        version="",
        expression=expression,
    )


def sibling_outputs(dataset: Any, path: str, metadata: dict[str, str]) -> tuple[Output, ...]:
    """Return the columns that one call fills: those of the same function that each take a field of its result."""
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


def _output(dataset: Any, path: str, struct_field: str) -> Output:
    field, known = lance_field(dataset, path), find_field(dataset.schema, path)
    identity = text_map(known.metadata).get(IDENTITY_KEY)
    key = f"{identity}-{field.id()}" if identity and identity.isalnum() else str(field.id())
    return Output(path, key, known.type, struct_field, frozenset(leaves_of(field)))


def _leaves_of_all(dataset: Any, inputs: Any, column: str) -> frozenset[int]:
    leaves: set[int] = set()
    for path in inputs:
        try:
            leaves |= leaves_of(lance_field(dataset, path))
        except TableColumnNotFoundError as error:
            raise TableColumnNotFoundError(f"{error} The function of {column!r} takes it as an input.") from None
    return frozenset(leaves)
