"""Whether what was committed to a source is anything to a view, as far as metadata tells: no row is read for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import TableVersionNotFoundError

from pennon.views.refresh.changes import changes_no_rows, field_ids, has_same_files, new_columns

if TYPE_CHECKING:
    from pennon.catalog.tables import Table
    from pennon.catalog.views import Watermark
    from pennon.tables.datasets import Datasets

#: So many versions are looked at; a source that went on further counts as changed.
_MOST_VERSIONS = 32


def is_untouched(
    at: Callable[[int], Any], held: int, newest: int, columns: Sequence[str], *, follows_columns: bool
) -> bool:
    """Tell whether a refresh would find nothing to do; a doubt counts as a change.

    Args:
        at: Opens the source at a version.
        held: The version that the view holds.
        newest: The version that the source has now.
        columns: The columns that the view reads.
        follows_columns: Whether new columns of the source are something to the view.
    """
    old, new = at(held), at(newest)
    if follows_columns and new_columns(old, new):
        return False
    if field_ids(old, columns) != field_ids(new, columns):
        return False
    if has_same_files(old, new, columns):
        return True
    if not new.has_stable_row_ids:
        return False  # a compaction gives all rows other ids then
    return 0 < newest - held <= _MOST_VERSIONS and all(
        changes_no_rows(new, version) or has_same_files(at(version - 1), at(version), columns)
        for version in range(newest, held, -1)
    )


def was_remade(datasets: Datasets, table: Table, held: Watermark) -> bool:
    """Tell whether a source is another table than the one of which a view holds a version.

    A managed table never is: another one of its name has another id. Of a table that Pennon does not manage, the
    version that the view holds has another manifest then, or is newer than any that the table has.
    """
    if table.managed or table.id not in held.manifests:
        return False
    version = held.versions[table.id]
    try:
        return held.manifests[table.id] != datasets.manifest_tag(table, "", version)
    except TableVersionNotFoundError:
        return datasets.newest(table, "").version < version
