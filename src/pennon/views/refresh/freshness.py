"""Checks by metadata alone whether commits to a source affect a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lance_namespace.errors import TableVersionNotFoundError

from pennon.views.refresh.changes import changes_no_rows, field_ids, has_same_files, new_columns

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog.tables import Table
    from pennon.catalog.views import Watermark
    from pennon.tables.datasets import Datasets

#: The maximum number of versions to check; a source with more new versions counts as changed.
_MAX_VERSIONS = 32


def is_unchanged(
    at: Callable[[int], LanceDataset], held: int, newest: int, columns: Sequence[str], *, follows_columns: bool
) -> bool:
    """Return whether a refresh would find nothing to do. If that is uncertain, the source counts as changed.

    Args:
        at: Opens the source at a version.
        held: The version that the view was computed from.
        newest: The current version of the source.
        columns: The columns that the view reads.
        follows_columns: Whether new columns of the source affect the view.
    """
    old, new = at(held), at(newest)
    if follows_columns and new_columns(old, new):
        return False
    if field_ids(old, columns) != field_ids(new, columns):
        return False
    if has_same_files(old, new, columns):
        return True
    if not new.has_stable_row_ids:
        return False  # without stable row ids, a compaction changes the ids of all rows
    return 0 < newest - held <= _MAX_VERSIONS and all(
        changes_no_rows(new, version) or has_same_files(at(version - 1), at(version), columns)
        for version in range(newest, held, -1)
    )


def was_recreated(datasets: Datasets, table: Table, held: Watermark) -> bool:
    """Return whether a source was dropped and created again since a view was computed from it.

    A managed table gets a new id in that case. For a table that Pennon does not manage, the version that the view was
    computed from then has another manifest, or is newer than every version of the table.
    """
    if table.managed or table.id not in held.manifests:
        return False
    version = held.versions[table.id]
    try:
        return held.manifests[table.id] != datasets.manifest_tag(table, "", version)
    except TableVersionNotFoundError:
        return datasets.newest(table, "").version < version
