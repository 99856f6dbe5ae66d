"""Protection of materialized views: clients may maintain them, but not write their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidTableStateError

from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from pennon.catalog.tables import Table

#: Operations of Lance that keep the rows of a view: compaction, indexes, backfilled columns, configuration.
_MAINTENANCE = frozenset({"reserve_fragments", "rewrite", "create_index", "data_replacement", "update_config"})


def refuse_view_write(table: Table, reason: str = "its rows come from its sources alone") -> None:
    """Raise an error if a table is a view."""
    if table.is_view:
        name = format_identifier(table.identifier)
        raise InvalidTableStateError(f"{name!r} is a materialized view: {reason}. Refresh it or drop it.")


def check_client_commit(table: Table, branch: str, operation: str | None) -> None:
    """Refuse a client's commit to a view, unless it maintains the view or creates a branch of it."""
    if operation not in _MAINTENANCE and not (branch and operation == "clone"):
        refuse_view_write(table)
