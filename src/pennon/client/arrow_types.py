"""Types of columns as the server is told them; one that no table can have is refused before it is asked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from pennon.tables import arrow_json


def type_to_json(kind: pa.DataType) -> dict[str, Any]:
    """Return a type as JSON, or say that the protocol has no name for it."""
    stated = arrow_json.type_to_json(kind)
    try:
        arrow_json.type_from_json(stated)
    except InvalidInputError:
        raise _unknown(kind) from None
    _refuse_narrow_decimals(kind)
    return stated


def _refuse_narrow_decimals(kind: pa.DataType) -> None:
    """Refuse decimals of fewer than 128 bits, which would come back as others."""
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        raise _unknown(kind)
    for index in range(kind.num_fields):
        _refuse_narrow_decimals(kind.field(index).type)


def _unknown(kind: pa.DataType) -> TypeError:
    return TypeError(f"A column cannot have the type {kind}: a Lance table has no such type.")
