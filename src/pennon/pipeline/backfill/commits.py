"""Committing fragments of a column: the files, what is known of their rows and their errors, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from pennon.catalog import column_errors, column_states, job_events, transactions
from pennon.catalog.column_errors import ColumnError, Located, Place
from pennon.catalog.column_states import Fill
from pennon.columns.feature_columns import FeatureColumn, Output, feature_columns, find_feature_column
from pennon.columns.file_signatures import input_signature_after, signature, signature_after
from pennon.columns.plan import live_rows
from pennon.columns.row_spans import NOTHING, as_spans, count_rows, mask_of, numbers_of, runs_of, spans_of
from pennon.columns.state import NO_ROW, FragmentFill, FragmentState, Segment
from pennon.core.clock import now_millis
from pennon.jobs.queue import LeaseLostError, StopRequestedError
from pennon.pipeline.commit_retry import commit_beside_others
from pennon.storage.layout import branch_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.columns.plan import Unit
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices

Finished = tuple["Unit", dict[str, Any]]


class FunctionChangedError(Exception):
    """The column got another function while its old one was at work."""


@dataclass(frozen=True)
class Committed:
    """Which fragments a commit brought, and its version; none when no fragment was as it had been read."""

    units: tuple[Unit, ...]
    version: int | None


class FillCommitter:
    """Commits what was computed of one plan."""

    def __init__(
        self,
        services: WorkerServices,
        lease: Lease,
        table: Table,
        column: FeatureColumn,
        dataset: Any,
        states: list[FragmentState],
    ) -> None:
        self._services = services
        self._lease = lease
        self._table = table
        self._column = column
        self._branch = lease.job.branch
        self._source_version = dataset.version
        self._place = Place(table.id, self._branch, column.first)
        own = {state.fragment_id: state for state in states}
        self._siblings = {
            output.path: own
            if output.path == column.path
            else self._states_of(dataset, replace(column, path=output.path))
            for output in column.outputs
        }
        #: Other feature columns as of the newest version, and what was known of them when this was planned.
        self._others = self._other_columns(dataset)
        self._planned = {other.output.key: self._states_of(dataset, other) for other in self._others}
        self._stopped: Exception | None = None
        self._built_from = 0

    def commit(self, finished: Sequence[Finished]) -> Committed:
        """Commit those of the fragments that are still as they were read."""
        kept: list[Finished] = []
        metadata: dict[int, Any] = {}

        def build(dataset: Any) -> Any:
            kept[:], operation = self._build(dataset, finished, metadata)
            return operation

        def note(connection: Connection, version: int) -> str:
            return self._record(connection, version, kept, metadata)

        written = commit_beside_others(
            lambda: self._services.writer.commit(self._table, self._branch, note, build), lambda: self._stopped
        )
        if written is not None:
            self._services.queue.resume_running(self._lease.job)
        self._remove_unused(finished, kept)
        return Committed(tuple(unit for unit, _ in kept), written.version if written else None)

    def _build(
        self, dataset: Any, finished: Sequence[Finished], metadata: dict[int, Any]
    ) -> tuple[list[Finished], Any]:
        """Return the operation that puts files in place of fragments that still have the same inputs."""
        import lance
        from lance.fragment import DataFile

        current = find_feature_column(dataset, self._column.path)
        if (current.digest, current.output.key) != (self._column.digest, self._column.output.key):
            raise FunctionChangedError
        self._built_from = dataset.version
        self._others = self._other_columns(dataset)
        kept, groups = [], []
        for unit, receipt in finished:
            fragment = dataset.get_fragment(unit.fragment_id)
            if fragment is None or signature(fragment.metadata, current, current.output) != unit.signature:
                continue
            kept.append((unit, {**receipt, "row_ids": _live_row_ids(dataset, fragment, receipt["row_ids"])}))
            metadata[unit.fragment_id] = fragment.metadata
            file = DataFile(**receipt["file"])
            groups.append(lance.LanceOperation.DataReplacementGroup(unit.fragment_id, file))
        return kept, lance.LanceOperation.DataReplacement(groups) if groups else None

    def _record(self, connection: Connection, version: int, kept: list[Finished], metadata: dict[int, Any]) -> str:
        """Write down what a commit brings, in its own transaction, unless the job may not commit any more."""
        job = self._lease.job
        try:
            self._services.queue.guard(connection, job)
        except (LeaseLostError, StopRequestedError) as stopped:
            self._stopped = stopped
            raise ConcurrentModificationError("The job is to stop.") from stopped
        errors = column_errors.of_column(connection, self._place)
        for unit, receipt in kept:
            for output in self._column.outputs:
                self._save(connection, version, unit, receipt, output, metadata[unit.fragment_id])
            if version == self._built_from + 1:  # else somebody may have changed rows just before
                self._confirm_others(connection, version, unit, receipt, metadata[unit.fragment_id])
            self._record_errors(connection, version, unit, receipt, errors)
            failed = count_rows(receipt["failed"])
            data = {"rows": unit.count, "failed": failed, "version": version}
            job_events.append(connection, job.id, "committed", now_millis(), unit=str(unit.fragment_id), data=data)
        properties = {"operation": "Backfill", "principal": job.submitted_by, "job_id": job.id}
        return transactions.record(connection, "Backfill", self._table.identifier, properties)

    def _save(
        self, connection: Connection, version: int, unit: Unit, receipt: dict[str, Any], output: Output, metadata: Any
    ) -> None:
        failed, done = as_spans(receipt["failed"]), unit.todo
        if failed:
            done = spans_of(mask_of(unit.todo, unit.rows) & ~mask_of(failed, unit.rows))
        segment = Segment(self._column.digest, version, version, done, failed)
        known = self._siblings[output.path].get(unit.fragment_id)
        fill = (known.fill if known else FragmentFill()).with_rows(
            segment, unit.rows, receipt["row_ids"], confirms=version == self._built_from + 1
        )
        self._put(connection, self._column, output, version, metadata, receipt["file"], fill)

    def _confirm_others(
        self, connection: Connection, version: int, unit: Unit, receipt: dict[str, Any], metadata: Any
    ) -> None:
        """Say of other columns which rows are as they were: the commit marks every row of the fragment written."""
        written = frozenset().union(*(output.leaves for output in self._column.outputs))
        for other in self._others:
            sign = signature(metadata, other, other.output)
            recorded = column_states.find(connection, self._table.id, other.output.key, sign, self._branch)
            planned = self._planned.get(other.output.key, {}).get(unit.fragment_id)
            known = FragmentFill.decode(recorded.state) if recorded else FragmentFill()
            if recorded is None and planned is not None and planned.signature == sign:
                known = planned.fill
            if known.segments:
                changed = unit.todo if other.input_leaves & written else NOTHING
                fill = known.with_written(version, unit.rows, receipt["row_ids"], changed)
                self._put(connection, other, other.output, version, metadata, receipt["file"], fill)

    def _put(
        self,
        connection: Connection,
        column: FeatureColumn,
        output: Output,
        version: int,
        metadata: Any,
        file: dict[str, Any],
        fill: FragmentFill,
    ) -> None:
        """Save what is known of a column once a file is in its place."""
        sign = signature_after(metadata, column, output, file)
        tag = self._services.column_state_store.manifest_tag(self._table, self._branch, version)
        state = replace(fill, inputs=input_signature_after(metadata, column, file), manifest=tag).encode()
        record = Fill(self._table.id, output.key, sign, self._branch, metadata.id, version, state)
        column_states.save(connection, record)

    def _record_errors(
        self, connection: Connection, version: int, unit: Unit, receipt: dict[str, Any], before: list[Located]
    ) -> None:
        if not before and not receipt["errors"]:
            return
        row_ids = numbers_of(receipt["row_ids"])
        column_errors.forget(connection, _outlived(_recomputed(before, unit, row_ids)))
        for offset, kind, message, attempt in receipt["errors"]:
            if len(row_ids) and row_ids[offset] == NO_ROW:
                continue  # deleted meanwhile
            error = ColumnError(
                job_id=self._lease.job.id,
                fragment_id=unit.fragment_id,
                row_offset=offset,
                row_id=int(row_ids[offset]) if len(row_ids) else None,
                function=self._column.name,
                function_version=self._column.version,
                table_version=self._source_version,
                error_type=kind,
                error_message=message,
                attempt=attempt,
                created_at=now_millis(),
                commit_version=version,
            )
            column_errors.add(connection, self._place, error)

    def _remove_unused(self, finished: Sequence[Finished], kept: list[Finished]) -> None:
        """Remove the files of fragments that changed meanwhile, unless they are those of another worker by now."""
        self._services.queue.check_held(self._lease.job)
        used = {receipt["file"]["path"] for _, receipt in kept}
        folder = self._services.storage_root.folder(self._table.location)
        home = branch_folder(self._branch)
        for _, receipt in finished:
            if receipt["file"]["path"] not in used:
                folder.remove(f"{home}data/{receipt['file']['path']}")

    def _states_of(self, dataset: Any, column: FeatureColumn) -> dict[int, FragmentState]:
        states = self._services.column_state_store.read(dataset, self._table, self._branch, column)
        return {state.fragment_id: state for state in states}

    def _other_columns(self, dataset: Any) -> list[FeatureColumn]:
        own = {output.path for output in self._column.outputs}
        found = []
        for name in feature_columns(dataset.schema):
            # One that lost an input or its function is no business of this column.
            with suppress(LanceNamespaceError):
                found.append(find_feature_column(dataset, name))
        return [other for other in found if other.path not in own]


def _live_row_ids(dataset: Any, fragment: Any, row_ids: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Return the row ids of a fragment without those of rows that were deleted since it was read."""
    deleted = sum(length for first, length in row_ids if first == NO_ROW)
    if not row_ids or fragment.num_deletions == deleted:
        return row_ids
    numbers = numbers_of(row_ids)
    numbers[~live_rows(dataset, fragment.fragment_id, len(numbers))] = NO_ROW
    return runs_of(numbers)


def _recomputed(errors: Sequence[Located], unit: Unit, row_ids: NDArray[np.int64]) -> list[Located]:
    """Return the errors whose rows, wherever they were then, are among those that were computed again."""
    todo = mask_of(unit.todo, unit.rows)
    ids = set(row_ids[todo].tolist()) if errors and len(row_ids) else set()
    return [
        error
        for error in errors
        if error.row_id in ids
        or (error.row_id is None and error.fragment_id == unit.fragment_id and todo[error.row_offset])
    ]


def _outlived(errors: Sequence[Located]) -> list[str]:
    """Return the ids of errors that no version which can be restored needs: of each row, all but the newest."""
    by_row: dict[object, list[str]] = {}
    for error in errors:
        row = (error.fragment_id, error.row_offset) if error.row_id is None else error.row_id
        by_row.setdefault(row, []).append(error.id)
    return [known for ids in by_row.values() for known in ids[: 1 - column_states.KEPT]]
