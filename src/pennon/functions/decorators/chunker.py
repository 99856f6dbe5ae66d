"""The decorator that turns a Python function, or a class with state, into one that makes several rows of one."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pennon.functions.decorators.udf import NO_HINT, Function, Signature, name_of
from pennon.functions.envelope import Kind
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.options import Options
from pennon.functions.outputs import Output, outputs_of
from pennon.functions.type_hints import data_type_of, is_record

if TYPE_CHECKING:
    import pyarrow as pa

#: The column of a batched chunker's table that says which row of its input each child comes from.
PARENT = "parent_index"

_MANY = (
    list,
    tuple,
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
)


def chunker(
    plain: Callable[..., Any] | None = None,
    /,
    *,
    output_schema: pa.Schema | None = None,
    input_columns: Sequence[str] | None = None,
    batched: bool | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Any,
) -> Any:
    """Declare a function that makes any number of rows of one; a class is constructed, and set up, once a worker.

    It yields its rows, or returns a list of them: dictionaries, NamedTuples, dataclasses, or plain values where there
    is one column. A batched one gets pyarrow arrays and returns a list of rows for each row of its input, or one table
    whose column ``parent_index`` says which row of the input each of its rows comes from.

    Args:
        plain: The function or class, where the decorator is used without arguments.
        output_schema: The columns of the rows, else taken from the return hint, as in ``Iterator[Chunk]``.
        input_columns: The columns given as arguments, in order; by default those that are called like the arguments.
        batched: Whether it gets arrays; by default the arguments' hints decide.
        name: Its name, else that of the function.
        version: Its version, else the digest of its pickle.
        error_policy: What happens when it fails; by default the job fails. A row that is skipped has no children.
        options: As for ``@pennon.udf``: ``batch_size``, ``timeout``, ``num_cpus``, ``num_gpus``, ``memory``,
            ``manifest``.
    """

    def declare(plain: Callable[..., Any]) -> Function[..., Any]:
        try:
            signature = Signature(plain)
            kind = _kind(signature, batched)
            called = name or name_of(plain)
            return Function(
                plain,
                name=called,
                version=version,
                kind="chunker" if kind == "scalar" else "batched_chunker",
                inputs=signature.inputs(kind, input_columns),
                outputs=_outputs(output_schema, signature, called),
                options=Options(error_policy=error_policy or ErrorPolicy(), **options),
            )
        except TypeError as error:
            raise TypeError(f"@chunker on {name_of(plain)!r}: {error}.") from None

    return declare if plain is None else declare(plain)


def _kind(signature: Signature, batched: bool | None) -> Kind:
    kind = signature.kind(None if batched is None else "batch" if batched else "scalar")
    if kind == "record_batch":
        raise TypeError("a batched chunker gets an array for each column, not a record batch")
    return kind


def outputs_of_schema(schema: Any) -> tuple[Output, ...]:
    """Return the outputs that a schema stands for."""
    import pyarrow as pa

    if not isinstance(schema, pa.Schema) or not len(schema):
        raise TypeError(f"output_schema is an Arrow schema with at least one column, not {schema!r}")
    return tuple(Output(field.name, field.type, field.nullable) for field in schema)


def _outputs(schema: Any, signature: Signature, name: str) -> tuple[Output, ...]:
    if schema is not None:
        return outputs_of_schema(schema)
    hint = signature.hint("return")
    if hint is NO_HINT:
        raise TypeError("the columns of its rows are unknown; hint them, as in Iterator[Chunk], or pass output_schema=")
    element = _element(hint)
    if element is None:
        raise TypeError("its hint does not say which rows it makes; pass output_schema=")
    if is_record(element):
        return outputs_of(data_type_of(element))
    return (Output(name, data_type_of(element)),)


def _element(hint: Any) -> Any:
    """Return what a hint says there are many of; of a batch, for each row."""
    if get_origin(hint) not in _MANY:
        return None
    element = get_args(hint)[0]
    return _element(element) or element if get_origin(element) in _MANY else element
