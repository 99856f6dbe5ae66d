"""Requests and responses about the maintenance of tables, which the specification does not have."""

from __future__ import annotations

from typing import Annotated, Literal

from lance_namespace import DescribeTableResponse
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

from pennon.namespace.models.columns import Seconds
from pennon.namespace.models.requests import BranchRequest, ObjectRequest

#: A value of a policy.
Value = StrictBool | StrictInt | float | StrictStr
_Version = Annotated[StrictInt, Field(ge=0, lt=2**63)]
#: The number of versions that one request may ask about.
MAX_VERSIONS = 1000


class DescribeTableHealthRequest(BranchRequest):
    """A request for the health of a table."""


class IndexHealth(BaseModel):
    """The coverage of an index."""

    name: str
    index_type: str
    columns: list[str]
    segments: int
    rows_indexed: int
    rows_unindexed: int
    #: Entries of deleted rows, which can displace results of a search.
    stale_entries: int


class DueAction(BaseModel):
    """A step of maintenance that is due, and why."""

    action: str
    reason: str


class MaintenanceRun(BaseModel):
    """A maintenance job of a table."""

    job_id: str
    job_type: str
    state: str
    submitted_by: str
    created_at_millis: int
    finished_at_millis: int | None = None
    result: dict[str, object] | None = None
    #: Why it failed.
    message: str | None = None


class NextMaintenance(BaseModel):
    """When the next automatic maintenance of a table may start, and what it waits for."""

    #: Null if nothing is due, or if it is not known.
    at_millis: int | None = None
    reason: str


class DescribeTableHealthResponse(BaseModel):
    """The health of a table, measured at its newest version."""

    branch: str
    version: int
    fragments: int
    #: Fragments of less than half of the target size.
    small_fragments: int
    rows: int
    deleted_rows: int
    #: The bytes of the newest version's data files, without blobs; and the estimated part of deleted rows.
    bytes_live: int
    bytes_deleted: int
    versions: int
    indices: list[IndexHealth]
    due: list[DueAction]
    active: MaintenanceRun | None = None
    last: MaintenanceRun | None = None
    next: NextMaintenance


class HealthSummary(BaseModel):
    """What the catalog knows of a version without opening it."""

    fragments: int
    #: Fragments of less than half of the default target size.
    small_fragments: int
    rows: int
    deleted_rows: int
    #: Rows outside the index that covers the fewest.
    unindexed_rows: int
    bytes: int
    indices: int


class DescribedHealth(HealthSummary):
    """What the catalog knows of a table's newest version, and of its maintenance."""

    #: The part of the bytes that belongs to deleted rows, estimated by their share.
    bytes_deleted: int
    #: The number of versions of the branch.
    versions: int
    #: When the last automatic maintenance ended.
    last_maintenance_millis: int | None = None
    #: When the next one may start although nothing is committed, and what it will do and why; null if nothing is known.
    next_maintenance_millis: int | None = None
    due: str | None = None


class TableSummary(BaseModel):
    """A table in the order of the need for maintenance."""

    id: list[str]
    branch: str
    version: int
    versions: int
    #: Null if an earlier release recorded the version.
    health: HealthSummary | None = None
    #: When maintenance is due although nothing is committed, and why.
    due_at_millis: int | None = None
    due: str | None = None


class ListTableHealthRequest(ObjectRequest):
    """A request for the tables that need maintenance most."""

    limit: Annotated[StrictInt, Field(ge=1)] | None = None


class ListTableHealthResponse(BaseModel):
    """The tables of a namespace that need maintenance most, the worst first."""

    tables: list[TableSummary]


class DescribedTable(DescribeTableResponse):
    """The description of a table, with its health."""

    health: DescribedHealth | None = Field(
        default=None, description="With details: the health of the version, as far as the catalog knows it."
    )


class MaintainTableRequest(BranchRequest):
    """A request to maintain a table now."""

    kind: StrictStr | None = Field(
        default=None, description="maintain (the default: all steps), compact, optimize_indices or cleanup."
    )
    policy: dict[str, Value] | None = Field(
        default=None, description="Values of the maintenance policy for this job alone, by field."
    )
    timeout_seconds: Seconds | None = None
    dry_run: StrictBool = False


class MaintainTableResponse(BaseModel):
    """The job that maintains the table."""

    job_id: str
    job_type: str
    state: str
    #: False if the job was active already.
    submitted: bool
    transaction_id: str | None = None


class VersionRange(BaseModel):
    """Consecutive versions, including both ends."""

    first: int
    last: int


class KeptVersions(BaseModel):
    """Versions that a cleanup keeps for the same reason."""

    reason: str
    count: int
    versions: list[VersionRange]


class CleanupPlan(BaseModel):
    """The versions that a cleanup would remove, and those that it would keep."""

    versions_to_remove: int
    remove: list[VersionRange]
    #: The number of versions that are within the limits of the policy.
    versions_recent: int
    #: Older versions that something needs.
    kept: list[KeptVersions]


class MaintenancePlan(BaseModel):
    """What a maintenance job would do, and why; a dry run returns it."""

    branch: str
    version: int
    kind: str
    due: list[DueAction]
    cleanup: CleanupPlan | None = None
    policy: dict[str, Value]


class DescribeMaintenancePolicyRequest(ObjectRequest):
    """A request for the maintenance policy of a table or a namespace."""


class PolicyValue(BaseModel):
    """The effective value of a field of a policy, and where it is set."""

    value: Value
    level: Literal["server", "namespace", "table"]
    #: The namespace that sets it; null if the caller may not see it.
    namespace: str | None = None
    #: The value that would apply without that of the object itself.
    inherited: Value


class DescribeMaintenancePolicyResponse(BaseModel):
    """The effective maintenance policy of a table or a namespace, by field."""

    policy: dict[str, PolicyValue]


class AlterMaintenancePolicyRequest(ObjectRequest):
    """A request to change the maintenance policy of a table or a namespace; other fields stay as they are."""

    policy: dict[str, Value | None] = Field(
        description="New values by field; null resets a field to the inherited value."
    )


class AlterMaintenancePolicyResponse(DescribeMaintenancePolicyResponse):
    """The policy after the change."""

    transaction_id: str


class DescribeVersionRetentionRequest(BranchRequest):
    """A request for why versions are kept."""

    versions: Annotated[list[_Version], Field(min_length=1, max_length=MAX_VERSIONS)]


class VersionRetention(BaseModel):
    """Why a version is kept."""

    version: int
    #: Sentences; empty if the next cleanup removes the version.
    reasons: list[str]


class DescribeVersionRetentionResponse(BaseModel):
    """Why versions are kept."""

    versions: list[VersionRetention]
