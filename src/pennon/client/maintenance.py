"""Maintenance of tables: their health, the jobs that keep them fast, and policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from pennon.client.job import Job, job_from_response
from pennon.client.reports import Report
from pennon.client.transport import new_key, without_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from pennon.client.transport import JsonObject, Transport

#: What a maintenance job does: all steps, or one of them.
Kind: TypeAlias = Literal["maintain", "compact", "optimize_indices", "cleanup"]
#: A value of a policy.
Value: TypeAlias = bool | int | float | str


@dataclass(frozen=True, kw_only=True, repr=False)
class Health(Report):
    """The health of a table: what its newest version looks like, and what maintenance would do about it."""

    branch: str = ""
    version: int = 0
    fragments: int = 0
    #: Fragments of less than half of the target size.
    small_fragments: int = 0
    rows: int = 0
    deleted_rows: int = 0
    #: Bytes of the newest version's data files, and the estimated part of deleted rows.
    bytes_live: int = 0
    bytes_deleted: int = 0
    versions: int = 0
    #: The coverage of each index: ``name``, ``segments``, ``rows_indexed``, ``rows_unindexed`` and so on.
    indices: tuple[dict[str, Any], ...] = ()
    #: The steps that are due: ``action`` and ``reason``.
    due: tuple[dict[str, str], ...] = ()
    #: The active maintenance job, the last one, and when the next may start automatically.
    active: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    next: dict[str, Any] | None = None

    @property
    def unindexed_rows(self) -> int:
        """The largest number of rows outside an index."""
        return max((index["rows_unindexed"] for index in self.indices), default=0)

    def __repr__(self) -> str:
        due = ", ".join(dict.fromkeys(step["action"] for step in self.due)) or "nothing"
        return (
            f"<version {self.version}: {self.rows:,} rows in {self.fragments:,} fragments ({self.small_fragments:,} "
            f"small), {self.deleted_rows:,} deleted, {self.unindexed_rows:,} unindexed, {self.versions:,} versions; "
            f"due: {due}>"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class MaintenancePlan(Report):
    """What a maintenance job would do, and why."""

    kind: str = "maintain"
    branch: str = ""
    version: int = 0
    due: tuple[dict[str, str], ...] = ()
    #: The versions that would be removed, and those that are kept, with reasons.
    cleanup: dict[str, Any] | None = None
    policy: dict[str, Any] | None = None

    def __repr__(self) -> str:
        steps = "; ".join(f"{step['action']}: {step['reason']}" for step in self.due) or "nothing to do"
        return f"<{self.kind} of version {self.version}: {steps}>"


class TableMaintenance:
    """The methods of a table for its maintenance, which the server also does automatically."""

    _inner: Any
    _transport: Transport
    path: tuple[str, ...]
    _route: Callable[[str], str]

    def health(self) -> Health:
        """Measure the table: its fragments, deletions, unindexed rows and versions, and what maintenance would do."""
        return Health.of(self._transport.read(self._route("health"), self._branch_body()))

    @overload
    def maintain(
        self,
        kind: Kind = "maintain",
        *,
        policy: Mapping[str, Value] | None = None,
        timeout: float | None = None,
        dry_run: Literal[False] = False,
    ) -> Job: ...

    @overload
    def maintain(
        self, kind: Kind = "maintain", *, policy: Mapping[str, Value] | None = None, dry_run: Literal[True]
    ) -> MaintenancePlan: ...

    def maintain(
        self,
        kind: Kind = "maintain",
        *,
        policy: Mapping[str, Value] | None = None,
        timeout: float | None = None,
        dry_run: bool = False,
    ) -> Job | MaintenancePlan:
        """Start maintenance of the table and return its job without waiting; if one is active, return that one.

        Args:
            kind: All steps ("maintain"), or one: "compact", "optimize_indices" or "cleanup".
            policy: Values of the maintenance policy for this job alone.
            timeout: Time limit of the job, in seconds.
            dry_run: Return what would be done, and why, without doing it.
        """
        body = without_none({**self._branch_body(), "kind": kind, "policy": dict(policy) if policy else None})
        if dry_run:
            return MaintenancePlan.of(self._transport.read(self._route("maintain"), {**body, "dry_run": True}))
        body |= without_none({"timeout_seconds": timeout})
        response = self._transport.post(self._route("maintain"), body, idempotency_key=new_key())
        return job_from_response(self._transport, response, job_type=kind, table="$".join(self.path))

    def optimize(
        self, *, cleanup_older_than: timedelta | None = None, delete_unverified: bool = False, retrain: bool = False
    ) -> Job:
        """Start all steps of maintenance and return the job: compaction, index upkeep and cleanup.

        ``cleanup_older_than`` is the age above which versions are removed, unless something needs them.
        """
        _refuse(delete_unverified=delete_unverified, retrain=retrain)
        return self.maintain(policy=_older_than(cleanup_older_than))

    def compact_files(self, *, target_rows_per_fragment: int | None = None) -> Job:
        """Start a compaction, which merges small fragments and drops deleted rows, and return the job."""
        policy = without_none({"target_fragment_rows": target_rows_per_fragment})
        return self.maintain("compact", policy=cast("dict[str, Value]", policy))

    def cleanup_old_versions(self, older_than: timedelta | None = None, *, delete_unverified: bool = False) -> Job:
        """Start to remove versions, by default as the policy says, and return the job.

        A version that is tagged, or that a branch, a clone, a view or a job needs, is kept.
        """
        _refuse(delete_unverified=delete_unverified)
        return self.maintain("cleanup", policy=_older_than(older_than))

    def why_kept(self, *versions: int) -> dict[int, list[str]]:
        """Return why versions are kept; a version without a reason is removed by the next cleanup."""
        body = {**self._branch_body(), "versions": list(versions)}
        found = cast("list[dict[str, Any]]", self._transport.read(self._route("version/retention"), body)["versions"])
        return {entry["version"]: list(entry["reasons"]) for entry in found}

    def maintenance_policy(self) -> dict[str, Value]:
        """Return the effective maintenance policy of the table."""
        return policy_values(self._transport.read(self._route("maintenance_policy/describe")))

    def alter_maintenance_policy(self, **values: Value | None) -> dict[str, Value]:
        """Set values of the table's maintenance policy, or reset them to inherited ones with None, and return it."""
        route = self._route("maintenance_policy/alter")
        return policy_values(self._transport.post(route, {"policy": values}, idempotency_key=new_key()))

    def _branch_body(self) -> JsonObject:
        return without_none({"branch": self._inner.current_branch()})


def policy_values(response: JsonObject) -> dict[str, Value]:
    """Return the effective values in the description of a policy."""
    described = cast("Mapping[str, Mapping[str, Value]]", response["policy"])
    return {name: field["value"] for name, field in described.items()}


def _older_than(age: timedelta | None) -> dict[str, Value] | None:
    """Return the policy that removes the versions above an age and keeps the others."""
    if age is None:
        return None
    seconds = max(age.total_seconds(), 0.001)
    return {"max_version_seconds": seconds, "min_version_seconds": seconds}


def _refuse(*, delete_unverified: bool, retrain: bool = False) -> None:
    if delete_unverified:
        raise ValueError(
            "delete_unverified is not supported: files of writes that are still running cannot be told from left ones. "
            "Cleanup removes them when they are a week old."
        )
    if retrain:
        raise ValueError("retrain is not supported: maintenance retrains an index when its statistics say so.")
