"""The ``@udtf`` decorator: turns a Python function or class into a table function over all rows or each partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack, overload

from pennon.functions.decorators.chunker import outputs_of_schema
from pennon.functions.decorators.udf import Function, P, R, Signature, decorate, name_of
from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.options import FunctionOptions, Options

if TYPE_CHECKING:
    import pyarrow as pa


@overload
def udtf(plain: Callable[P, R], /) -> Function[P, R]: ...
@overload
def udtf(
    *,
    output_schema: pa.Schema | None = None,
    input_columns: Sequence[str] | None = None,
    partition_by: str | None = None,
    partition_by_indexed_column: str | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Unpack[FunctionOptions],
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def udtf(
    plain: Callable[P, R] | None = None,
    /,
    *,
    output_schema: pa.Schema | None = None,
    input_columns: Sequence[str] | None = None,
    partition_by: str | None = None,
    partition_by_indexed_column: str | None = None,
    name: str | None = None,
    version: str | None = None,
    error_policy: ErrorPolicy | None = None,
    **options: Unpack[FunctionOptions],
) -> object:
    """Declare a UDTF (user-defined table function): it makes rows of all rows of a table, or of each partition.

    ``connection.create_udtf_view`` makes a materialized view of it. The function gets an iterator of record batches,
    or one pyarrow Table if that is the type hint of its argument. It yields or returns record batches, tables, or
    dictionaries of columns. A class is constructed, and its ``setup()`` called, once per worker process.

    Args:
        plain: The function or class; a UDTF always needs ``output_schema``, so use the decorator with arguments.
        output_schema: The columns of the rows it makes.
        input_columns: The columns it reads; by default all columns of the source.
        partition_by: A column; the function is called once for each of its values, with the rows of that value.
        partition_by_indexed_column: A column with an IVF index; the function is called once for each partition of the
            index.
        name: The name of the UDTF; by default the name of the function.
        version: The version of the UDTF; by default the sha256 of its pickle.
        error_policy: What happens when a partition fails: the job fails, or the partition is retried or skipped.
        options: As for ``@pennon.udf``: ``timeout``, ``num_cpus``, ``num_gpus``, ``memory``, ``manifest``.
    """

    def declare(plain: Callable[P, R]) -> Function[P, R]:
        signature = Signature(plain)
        _check(signature, input_columns)
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

    return decorate("udtf", declare, plain)


def _check(signature: Signature, input_columns: Sequence[str] | None) -> None:
    if len([p for p in signature.parameters if p.default is p.empty]) != 1:
        raise TypeError("it must take one argument: an iterator of record batches, or a pyarrow Table")
    if isinstance(input_columns, str):
        raise TypeError("input_columns must be a list of column names")


def _takes_table(signature: Signature) -> bool:
    import pyarrow as pa

    hint = signature.hint(signature.parameters[0].name)
    return isinstance(hint, type) and issubclass(hint, pa.Table)
