"""The Spark task of a compaction: rewrite one group of fragments.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.tables.snapshots import Snapshot


@dataclass(frozen=True)
class RewriteGroups:
    """Rewrites groups of fragments; each Spark task has one."""

    source: Snapshot
    #: Lance's tasks.
    groups: tuple[str, ...]

    def __call__(self, number: int) -> str:
        """Rewrite a group and return Lance's result."""
        from pennon.maintenance.compaction import execute

        return execute(self.groups[number], self.source.open())
