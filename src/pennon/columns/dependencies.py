"""Feature columns that are computed from other feature columns: which have to be filled first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import InvalidInputError

from pennon.columns.feature_columns import FeatureColumn, feature_inputs, find_feature_column


@dataclass(frozen=True)
class Unfilled:
    """A column with rows that are missing or stale, and one that is computed from it."""

    name: str
    rows: int
    needed_by: str


def columns_filled(dataset: Any, paths: Sequence[str]) -> list[str]:
    """Return all columns that are filled together with some."""
    filled = {output.path for path in paths for output in find_feature_column(dataset, path).outputs}
    return sorted(filled)


def unfilled_before(dataset: Any, column: FeatureColumn, count: Callable[[FeatureColumn], int]) -> list[Unfilled]:
    """Return the columns that have to be filled before one, in that order; ``count`` tells how many rows they lack."""
    found: dict[str, Unfilled] = {}

    def visit(current: FeatureColumn, on_the_way: tuple[str, ...]) -> None:
        for name in feature_inputs(dataset, current):
            if name in on_the_way:
                raise InvalidInputError(f"The columns {' -> '.join((*on_the_way, name))} depend on each other.")
            upstream = find_feature_column(dataset, name)
            visit(upstream, (*on_the_way, name))
            rows = count(upstream)
            if rows and name not in found:
                found[name] = Unfilled(name, rows, current.path)

    visit(column, (column.path,))
    return list(found.values())
