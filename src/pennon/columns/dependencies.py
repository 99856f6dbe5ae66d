"""Dependencies between feature columns: inputs that must be computed first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.columns.feature_columns import FeatureColumn, feature_inputs, find_feature_column

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True)
class IncompleteColumn:
    """A column with missing or stale rows, and a column that is computed from it."""

    name: str
    rows: int
    needed_by: str


def columns_computed_together(dataset: LanceDataset, paths: Sequence[str]) -> list[str]:
    """Return the columns at some paths and those that the same function calls compute."""
    return sorted({output.path for path in paths for output in find_feature_column(dataset, path).outputs})


def find_incomplete_inputs(
    dataset: LanceDataset, column: FeatureColumn, count: Callable[[FeatureColumn], int]
) -> list[IncompleteColumn]:
    """Return the columns to compute before a column, in that order; ``count`` returns a column's incomplete rows."""
    found: dict[str, IncompleteColumn] = {}

    def visit(current: FeatureColumn, visited: tuple[str, ...]) -> None:
        for name in feature_inputs(dataset, current):
            if name in visited:
                raise InvalidInputError(f"The columns {' -> '.join((*visited, name))} depend on each other in a cycle.")
            upstream = find_feature_column(dataset, name)
            visit(upstream, (*visited, name))
            rows = count(upstream)
            if rows and name not in found:
                found[name] = IncompleteColumn(name, rows, current.path)

    visit(column, (column.path,))
    return list(found.values())
