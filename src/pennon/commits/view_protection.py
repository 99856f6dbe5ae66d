"""What may be done to a materialized view from outside: to maintain it and to add to it, but not to write its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidTableStateError

from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from pennon.catalog.tables import Table

#: Operations of Lance that leave a view's rows as they are: compaction, indexes, columns filled beside, configuration.
_MAINTENANCE = frozenset({"reserve_fragments", "rewrite", "create_index", "data_replacement", "update_config"})


def refuse_view_write(table: Table, reason: str = "its rows come from its sources alone") -> None:
    """Refuse to change what a view computes itself; other tables pass."""
    if table.is_view:
        name = format_identifier(table.identifier)
        raise InvalidTableStateError(f"{name!r} is a materialized view: {reason}. Refresh it or drop it.")


def check_client_commit(table: Table, branch: str, operation: str | None) -> None:
    """Refuse a commit that a client staged for a view, unless it maintains the view or makes a branch of it."""
    if operation not in _MAINTENANCE and not (branch and operation == "clone"):
        refuse_view_write(table)
