"""The decorator that turns a Python function, or a class with state, into one that makes a table of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pennon.functions.decorators.chunker import outputs_of_schema
from pennon.functions.decorators.udf import Function, Signature, name_of
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.options import Options

if TYPE_CHECKING:
    import pyarrow as pa


def udtf(
    plain: Callable[..., Any] | None = None,
    /,
    *,
    output_schema: pa.Schema | None = None,
    input_columns: Sequence[str] | None = None,
    partition_by: str | None = None,
    partition_by_indexed_column: str | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Any,
) -> Any:
    """Declare a function that makes rows of all rows of a table, or of each of its partitions.

    It gets an iterator of record batches, or one table if that is the hint of its argument, and yields or returns
    record batches, tables, or dictionaries of columns. A class is constructed, and set up, once a worker process.

    Args:
        plain: The function or class; the decorator needs arguments.
        output_schema: The columns of the rows it makes.
        input_columns: The columns it reads; by default all of the source.
        partition_by: A column; the rows of each of its values are given to a call of their own.
        partition_by_indexed_column: A column with an IVF index; the rows of each of its partitions are.
        name: Its name, else that of the function.
        version: Its version, else the digest of its pickle.
        error_policy: What happens when it fails for a partition: the job fails, it is tried again, or left out.
        options: As for ``@pennon.udf``: ``timeout``, ``num_cpus``, ``num_gpus``, ``memory``, ``manifest``.
    """

    def declare(plain: Callable[..., Any]) -> Function[..., Any]:
        try:
            signature = _checked(Signature(plain), input_columns)
            return Function(
                plain,
                name=name or name_of(plain),
                version=version,
                kind="udtf",
                inputs=tuple(input_columns or ()),
                outputs=outputs_of_schema(output_schema),
                options=Options(
                    error_policy=error_policy or ErrorPolicy(),
                    partition_by=partition_by,
                    partition_by_indexed_column=partition_by_indexed_column,
                    whole=_takes_table(signature),
                    **options,
                ),
            )
        except TypeError as error:
            raise TypeError(f"@udtf on {name_of(plain)!r}: {error}.") from None

    return declare if plain is None else declare(plain)


def _checked(signature: Signature, input_columns: Any) -> Signature:
    if len([p for p in signature.parameters if p.default is p.empty]) != 1:
        raise TypeError("it takes one argument: an iterator of record batches, or a table")
    if isinstance(input_columns, str):
        raise TypeError("input_columns is a list of column names")
    return signature


def _takes_table(signature: Signature) -> bool:
    import pyarrow as pa

    hint = signature.hint(signature.parameters[0].name)
    return isinstance(hint, type) and issubclass(hint, pa.Table)
