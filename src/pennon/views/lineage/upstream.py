"""The views that a view reads, directly or through others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import views
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from pennon.catalog import Connection


def upstream_views(connection: Connection, definition: Definition) -> list[str]:
    """Return the ids of all upstream views, each after its own upstream views.

    Views that are read at a pinned version are left out because a refresh would not change what is read.
    """
    found: dict[str, None] = {}

    def visit(reading: Definition) -> None:
        for source in reading.sources:
            view = views.find(connection, source.table_id) if source.version is None else None
            if view is not None and view.table_id not in found:
                visit(Definition.from_json(view.definition))
                found[view.table_id] = None

    visit(definition)
    return list(found)
