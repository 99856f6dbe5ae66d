"""The views that a view is computed from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import views
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from pennon.catalog import Connection


def views_before(connection: Connection, definition: Definition) -> list[str]:
    """Return the ids of the views that a view is computed from, each after those it is computed from itself.

    Views that are read at a fixed version are left out: no refresh of theirs would be seen.
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
