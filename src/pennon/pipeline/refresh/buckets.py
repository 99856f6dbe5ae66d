"""Buckets: the values of a column, dealt out by a hash, each with the rows that have it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Bucket:
    """Collects the values that belong to one of several buckets; of each of their rows it keeps a dozen bytes."""

    def __init__(self, number: int, count: int) -> None:
        self._number = number
        self._count = count
        self._keys: list[Any] = []
        #: Where each value is among the keys, by how it is written; those of other buckets are not.
        self._storage_root: dict[str, int] = {}
        self._parts: list[tuple[NDArray[np.int32], NDArray[Any]]] = []

    def add(self, keys: pa.Array, ids: NDArray[Any]) -> None:
        """Add rows by their values, null too."""
        if pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_decode()
        encoded = keys.dictionary_encode(null_encoding="encode")
        known = np.array([self._place(key) for key in encoded.dictionary.to_pylist()], dtype=np.int32)
        places = known[encoded.indices.to_numpy()]
        own = places >= 0
        self._parts.append((places[own], ids[own]))

    def rows(self) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Return each value with the ids of its rows."""
        if not self._keys:
            return
        places, ids = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        self._parts.clear()
        ids = ids[np.argsort(places, kind="stable")]
        ends = np.cumsum(np.bincount(places)).tolist()
        for key, start, end in zip(self._keys, [0, *ends], ends, strict=False):
            yield key, ids[start:end]

    def _place(self, key: Any) -> int:
        if isinstance(key, float):
            key += 0.0  # -0.0 is 0.0, as in SQL
        text = repr(key)
        if zlib.crc32(text.encode()) % self._count != self._number:
            return -1
        place = self._storage_root.setdefault(text, len(self._keys))
        if place == len(self._keys):
            self._keys.append(key)
        return place
