"""Why versions are kept, and which ones a cleanup would remove."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from pennon.catalog import versions
from pennon.core.clock import now_millis
from pennon.maintenance.needed_versions import Needed, UnknownNeedsError, find_needed
from pennon.maintenance.schedule import policy_ages

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from pennon.catalog import Connection, Database
    from pennon.catalog.maintenance_state import VersionAges
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.commits.history import History
    from pennon.maintenance.policy import MaintenancePolicy
    from pennon.storage.file_io import FileIO
    from pennon.storage.root import StorageRoot


_UNMANAGED = "Pennon does not manage the commits of the table, so it removes no version."


class RetentionServices(Protocol):
    """The services that tell which versions are needed."""

    @property
    def database(self) -> Database:
        """The catalog."""

    @property
    def storage_root(self) -> StorageRoot:
        """The storage of the tables."""

    @property
    def history(self) -> History:
        """The versions of the tables."""


@dataclass(frozen=True)
class OldVersions:
    """The versions of a branch that are beyond the limits of its policy, oldest first."""

    versions: Sequence[Version]
    #: Those that are kept all the same, as the last ones of their period.
    snapshots: frozenset[int]
    #: The number of versions within the limits.
    recent: int

    def without(self, needed: Container[int]) -> list[Version]:
        """Return the versions to remove if some are needed."""
        return [
            each
            for each in self.versions
            if each.version not in needed and each.version not in self.snapshots and not each.pending
        ]


@dataclass(frozen=True)
class CleanupPlan:
    """The versions that a cleanup would remove, and those beyond the policy's limits that something needs."""

    remove: tuple[int, ...]
    kept: Needed
    #: The number of versions that the policy keeps.
    recent: int


def why_kept(
    services: RetentionServices, table: Table, branch: str, numbers: Iterable[int], policy: MaintenancePolicy
) -> dict[int, list[str]]:
    """Return why versions are kept, as sentences; no reason for a version that the next cleanup removes."""
    found = {number: services.history.find(table, branch, number) for number in numbers}
    if not table.managed:
        return {number: [_UNMANAGED] for number in found}
    folder = services.storage_root.folder(table.location)

    def read(connection: Connection) -> dict[int, list[str]]:
        ages = policy_ages(connection, table.id, branch, policy, now_millis())
        needed, unknown = _needed(connection, folder, table, branch)
        reasons: dict[int, list[str]] = {}
        for number, version in found.items():
            following = versions.page(connection, table.id, branch, after=number, descending=False, limit=1)
            if version.pending:
                reasons[number] = ["Its commit is not complete yet."]
            elif not following:
                reasons[number] = ["It is the newest version."]
            else:
                recent = _recency(version, following[0], ages, policy)
                reasons[number] = [*needed.get(number, []), *unknown, *recent]
        return reasons

    return services.database.read(read)


def plan_cleanup(services: RetentionServices, table: Table, branch: str, policy: MaintenancePolicy) -> CleanupPlan:
    """Return which versions a cleanup would remove now."""
    folder = services.storage_root.folder(table.location)

    def read(connection: Connection) -> CleanupPlan:
        found = find_old(connection, table, branch, policy)
        needed, unknown = _needed(connection, folder, table, branch)
        if unknown:
            needed = {version.version: unknown for version in found.versions}
        remove = tuple(each.version for each in found.without(needed))
        kept = {each.version: needed[each.version] for each in found.versions if each.version in needed}
        return CleanupPlan(remove, kept, found.recent + len(found.snapshots - kept.keys()))

    return services.database.read(read)


def _needed(connection: Connection, folder: FileIO, table: Table, branch: str) -> tuple[Needed, list[str]]:
    """Return the versions that something needs, and why that is unknown."""
    try:
        return find_needed(connection, folder, table, branch), []
    except UnknownNeedsError as error:
        return {}, [str(error)]


def find_old(connection: Connection, table: Table, branch: str, policy: MaintenancePolicy) -> OldVersions:
    """Return the versions that are beyond the limits of a policy."""
    ages = policy_ages(connection, table.id, branch, policy, now_millis())
    found = versions.in_range(connection, table.id, branch, 0, ages.removable_before + 1)
    old = [version for version in found if version.version < ages.removable_before]
    snapshots = frozenset(
        version.version for version, following in pairwise(found) if is_snapshot(version, following, ages, policy)
    )
    return OldVersions(old, snapshots, ages.count - len(old))


def is_snapshot(version: Version, following: Version, ages: VersionAges, policy: MaintenancePolicy) -> bool:
    """Return whether a version is the last of its period, and not too old."""
    if not policy.snapshot_seconds or version.version < ages.beyond_max_age:
        return False
    millis = policy.snapshot_seconds * 1000
    return version.recorded_at // millis < following.recorded_at // millis


def _recency(version: Version, following: Version, ages: VersionAges, policy: MaintenancePolicy) -> list[str]:
    """Return why the limits of a policy keep a version."""
    if version.version >= ages.beyond_min_age:
        return [_age_reason(following.recorded_at, policy.min_version_seconds, "min_version_seconds")]
    if version.version < ages.beyond_max_age:
        return []
    age = _age_reason(following.recorded_at, policy.max_version_seconds, "max_version_seconds", start="it")
    if version.version >= ages.beyond_rank:
        return [f"It is one of the newest {policy.max_versions} versions (max_versions), and {age}"]
    if is_snapshot(version, following, ages, policy):
        return [f"It is the last version of its {policy.snapshot_seconds:g} seconds (snapshot_seconds), and {age}"]
    return []


def _age_reason(replaced: int, seconds: float, field: str, start: str = "It") -> str:
    age = max(now_millis() - replaced, 0) // 1000
    return f"{start} was replaced {age} seconds ago, which is less than {field} ({seconds:g})."
