"""The health of a table: what its newest version looks like, and what maintenance would do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.maintenance.policy import MaintenancePolicy

#: Returns the size of the blobs that belong to a data file, by the file's name.
BlobBytes: TypeAlias = Callable[[str], int]


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


def measure(
    dataset: LanceDataset,
    branch: str,
    policy: MaintenancePolicy,
    *,
    versions: int = 0,
    unindexed_since: int | None = None,
    blob_bytes: BlobBytes | None = None,
) -> TableHealth:
    """Return the health of one version, with the steps that are due under a policy, except cleanup.

    Args:
        dataset: The version.
        branch: Its branch.
        policy: The effective policy of the table.
        versions: The number of versions of the branch.
        unindexed_since: When the oldest rows outside an index were committed, in milliseconds, if that is known.
        blob_bytes: Measures blobs, which are stored outside data files; without it, they do not count.
    """
    raise NotImplementedError
