"""The functions that fill columns: the same ones for Pennon and for the loop written by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from servers import BenchmarkError

if TYPE_CHECKING:
    from pennon.functions import Function
    from pennon.functions.envelope import Kind

_WIDTH = 128
_WEIGHTS = np.linspace(-1.0, 1.0, _WIDTH, dtype=np.float32)
_WIDE = 384
_STEPS = 250
SLOW_ROWS = 100  # a call of the slow function gets
_SLOW_SECONDS = 0.1


def embed(x: pa.Array, y: pa.Array) -> pa.Array:
    """Turn two numbers into a vector of length 1; no sum depends on how many rows come at once."""
    vectors = np.multiply.outer(x.to_numpy().astype(np.float32), _WEIGHTS)
    vectors += y.to_numpy().astype(np.float32)[:, None]
    vectors /= np.sqrt((vectors * vectors).sum(axis=1))[:, None]
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), _WIDTH)


def product(x: float, y: float) -> float:
    """Multiply the numbers of one row."""
    return x * y


def multiply(x: pa.Array, y: pa.Array) -> pa.Array:
    """Multiply all numbers at once."""
    return pc.multiply(x, y)


def wander(x: float, y: float) -> float:
    """Be as slow as a function of some ten microseconds for every row."""
    x *= y / 2
    for _ in range(_STEPS):
        x = 3.7 * x * (1.0 - x)
    return x


def wander_at_once(x: pa.Array, y: pa.Array) -> pa.Array:
    """Take the same steps for all rows."""
    at = x.to_numpy() * (y.to_numpy() / 2)
    for _ in range(_STEPS):
        at = 3.7 * at * (1.0 - at)
    return pa.array(at)


def describe(x: pa.Array, y: pa.Array) -> pa.Array:
    """Be as slow as a small model, whatever the number of rows."""
    time.sleep(_SLOW_SECONDS)
    return spread(x, y)


def spread(x: pa.Array, y: pa.Array) -> pa.Array:
    """Turn two numbers into a long vector."""
    vectors = np.multiply.outer(x.to_numpy(), np.arange(_WIDE)) + y.to_numpy()[:, None]
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).reshape(-1)), _WIDE)


@dataclass(frozen=True)
class Feature:
    """A function of the columns x and y, and the type of its results."""

    plain: Callable[..., Any]
    data_type: pa.DataType
    batch_size: int | None = None
    by_row: bool = False
    #: What gives the same results sooner, where the function takes its time.
    shortcut: Callable[..., Any] | None = None

    def declared(self, version: str | None = None) -> Function[..., Any]:
        """Declare the function as people do; another version makes it another function."""
        import pennon

        kind: Kind = "scalar" if self.by_row else "batch"
        declare = pennon.udf(data_type=self.data_type, kind=kind, batch_size=self.batch_size, version=version)
        return declare(self.plain)

    def apply(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute the results of a batch, in the fastest way that is simple to write."""
        x, y = batch.column("x"), batch.column("y")
        if self.by_row and self.shortcut is None:
            return pa.array(list(map(self.plain, x.to_numpy().tolist(), y.to_numpy().tolist())), self.data_type)
        return (self.shortcut or self.plain)(x, y)

    def verify(self, dataset: Any, column: str) -> None:
        """Insist that a column of a dataset has exactly these results."""
        for batch in dataset.to_batches(columns=["x", "y", column]):
            if not batch.column(column).equals(self.apply(batch).cast(batch.schema.field(column).type)):
                raise BenchmarkError(f"the column {column} of {dataset.uri} has wrong values")


EMBEDDING = Feature(embed, pa.list_(pa.float32(), _WIDTH))
SCALAR = Feature(product, pa.float64(), by_row=True)
WANDER = Feature(wander, pa.float64(), by_row=True, shortcut=wander_at_once)
ARROW = Feature(multiply, pa.float64())
SLOW = Feature(describe, pa.list_(pa.float32(), _WIDE), batch_size=SLOW_ROWS, shortcut=spread)
