"""Counting what a refresh did: which rows of the source have rows in the view, before and after."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """What a refresh did to the rows of a view."""

    added: int = 0
    updated: int = 0
    removed: int = 0


def pack_ids(parts: Sequence[NDArray[Any]]) -> str:
    """Return ids as text, for the answer of a task."""
    if not parts:
        return ""
    return base64.b64encode(zlib.compress(np.concatenate(parts).astype(np.int64).tobytes(), 1)).decode()


def unpack_ids(text: str) -> Ids:
    """Return the ids that a task answered."""
    if not text:
        return np.empty(0, dtype=np.int64)
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.int64)


def count(written: int, known: Ids, removed: Ids) -> Counts:
    """Count rows: as many as took the place of others of the same source row are neither new nor gone.

    Args:
        written: How many rows were written.
        known: Of those, the source rows of the ones that may have been there before.
        removed: The source rows of the rows that were removed.
    """
    after, rows_after = np.unique(known, return_counts=True)
    before, rows_before = np.unique(removed, return_counts=True)
    _, at_after, at_before = np.intersect1d(after, before, assume_unique=True, return_indices=True)
    updated = int(np.minimum(rows_after[at_after], rows_before[at_before]).sum())
    return Counts(written - updated, updated, len(removed) - updated)
