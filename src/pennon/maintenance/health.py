"""The health of a table: what its newest version looks like, and what maintenance would do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """A step of maintenance."""

    COMPACT = "compact"
    OPTIMIZE_INDICES = "optimize_indices"
    CLEANUP = "cleanup"


@dataclass(frozen=True)
class Due:
    """A step that is due, and why."""

    action: Action
    reason: str


@dataclass(frozen=True)
class IndexHealth:
    """The coverage of one index."""

    name: str
    index_type: str
    columns: tuple[str, ...]
    segments: int
    rows_indexed: int
    rows_unindexed: int
    #: Entries of rows that no longer exist, which can displace results of a search.
    stale_entries: int


@dataclass(frozen=True)
class TableHealth:
    """What one version of a table looks like."""

    branch: str
    version: int
    fragments: int
    small_fragments: int
    rows: int
    deleted_rows: int
    #: The size of the version's data files, without its blobs' folders if they are not measured.
    bytes_live: int
    #: The part of it that belongs to deleted rows, estimated by their share of each fragment.
    bytes_deleted: int
    versions: int
    indices: tuple[IndexHealth, ...]
    due: tuple[Due, ...]
