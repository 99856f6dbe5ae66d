"""Hash buckets of the values of a column, with the rows of each value."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pennon.core.arrow_typing import AnyArray

Ids = NDArray[np.integer]


class Bucket:
    """Collects the values that belong to one of several buckets; each of their rows takes twelve bytes."""

    def __init__(self, number: int, count: int) -> None:
        self._number = number
        self._count = count
        self._keys: list[object] = []
        #: The index of each value among the keys, by its representation.
        self._index: dict[str, int] = {}
        self._parts: list[tuple[NDArray[np.int32], Ids]] = []

    def add(self, keys: AnyArray, ids: Ids) -> None:
        """Add rows by their values; null is a value, too."""
        if pa.types.is_dictionary(keys.type):
            keys = cast("pa.DictionaryArray[Any, Any]", keys).dictionary_decode()
        encoded = keys.dictionary_encode(null_encoding="encode")
        known = np.array([self._find(key) for key in encoded.dictionary.to_pylist()], dtype=np.int32)
        indices = known[encoded.indices.to_numpy()]
        own = indices >= 0
        self._parts.append((indices[own], ids[own]))

    def rows(self) -> Iterator[tuple[object, Ids]]:
        """Return each value with the ids of its rows."""
        if not self._keys:
            return
        indices, ids = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        self._parts.clear()
        ids = ids[np.argsort(indices, kind="stable")]
        ends = np.cumsum(np.bincount(indices)).tolist()
        for key, start, end in zip(self._keys, [0, *ends], ends, strict=False):
            yield key, ids[start:end]

    def _find(self, key: object) -> int:
        """Return the index of a value, or -1 if it belongs to another bucket."""
        if isinstance(key, float):
            key += 0.0  # -0.0 is 0.0, as in SQL
        text = repr(key)
        if zlib.crc32(text.encode()) % self._count != self._number:
            return -1
        index = self._index.setdefault(text, len(self._keys))
        if index == len(self._keys):
            self._keys.append(key)
        return index
