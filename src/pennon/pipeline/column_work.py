"""What a task computes, as the driver describes it; the same for backfills and refreshes.

Executors import this module: it imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A dry run calls functions for this many rows.
SAMPLE_ROWS = 3


@dataclass(frozen=True)
class TargetColumn:
    """A column to compute: its path, its top-level column, and the field of the function's result that it takes."""

    path: str
    root: str
    struct_field: str


@dataclass(frozen=True)
class ColumnWork:
    """How the rows of columns are computed: by a function's bytes, or by an expression."""

    inputs: tuple[str, ...]
    targets: tuple[TargetColumn, ...]
    function: bytes | None = None
    expression: str | None = None
