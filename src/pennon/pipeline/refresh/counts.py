"""The row counts of a refresh: how many rows of the view were added, updated and removed."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """How many rows of a view a refresh added, updated and removed."""

    added: int = 0
    updated: int = 0
    removed: int = 0


def pack_ids(parts: Sequence[NDArray[np.integer]]) -> str:
    """Encode ids as text, for the result of a task."""
    if not parts:
        return ""
    return base64.b64encode(zlib.compress(np.concatenate(parts).astype(np.int64).tobytes(), 1)).decode()


def unpack_ids(text: str) -> Ids:
    """Decode the ids in the result of a task."""
    if not text:
        return np.empty(0, dtype=np.int64)
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.int64)


def count(written: int, known: Ids, removed: Ids) -> Counts:
    """Count rows; one that replaces another of the same source row is updated.

    Args:
        written: The number of rows that were written.
        known: The source rows of those that the view may have had before.
        removed: The source rows of the rows that were removed.
    """
    after, rows_after = np.unique(known, return_counts=True)
    before, rows_before = np.unique(removed, return_counts=True)
    _, at_after, at_before = np.intersect1d(after, before, assume_unique=True, return_indices=True)
    updated = int(np.minimum(rows_after[at_after], rows_before[at_before]).sum())
    return Counts(written - updated, updated, len(removed) - updated)
