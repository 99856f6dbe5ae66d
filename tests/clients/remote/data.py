"""Rows for the tests: ids, words to search, and vectors whose nearest neighbours are known."""

from __future__ import annotations

import secrets
from typing import Any

import pyarrow as pa

WIDTH = 8
COLOURS = ["red", "green", "blue"]


def rows(*bounds: int) -> pa.Table:
    """Return rows with the ids of a range; the vector of an id is nearest to that of its neighbours."""
    ids = list(range(*bounds))
    flat = pa.array([float(number) for number in ids for _ in range(WIDTH)], pa.float32())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "colour": pa.array([COLOURS[number % 3] for number in ids], pa.string()),
            "text": pa.array([f"the {COLOURS[number % 3]} house number {number}" for number in ids], pa.string()),
            "tags": pa.array([[COLOURS[number % 3], f"t{number % 2}"] for number in ids], pa.list_(pa.string())),
            "vector": pa.FixedSizeListArray.from_arrays(flat, WIDTH),
        }
    )


def vector(number: float) -> list[float]:
    """Return the vector of an id."""
    return [float(number)] * WIDTH


def ids(found: Any) -> list[int]:
    """Return the ids in an answer, in its order."""
    return [int(number) for number in found["id"].to_pylist()]


def new_name(kind: str = "table") -> str:
    """Return a name that no other test uses."""
    return f"{kind}_{secrets.token_hex(6)}"
