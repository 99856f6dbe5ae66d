"""The step of a maintenance job that rewrites fragments: in the worker, or on Spark if there is much to rewrite."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from lance_namespace.errors import ConcurrentModificationError

from pennon.catalog import job_events, versions
from pennon.commits.durability import flush_fragments
from pennon.core.clock import now_millis
from pennon.maintenance import compaction, guard
from pennon.maintenance.compaction import RewriteTask, Rewritten
from pennon.maintenance.index_upkeep import index_states
from pennon.pipeline.cluster.driver import borrow_session, task_count, wait
from pennon.pipeline.cluster.tasks import run_tasks
from pennon.pipeline.commit_retry import retry_on_conflict
from pennon.pipeline.maintenance.rewrite_task import RewriteGroups
from pennon.pipeline.maintenance.table_work import YieldedError
from pennon.pipeline.maintenance.uncommitted_files import remove_uncommitted_files
from pennon.storage.layout import branch_folder
from pennon.tables.lance_errors import typed_errors
from pennon.tables.snapshots import Snapshot, bases_of

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog import Connection
    from pennon.maintenance.guard import Folds
    from pennon.pipeline.job_pins import JobPins
    from pennon.pipeline.maintenance.table_work import TableWork

OPERATION = "Compact"
#: Groups are committed after this many, or after this time. A commit makes two versions; a conflict costs no group that
#: still fits, and a user's job waits for at most one group and one commit.
_MAX_PENDING, _MAX_PENDING_SECONDS = 8, 2.0
_PAUSE_SECONDS = 0.2


class CompactionStep:
    """Rewrites the fragments of one table."""

    def __init__(self, work: TableWork, folds: Folds, pins: JobPins, *, all_small: bool) -> None:
        self._work = work
        self._folds = folds
        self._pins = pins
        self._all_small = all_small
        self._folder = work.services.storage_root.folder(work.table.location)
        self._budget = _Budget(work)

    def unclean(self) -> frozenset[int]:
        """Return the fragments whose deleted rows vector indexes must lose before they are rewritten."""
        work = self._work
        dataset = work.services.datasets.at(work.table, work.branch, None)
        sizes = compaction.fragment_sizes(dataset, self._blob_bytes)
        wanted, _ = guard.fragments_to_fold(
            dataset, index_states(dataset), sizes, work.policy, all_small=self._all_small
        )
        return wanted

    def run(self) -> None:
        """Rewrite what is due, and commit it in groups."""
        work = self._work
        if not work.services.queue.may_compact(work.lease.job):
            work.lease.add_event("skipped", {"reason": "the checkpoints of a paused job need the fragments"}, "compact")
            return
        dataset = work.services.datasets.at(work.table, work.branch, None)
        sizes = compaction.fragment_sizes(dataset, self._blob_bytes)
        blocked = guard.blocked_fragments(dataset, index_states(dataset), self._folds)
        tasks = compaction.plan(dataset, work.policy, sizes, blocked, all_small=self._all_small)
        if not tasks:
            return
        self._pins.hold(dataset.version)
        self._budget.wait()  # for what an earlier attempt has rewritten
        totals = {
            "fragments_planned": sum(len(task.fragment_ids) for task in tasks),
            "rows_planned": sum(task.rows for task in tasks),
            "bytes_planned": sum(task.bytes for task in tasks),
        }
        work.lease.add(**totals)
        work.lease.add_event("planned", {"groups": len(tasks), "version": dataset.version, **totals}, "compact")
        is_large = totals["bytes_planned"] > work.services.settings.maintenance_spark_bytes
        rewrite = self._rewrite_on_spark if is_large else self._rewrite_here
        self._commit_all(dataset, rewrite(dataset, tasks))

    def _rewrite_here(self, dataset: LanceDataset, tasks: Sequence[RewriteTask]) -> Iterator[list[Rewritten]]:
        """Yield the groups that were rewritten, one at a time."""
        for task in tasks:
            self._work.check()
            with typed_errors():
                text = compaction.execute(task.text, dataset)
            yield [Rewritten(task, text)]

    def _rewrite_on_spark(self, dataset: LanceDataset, tasks: Sequence[RewriteTask]) -> Iterator[list[Rewritten]]:
        """Yield the groups that were rewritten, as many at a time as the cluster runs."""
        work = self._work
        spec = work.lease.job.spec
        options = work.services.storage_root.options
        source = Snapshot(work.table.location, options, work.branch, dataset.version, bases_of(dataset))
        with borrow_session(work.services, work.lease, spec.get("cluster"), None) as session:
            waiting = iter(tasks)
            at_once = task_count(session, spec.get("concurrency"))
            while wave := list(islice(waiting, at_once)):
                work.check()
                groups = RewriteGroups(source, tuple(task.text for task in wave))
                run = run_tasks(session, groups, len(wave), group=work.lease.job.id)
                wait(run, work.lease, lambda: None, lambda: None)
                yield [Rewritten(task, text) for task, text in zip(wave, run.results(), strict=True)]

    def _commit_all(self, dataset: LanceDataset, rewritten: Iterator[list[Rewritten]]) -> None:
        pending: list[Rewritten] = []
        since = time.monotonic()
        try:
            for results in rewritten:
                for result in results:
                    self._remember(result)
                pending += results
                if len(pending) >= _MAX_PENDING or time.monotonic() - since >= _MAX_PENDING_SECONDS:
                    self._commit(dataset, pending)
                    pending, since = [], time.monotonic()
                self._budget.wait()
        finally:
            # Also when the job gives way: what was rewritten is committed, if the job still may.
            if pending:
                self._commit(dataset, pending)

    def _remember(self, result: Rewritten) -> None:
        """Record the files of a group, by which the next attempt finds them if this worker dies."""
        fragments = result.new_fragments
        files = [file.path for fragment in fragments for file in fragment.files]
        self._work.lease.add_event("rewritten", {"files": files}, _unit(result))
        self._work.lease.add(rows_computed=result.task.rows, bytes_rewritten=result.task.bytes)
        flush_fragments(self._folder, self._work.branch, fragments)

    def _commit(self, dataset: LanceDataset, pending: list[Rewritten]) -> None:
        """Commit groups, and remove the files of those that another commit has changed since they were planned."""
        work = self._work
        units = [_unit(result) for result in pending]

        def on_commit(connection: Connection) -> str:
            transaction_id = work.record(connection, OPERATION)
            newest = versions.latest(connection, work.table.id, work.branch)
            data = {"version": newest.version + 1 if newest else 1, "units": units}
            job_events.append(connection, work.lease.job.id, "committing", now_millis(), unit="compact", data=data)
            return transaction_id

        def commit() -> tuple[list[Rewritten], int]:
            fitting, done = work.services.writer.change(
                work.table, work.branch, on_commit, partial(compaction.commit_what_fits, results=pending)
            )
            return fitting, done.version

        try:
            committed, version = retry_on_conflict(commit, lambda: work.refusal)
        except ConcurrentModificationError:
            committed, version = [], dataset.version
        if committed:
            work.services.queue.end_commit(work.lease.job)
            self._count(committed, version)
        lost = [result for result in pending if result not in committed]
        for result in lost:
            work.services.writer.remove_files(work.table, work.branch, result.new_fragments)
        work.lease.add(groups_lost=len(lost))

    def _count(self, committed: Sequence[Rewritten], version: int) -> None:
        lease = self._work.lease
        removed = sum(len(result.task.fragment_ids) for result in committed)
        added = sum(len(result.new_fragments) for result in committed)
        rows = sum(result.task.rows for result in committed)
        lease.add(fragments_committed=removed, fragments_added=added, rows_committed=rows)
        data = {
            "version": version,
            "units": [_unit(result) for result in committed],
            "fragments_removed": removed,
            "fragments_added": added,
            "rows": rows,
            "bytes": sum(result.task.bytes for result in committed),
        }
        lease.add_event("committed", data, "compact")

    def _blob_bytes(self, file: str) -> int:
        folder = f"{branch_folder(self._work.branch)}data/{file.removesuffix('.lance')}"
        return sum(blob.size for blob in self._folder.files(folder))

    def remove_uncommitted_files(self) -> None:
        """Remove files that this job has written and not committed: in an earlier attempt, or before an error."""
        remove_uncommitted_files(self._work, self._folder)


class _Budget:
    """The budget of a policy in bytes a second, over all attempts of a job."""

    def __init__(self, work: TableWork) -> None:
        self._work = work

    def wait(self) -> None:
        """Wait until what the job has rewritten is within the budget, unless maintenance of others waits for it."""
        work, rate = self._work, self._work.policy.max_bytes_per_second
        spent, since = work.lease.counters.get("bytes_rewritten", 0), work.lease.job.started_at
        until = since + 1000 * spent / rate if rate and spent and since else 0
        while (left := (until - now_millis()) / 1000) > 0:
            work.check()
            if work.services.queue.is_waited_for(work.lease.job):
                raise YieldedError
            time.sleep(min(left, _PAUSE_SECONDS))


def _unit(result: Rewritten) -> str:
    """Return the name of a group in the events of its job: its first new file."""
    files = [file.path for fragment in result.new_fragments for file in fragment.files]
    return files[0] if files else f"fragment {result.task.fragment_ids[0]}"
