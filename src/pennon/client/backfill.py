"""What can be said about a backfill when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from pennon.client.manifests import manifest_text

#: Which rows are computed: those without an up-to-date value, never computed ones, failed ones, or every row.
Mode = Literal["default", "only_missing", "only_failed", "all"]


class BackfillOptions(TypedDict, total=False):
    """Which rows a backfill computes and how; the server has a default for each."""

    where: str | None
    mode: Mode
    #: The branch to fill; else the one the table was opened on.
    branch: str | None
    #: The version whose rows are computed.
    read_version: int | None
    #: Whether to fill the columns first that this one is computed from.
    cascade: bool
    #: Jobs with a higher one go first.
    priority: int
    #: Seconds after which the server ends the job.
    timeout: float | None
    #: Tasks at the same time, and calls at the same time within a task.
    concurrency: int | None
    intra_applier_concurrency: int | None
    #: Rows of a task.
    task_size: int | None
    #: Fragments to fill at most.
    num_frags: int | None
    #: Rows of a checkpoint, or its bounds while it adapts to the function.
    checkpoint_size: int | None
    min_checkpoint_size: int | None
    max_checkpoint_size: int | None
    batch_checkpoint_flush_interval_seconds: float | None
    #: Fragments of a commit.
    commit_granularity: int | None
    #: The cluster, as the server's settings name it.
    cluster: str | None
    #: The environment, in place of the function's own: with ``pip``, ``py_modules`` and ``env_vars``.
    manifest: Mapping[str, Any] | str | None


def backfill_body(column: str, branch: str | None, options: BackfillOptions) -> dict[str, Any]:
    """Return the body of a request for a backfill: what was stated, and nothing of what was left open."""
    unknown = sorted(options.keys() - BackfillOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(BackfillOptions.__annotations__))
        raise TypeError(f"A backfill has no option {unknown[0]!r}; it has {known}.")
    body: dict[str, Any] = {"column": column, **options, "branch": options.get("branch") or branch}
    body["timeout_seconds"] = body.pop("timeout", None)
    body["manifest"] = manifest_text(body.get("manifest"))
    return {name: value for name, value in body.items() if value is not None}
