"""Row ids as an option of the Spark source."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from numpy.typing import NDArray

_INLINE = "ids:"


def as_option(row_ids: Iterable[int]) -> str:
    """Encode ids as text: the compressed differences of the sorted ids, which are mostly 1."""
    ids = np.unique(np.fromiter(row_ids, dtype=np.int64))
    steps = np.diff(ids, prepend=np.int64(0))
    return _INLINE + base64.b64encode(zlib.compress(steps.tobytes())).decode()


def from_option(text: str) -> NDArray[np.int64]:
    """Return the sorted ids that an option contains, or those in the first column of the Arrow file that it names."""
    if text.startswith(_INLINE):
        try:
            steps = np.frombuffer(zlib.decompress(base64.b64decode(text.removeprefix(_INLINE))), dtype=np.int64)
        except (ValueError, zlib.error):
            raise InvalidInputError("Invalid option 'row_ids': no ids follow after 'ids:'.") from None
        return np.cumsum(steps)
    try:
        with pa.memory_map(text) as file:
            column = pa.ipc.open_file(file).read_all().column(0)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidInputError(f"The option 'row_ids' does not name an Arrow file: {error}") from None
    return np.unique(column.to_numpy().astype(np.int64))
