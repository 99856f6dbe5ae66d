"""Column types as JSON; a type that no table can have is rejected before the request."""

from __future__ import annotations

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from pennon.tables import arrow_json


def type_to_json(kind: pa.DataType) -> dict[str, object]:
    """Return a type as JSON; raise TypeError if a Lance table cannot have it."""
    written = arrow_json.type_to_json(kind)
    try:
        arrow_json.type_from_json(written)
    except InvalidInputError:
        raise _unsupported(kind) from None
    _reject_narrow_decimals(kind)
    return {**written}


def _reject_narrow_decimals(kind: pa.DataType) -> None:
    """Reject decimals of fewer than 128 bits, which a table would return with another type."""
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        raise _unsupported(kind)
    for index in range(kind.num_fields):
        _reject_narrow_decimals(kind.field(index).type)


def _unsupported(kind: pa.DataType) -> TypeError:
    return TypeError(f"A column cannot have the type {kind}: Lance tables do not support it.")
