"""The ``@chunker`` decorator: turns a Python function or class into one that makes several rows of each row."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack, get_args, get_origin, overload

from pennon.functions.decorators.udf import NO_HINT, Function, P, R, Signature, decorate, name_of
from pennon.functions.envelope import Kind
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.options import FunctionOptions, Options
from pennon.functions.outputs import Output, outputs_of
from pennon.functions.type_hints import data_type_of, is_record

if TYPE_CHECKING:
    import pyarrow as pa

#: The column of a batched chunker's table that holds the input row of each output row.
PARENT_INDEX = "parent_index"

_ITERABLES = (
    list,
    tuple,
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
)


@overload
def chunker(plain: Callable[P, R], /) -> Function[P, R]: ...
@overload
def chunker(
    *,
    output_schema: pa.Schema | None = None,
    input_columns: Sequence[str] | None = None,
    batched: bool | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Unpack[FunctionOptions],
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def chunker(
    plain: Callable[P, R] | None = None,
    /,
    *,
    output_schema: pa.Schema | None = None,
    input_columns: Sequence[str] | None = None,
    batched: bool | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Unpack[FunctionOptions],
) -> object:
    """Declare a chunker: a function that makes any number of rows of each input row, such as sentences of a document.

    ``connection.create_chunk_view`` makes a materialized view of it. A chunker yields its rows or returns a list of
    them: dictionaries, NamedTuples, dataclasses, or plain values if there is one column. A batched chunker gets pyarrow
    arrays and returns a list of rows for each input row, or one table whose column ``parent_index`` holds the input
    row of each output row. A class is constructed, and its ``setup()`` called, once per worker process.

    Args:
        plain: The function or class, when the decorator is used without arguments.
        output_schema: The columns of the rows; by default they follow from the return type hint, such as
            ``Iterator[Chunk]``.
        input_columns: The columns passed as arguments, in order; by default those with the names of the arguments.
        batched: Whether it gets arrays; by default the type hints of the arguments decide.
        name: The name of the chunker; by default the name of the function.
        version: The version of the chunker; by default the sha256 of its pickle.
        error_policy: What happens when a call fails; by default the job fails. A skipped row has no output rows.
        options: As for ``@pennon.udf``: ``batch_size``, ``timeout``, ``num_cpus``, ``num_gpus``, ``memory``,
            ``manifest``.
    """

    def declare(plain: Callable[P, R]) -> Function[P, R]:
        signature = Signature(plain)
        kind = _kind(signature, batched)
        chosen_name = name or name_of(plain)
        return Function(
            plain,
            name=chosen_name,
            version=version,
            kind="chunker" if kind == "scalar" else "batched_chunker",
            inputs=signature.inputs(kind, input_columns),
            outputs=_outputs(output_schema, signature, chosen_name),
            options=Options(error_policy=error_policy or ErrorPolicy(), **options),
        )

    return decorate("chunker", declare, plain)


def outputs_of_schema(schema: object) -> tuple[Output, ...]:
    """Return one output for each column of a schema."""
    import pyarrow as pa

    if not isinstance(schema, pa.Schema) or not len(schema):
        raise TypeError(f"output_schema must be an Arrow schema with at least one column, not {schema!r}")
    return tuple(Output(field.name, field.type, field.nullable) for field in schema)


def _kind(signature: Signature, batched: bool | None) -> Kind:
    kind = signature.kind(None if batched is None else "batch" if batched else "scalar")
    if kind == "record_batch":
        raise TypeError("a batched chunker gets an array for each column, not a record batch")
    return kind


def _outputs(schema: pa.Schema | None, signature: Signature, name: str) -> tuple[Output, ...]:
    if schema is not None:
        return outputs_of_schema(schema)
    hint = signature.hint("return")
    if hint is NO_HINT:
        raise TypeError(
            "its output columns are unknown; add a return type hint such as Iterator[Chunk], or pass output_schema="
        )
    element = _element(hint)
    if element is None:
        raise TypeError("its return type hint does not describe the rows it makes; pass output_schema=")
    if is_record(element):
        return outputs_of(data_type_of(element))
    return (Output(name, data_type_of(element)),)


def _element(hint: object) -> object:
    """Return the type of the rows in an iterable's type hint; a batched chunker has one iterable inside another."""
    if get_origin(hint) not in _ITERABLES:
        return None
    element: object = get_args(hint)[0]
    return _element(element) or element if get_origin(element) in _ITERABLES else element
