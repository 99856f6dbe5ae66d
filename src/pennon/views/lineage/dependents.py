"""Dependents of a table or its columns: views, their downstream views, and feature columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import views
from pennon.columns.feature_columns import feature_columns, find_feature_column
from pennon.tables.field_paths import split_path

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog import Connection
    from pennon.catalog.views import Dependent


def views_reading(connection: Connection, table_id: str, paths: Collection[str]) -> list[Dependent]:
    """Return the views that read some columns of a table."""
    return [found for found in views.dependents(connection, table_id) if overlaps(found.columns, paths)]


def with_downstream_views(connection: Connection, lowest: Iterable[Dependent]) -> list[Dependent]:
    """Return views and all their downstream views, each before the views that it reads."""
    found: dict[str, Dependent] = {}

    def visit(view: Dependent) -> None:
        if view.view_id in found:
            return
        for above in views.dependents(connection, view.view_id):
            visit(above)
        found[view.view_id] = view

    for view in lowest:
        visit(view)
    return list(found.values())


def columns_computed_from(dataset: LanceDataset, paths: Sequence[str]) -> list[str]:
    """Return the feature columns that depend on some columns, directly or through other feature columns."""
    inputs = {name: _inputs(dataset, name) for name in feature_columns(dataset.schema)}
    found: list[str] = []
    gone = list(paths)
    while more := [n for n, taken in inputs.items() if overlaps(taken, gone) and not overlaps([n], [*paths, *found])]:
        found += more
        gone = more
    return found


def overlaps(some: Iterable[str], others: Collection[str]) -> bool:
    """Return whether any two paths are equal, or one contains the other."""
    known = [split_path(path) for path in others]
    return any(
        names[: len(other)] == other[: len(names)] for names in (split_path(path) for path in some) for other in known
    )


def _inputs(dataset: LanceDataset, name: str) -> tuple[str, ...]:
    try:
        return find_feature_column(dataset, name).inputs
    except LanceNamespaceError:
        return ()  # its input or its function is already gone
