"""The options of a backfill, as requests carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from pennon.client.manifests import manifest_text
from pennon.client.transport import without_none

if TYPE_CHECKING:
    from pennon.client.transport import JsonObject

#: Which rows are computed: those without an up-to-date value, never computed ones, failed ones, or every row.
Mode: TypeAlias = Literal["default", "only_missing", "only_failed", "all"]


class BackfillOptions(TypedDict, total=False):
    """Options of a backfill: which rows it computes, and how; the server has a default for each."""

    #: SQL filter for the rows to compute.
    where: str | None
    mode: Mode
    #: The branch to backfill; by default the one the table was opened on.
    branch: str | None
    #: The version whose rows are computed.
    read_version: int | None
    #: Whether to first backfill the columns that this one is computed from.
    cascade: bool
    #: Jobs with a higher priority run first.
    priority: int
    #: Time limit of the job, in seconds.
    timeout: float | None
    #: Most concurrent tasks, and concurrent calls within a task.
    concurrency: int | None
    intra_applier_concurrency: int | None
    #: Rows per task.
    task_size: int | None
    #: Most fragments to backfill.
    num_frags: int | None
    #: Rows per checkpoint, or its bounds while it adapts to the speed of the UDF.
    checkpoint_size: int | None
    min_checkpoint_size: int | None
    max_checkpoint_size: int | None
    batch_checkpoint_flush_interval_seconds: float | None
    #: Fragments per commit.
    commit_granularity: int | None
    #: Name of the Spark cluster, from the server's settings.
    cluster: str | None
    #: Environment that replaces the UDF's own: ``pip``, ``py_modules`` and ``env_vars``.
    manifest: Mapping[str, object] | str | None


def backfill_body(column: str, branch: str | None, options: BackfillOptions) -> JsonObject:
    """Return the body of a backfill request: the options that are set."""
    check_options(options, BackfillOptions, "a backfill")
    body: JsonObject = {"column": column, **options, "branch": options.get("branch") or branch}
    body["timeout_seconds"] = body.pop("timeout", None)
    body["manifest"] = manifest_text(options.get("manifest"))
    return without_none(body)


def check_options(options: Mapping[str, object], known: type, what: str) -> None:
    """Raise TypeError for an option that the TypedDict does not have."""
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        raise TypeError(f"Unknown option {unknown[0]!r} of {what}; use {', '.join(sorted(known.__annotations__))}.")
