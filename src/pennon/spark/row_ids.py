"""Rows of a table by their ids, as an option of the source."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from numpy.typing import NDArray

_INLINE = "ids:"


def as_option(row_ids: Iterable[int]) -> str:
    """Return ids as text: their rising differences, most of which are one, compressed."""
    ids = np.unique(np.fromiter(row_ids, dtype=np.int64))
    steps = np.diff(ids, prepend=np.int64(0))
    return _INLINE + base64.b64encode(zlib.compress(steps.tobytes())).decode()


def from_option(text: str) -> NDArray[np.int64]:
    """Return the ids that an option holds, or those in the first column of the Arrow file that it names, rising."""
    if text.startswith(_INLINE):
        try:
            steps = np.frombuffer(zlib.decompress(base64.b64decode(text.removeprefix(_INLINE))), dtype=np.int64)
        except (ValueError, zlib.error):
            raise InvalidInputError("The option 'row_ids' begins with 'ids:', but no ids follow.") from None
        return np.cumsum(steps)
    try:
        with pa.memory_map(text) as file:
            column: Any = pa.ipc.open_file(file).read_all().column(0)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidInputError(f"The option 'row_ids' names no Arrow file with ids: {error}") from None
    return np.unique(column.to_numpy().astype(np.int64))
