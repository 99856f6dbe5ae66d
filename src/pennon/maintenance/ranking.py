"""The order of tables by their need for maintenance, from the counters in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog.table_health import Weights
from pennon.catalog.versions import Statistics

if TYPE_CHECKING:
    from pennon.catalog.table_health import TableHealth
    from pennon.core.settings import Settings

#: Counts up to this multiple of the policy's bound are normal between two runs of maintenance.
_TOLERANCE = 2
#: Compaction leaves fewer than the bound in each of three tiers, and as many are written before the next run.
_FRAGMENT_TOLERANCE = 4


def weights_of(settings: Settings) -> Weights:
    """Return the counts at which maintenance is due by the server's policy."""
    return Weights(
        small_fragments=settings.maintenance_max_small_fragments,
        deleted_share=settings.maintenance_max_deleted_share,
        unindexed_rows=settings.maintenance_max_unindexed_rows,
        versions=settings.maintenance_max_versions,
    )


def overdue(table: TableHealth, weights: Weights) -> list[str]:
    """Return the counts of a table that maintenance should have reduced, such as ``772 small fragments``."""
    statistics = table.statistics or Statistics()
    counts = [
        (statistics.small_fragments, _FRAGMENT_TOLERANCE * weights.small_fragments, "small fragments"),
        (statistics.unindexed_rows, _TOLERANCE * weights.unindexed_rows, "unindexed rows"),
        (table.versions - table.kept_versions, _TOLERANCE * weights.versions, "versions"),
    ]
    found = [f"{count:,} {what}" for count, bound, what in counts if count > bound]
    share = statistics.deleted_rows / max(1, statistics.rows + statistics.deleted_rows)
    return [*found, f"{share:.0%} deleted rows"] if share > _TOLERANCE * weights.deleted_share else found
