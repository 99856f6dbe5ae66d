"""The vocabulary of jobs: states, kinds, stop requests, and the JSON documents that a job carries.

Specs, results and failures are stored as JSON and returned by the REST API as they are, so they stay dictionaries.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias, TypedDict


class JobKind(StrEnum):
    """What a job does."""

    BACKFILL = "backfill"
    REFRESH = "refresh"
    COMPACT = "compact"
    OPTIMIZE_INDICES = "optimize_indices"
    CLEANUP = "cleanup"
    #: A cycle of the three above, in the right order.
    MAINTAIN = "maintain"


#: Jobs that keep a table fast; they give way to all others.
MAINTENANCE = frozenset({JobKind.COMPACT, JobKind.OPTIMIZE_INDICES, JobKind.CLEANUP, JobKind.MAINTAIN})
#: The submitter of maintenance jobs that no user has asked for.
AUTOMATIC_MAINTENANCE = "auto_maintenance"
#: The target of maintenance jobs: only one runs on a branch at a time.
MAINTENANCE_TARGET = "maintenance"
#: The priority of maintenance jobs; that of users' jobs is 0 by default.
MAINTENANCE_PRIORITY = -10


class JobState(StrEnum):
    """How far a job has come."""

    PENDING = "pending"
    RUNNING = "running"
    COMMITTING = "committing"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class StopRequest(StrEnum):
    """Why a worker must stop a job that it holds."""

    CANCEL = "cancel"
    PAUSE = "pause"
    TIMEOUT = "timeout"


#: States in which a worker holds a lease on the job.
LEASED = frozenset({JobState.RUNNING, JobState.COMMITTING})
ACTIVE = frozenset({JobState.PENDING, JobState.PAUSED}) | LEASED
TERMINAL = frozenset(JobState) - ACTIVE

#: Progress of a job: amounts by name, such as ``rows_computed``.
Counters: TypeAlias = dict[str, float]


class JobSpec(TypedDict, total=False):
    """The parameters that every kind of job accepts."""

    timeout_seconds: float
    #: The Spark cluster to run on; the default cluster if absent.
    cluster: str
    #: The number of tasks that run at the same time.
    concurrency: int
    #: The number of threads that apply a function within one task.
    intra_applier_concurrency: int
    #: The environment manifest that the functions run in.
    manifest: str


class BackfillSpec(JobSpec, total=False):
    """The parameters of a backfill; the fields of the REST request keep its names."""

    #: The path of the feature column.
    column: str
    #: All columns that the job writes: the target, its siblings, and the columns in ``before``.
    columns: list[str]
    #: Feature columns to fill first, in order.
    before: list[str]
    mode: str
    where: str
    #: The newest version of the table when the job was submitted.
    since: int
    #: The version whose rows are filled, instead of the newest.
    read_version: int
    num_frags: int
    task_size: int
    checkpoint_size: int
    min_checkpoint_size: int
    max_checkpoint_size: int
    batch_checkpoint_flush_interval_seconds: float
    #: The number of fragments per commit.
    commit_granularity: int


class RefreshSpec(JobSpec, total=False):
    """The parameters of a view refresh; the fields of the REST request keep its names."""

    #: Views to refresh first, by table id, in order.
    before: list[str]
    #: The newest versions of the sources when an automatic refresh was submitted, by table id.
    sources: dict[str, int]
    #: The version of the first source to read, instead of the newest.
    src_version: int
    #: Whether to recompute the view from scratch.
    full: bool
    #: The maximum number of rows in the view.
    output_limit: int
    source_task_size: int
    max_rows_per_fragment: int


class MaintenanceSpec(JobSpec, total=False):
    """The parameters of a maintenance job."""

    #: Why the job was submitted, in words of `pennon.maintenance.health`.
    reasons: list[str]
    #: The newest version when it was submitted automatically: the job has seen all commits up to it.
    seen_version: int
    #: Fields of the policy that differ for this job alone.
    policy: dict[str, bool | int | float | str]


class BackfillResult(TypedDict):
    """What a backfill has done."""

    rows_assigned: int
    rows_computed: int
    rows_failed: int
    rows_skipped: int
    rows_remaining: int
    source_version: int | None
    #: The last version that the job committed.
    published_version: int | None
    granularity: str


class RefreshResult(TypedDict):
    """What a refresh has done."""

    mode: str
    reason: str
    rows_added: int
    rows_updated: int
    rows_removed: int
    rows_written: int
    rows_failed: int
    source_version: int
    #: The versions that were read, by table name.
    source_versions: dict[str, int]
    #: The version of the view's table that the refresh committed.
    version: int


class MaintenanceResult(TypedDict):
    """What a maintenance job has done."""

    #: The version of the table when the job ended.
    version: int
    fragments_removed: int
    fragments_added: int
    rows_rewritten: int
    bytes_rewritten: int
    #: Groups of fragments that another commit changed first, so that nothing of them was committed.
    groups_lost: int
    rows_indexed: int
    segments_merged: int
    indices_retrained: int
    versions_removed: int
    files_removed: int
    bytes_removed: int
    #: Steps that failed, with their errors; the other steps were run.
    failures: dict[str, str]


JobResult: TypeAlias = BackfillResult | RefreshResult | MaintenanceResult


class Failure(TypedDict):
    """Why a job failed."""

    #: The step that failed: plan, environment, preflight, compute, commit or worker.
    phase: str
    #: The name of the error.
    type: str
    message: str
    #: Whether the same job may succeed if it is tried again.
    retryable: bool
