"""Commits of a backfill: the column files, the state of their rows and their errors, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from pennon.catalog import column_errors, column_states, job_events, transactions
from pennon.catalog.column_errors import ColumnError, ErrorLocation, ErrorScope
from pennon.catalog.column_states import ColumnStateRecord
from pennon.columns.feature_columns import ColumnOutput, FeatureColumn, feature_columns, find_feature_column
from pennon.columns.file_signatures import input_signature_after, signature, signature_after
from pennon.columns.plan import live_rows
from pennon.columns.row_spans import NO_SPANS, as_spans, count_rows, mask_of, numbers_of, runs_of, spans_of
from pennon.columns.row_states import NO_ROW, RowStates, Segment
from pennon.columns.state import FragmentState
from pennon.core.clock import now_millis
from pennon.jobs.errors import LeaseLostError, StopRequestedError
from pennon.pipeline.commit_retry import retry_on_conflict
from pennon.storage.layout import branch_folder

if TYPE_CHECKING:
    import numpy as np
    from lance import LanceDataset, LanceOperation
    from lance.fragment import FragmentMetadata, LanceFragment
    from numpy.typing import NDArray

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.columns.plan import WorkUnit
    from pennon.pipeline.backfill.checkpoints import Receipt
    from pennon.pipeline.task_records import DataFileRecord
    from pennon.pipeline.worker.lease import Lease
    from pennon.pipeline.worker.worker_services import WorkerServices

#: A unit whose column file is written.
FinishedUnit = tuple["WorkUnit", "Receipt"]


class FunctionChangedError(Exception):
    """The column's function changed while the old one ran."""


@dataclass(frozen=True)
class Committed:
    """The units of a commit, and its version; None when every fragment changed since it was read."""

    units: tuple[WorkUnit, ...]
    version: int | None


class BackfillCommitter:
    """Commits the units of one plan."""

    def __init__(
        self,
        services: WorkerServices,
        lease: Lease,
        table: Table,
        column: FeatureColumn,
        dataset: LanceDataset,
        states: list[FragmentState],
    ) -> None:
        self._services = services
        self._lease = lease
        self._table = table
        self._column = column
        self._branch = lease.job.branch
        self._source_version = dataset.version
        self._scope = ErrorScope(table.id, self._branch, column.first)
        own = {state.fragment_id: state for state in states}
        self._siblings = {
            output.path: own
            if output.path == column.path
            else self._states_of(dataset, replace(column, path=output.path))
            for output in column.outputs
        }
        #: The other feature columns at the newest version, and their states when this was planned.
        self._others = self._other_columns(dataset)
        self._planned = {other.output.key: self._states_of(dataset, other) for other in self._others}
        self._refusal: Exception | None = None
        self._built_from = 0

    def commit(self, finished: Sequence[FinishedUnit]) -> Committed:
        """Commit the fragments that have not changed since they were read."""
        kept: list[FinishedUnit] = []
        metadata: dict[int, FragmentMetadata] = {}

        def build(dataset: LanceDataset) -> LanceOperation.BaseOperation | None:
            kept[:], operation = self._build(dataset, finished, metadata)
            return operation

        def on_commit(connection: Connection, version: int) -> str:
            return self._record(connection, version, kept, metadata)

        written = retry_on_conflict(
            lambda: self._services.writer.commit(self._table, self._branch, on_commit, build), lambda: self._refusal
        )
        if written is not None:
            self._services.queue.end_commit(self._lease.job)
        self._remove_unused(finished, kept)
        return Committed(tuple(unit for unit, _ in kept), written.version if written else None)

    def _build(
        self, dataset: LanceDataset, finished: Sequence[FinishedUnit], metadata: dict[int, FragmentMetadata]
    ) -> tuple[list[FinishedUnit], LanceOperation.BaseOperation | None]:
        """Return the operation that replaces the column files of fragments whose inputs are unchanged."""
        import lance
        from lance.fragment import DataFile

        current = find_feature_column(dataset, self._column.path)
        if (current.digest, current.output.key) != (self._column.digest, self._column.output.key):
            raise FunctionChangedError
        self._built_from = dataset.version
        self._others = self._other_columns(dataset)
        kept: list[FinishedUnit] = []
        groups: list[LanceOperation.DataReplacementGroup] = []
        for unit, receipt in finished:
            fragment = dataset.get_fragment(unit.fragment_id)
            if fragment is None or signature(fragment.metadata, current, current.output) != unit.signature:
                continue
            row_ids = _live_row_ids(dataset, fragment, receipt["row_ids"])
            kept.append((unit, cast("Receipt", {**receipt, "row_ids": row_ids})))
            metadata[unit.fragment_id] = fragment.metadata
            file = DataFile(**receipt["file"])
            groups.append(lance.LanceOperation.DataReplacementGroup(unit.fragment_id, file))
        return kept, lance.LanceOperation.DataReplacement(groups) if groups else None

    def _record(
        self, connection: Connection, version: int, kept: list[FinishedUnit], metadata: dict[int, FragmentMetadata]
    ) -> str:
        """Record a commit, in its own transaction, unless the job may not commit any more."""
        job = self._lease.job
        try:
            self._services.queue.begin_commit(connection, job)
        except (LeaseLostError, StopRequestedError) as refusal:
            self._refusal = refusal
            raise ConcurrentModificationError("The job was stopped, or its lease was lost.") from refusal
        errors = column_errors.of_column(connection, self._scope)
        for unit, receipt in kept:
            for output in self._column.outputs:
                self._save(connection, version, unit, receipt, output, metadata[unit.fragment_id])
            if version == self._built_from + 1:  # otherwise another writer may have changed rows since
                self._confirm_others(connection, version, unit, receipt, metadata[unit.fragment_id])
            self._record_errors(connection, version, unit, receipt, errors)
            failed = count_rows(receipt["failed"])
            data = {"rows": unit.count, "failed": failed, "version": version}
            job_events.append(connection, job.id, "committed", now_millis(), unit=str(unit.fragment_id), data=data)
        properties = {"operation": "Backfill", "principal": job.submitted_by, "job_id": job.id}
        return transactions.insert(connection, "Backfill", self._table.identifier, properties)

    def _save(
        self,
        connection: Connection,
        version: int,
        unit: WorkUnit,
        receipt: Receipt,
        output: ColumnOutput,
        metadata: FragmentMetadata,
    ) -> None:
        failed, done = as_spans(receipt["failed"]), unit.todo
        if failed:
            done = spans_of(mask_of(unit.todo, unit.rows) & ~mask_of(failed, unit.rows))
        segment = Segment(self._column.digest, version, version, done, failed)
        known = self._siblings[output.path].get(unit.fragment_id)
        fill = (known.row_states if known else RowStates()).with_rows(
            segment, unit.rows, receipt["row_ids"], confirms=version == self._built_from + 1
        )
        self._put(connection, self._column, output, version, metadata, receipt["file"], fill)

    def _confirm_others(
        self, connection: Connection, version: int, unit: WorkUnit, receipt: Receipt, metadata: FragmentMetadata
    ) -> None:
        """Confirm the states of other columns: Lance marks every row of the fragment as written by the commit."""
        written = frozenset().union(*(output.field_ids for output in self._column.outputs))
        for other in self._others:
            signed = signature(metadata, other, other.output)
            recorded = column_states.find(connection, self._table.id, other.output.key, signed, self._branch)
            planned = self._planned.get(other.output.key, {}).get(unit.fragment_id)
            known = RowStates.decode(recorded.state) if recorded else RowStates()
            if recorded is None and planned is not None and planned.signature == signed:
                known = planned.row_states
            if known.segments:
                changed = unit.todo if other.input_field_ids & written else NO_SPANS
                fill = known.with_written(version, unit.rows, receipt["row_ids"], changed)
                self._put(connection, other, other.output, version, metadata, receipt["file"], fill)

    def _put(
        self,
        connection: Connection,
        column: FeatureColumn,
        output: ColumnOutput,
        version: int,
        metadata: FragmentMetadata,
        file: DataFileRecord,
        fill: RowStates,
    ) -> None:
        """Save the state of a column whose file is replaced."""
        signed = signature_after(metadata, column, output, file)
        tag = self._services.column_state_store.manifest_tag(self._table, self._branch, version)
        state = replace(fill, inputs=input_signature_after(metadata, column, file), manifest=tag).encode()
        record = ColumnStateRecord(self._table.id, output.key, signed, self._branch, metadata.id, version, state)
        column_states.save(connection, record)

    def _record_errors(
        self, connection: Connection, version: int, unit: WorkUnit, receipt: Receipt, before: list[ErrorLocation]
    ) -> None:
        if not before and not receipt["errors"]:
            return
        row_ids = numbers_of(receipt["row_ids"])
        column_errors.delete(connection, _superseded(_recomputed(before, unit, row_ids)))
        for offset, kind, message, attempt in receipt["errors"]:
            if len(row_ids) and row_ids[offset] == NO_ROW:
                continue  # deleted since
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
            column_errors.add(connection, self._scope, error)

    def _remove_unused(self, finished: Sequence[FinishedUnit], kept: list[FinishedUnit]) -> None:
        """Remove the files of fragments that changed since they were read, unless another worker has the job by now."""
        self._services.queue.check_lease(self._lease.job)
        used = {receipt["file"]["path"] for _, receipt in kept}
        folder = self._services.storage_root.folder(self._table.location)
        home = branch_folder(self._branch)
        for _, receipt in finished:
            if receipt["file"]["path"] not in used:
                folder.remove(f"{home}data/{receipt['file']['path']}")

    def _states_of(self, dataset: LanceDataset, column: FeatureColumn) -> dict[int, FragmentState]:
        states = self._services.column_state_store.read(dataset, self._table, self._branch, column)
        return {state.fragment_id: state for state in states}

    def _other_columns(self, dataset: LanceDataset) -> list[FeatureColumn]:
        own = {output.path for output in self._column.outputs}
        found = []
        for name in feature_columns(dataset.schema):
            # A column that lost an input or its function has no state to confirm.
            with suppress(LanceNamespaceError):
                found.append(find_feature_column(dataset, name))
        return [other for other in found if other.path not in own]


def _live_row_ids(
    dataset: LanceDataset, fragment: LanceFragment, row_ids: Sequence[Sequence[int]]
) -> Sequence[Sequence[int]]:
    """Return the row ids of a fragment, with NO_ROW for rows that were deleted since it was read."""
    deleted = sum(length for first, length in row_ids if first == NO_ROW)
    if not row_ids or fragment.num_deletions == deleted:
        return row_ids
    numbers = numbers_of(row_ids)
    numbers[~live_rows(dataset, fragment.fragment_id, len(numbers))] = NO_ROW
    return runs_of(numbers)


def _recomputed(errors: Sequence[ErrorLocation], unit: WorkUnit, row_ids: NDArray[np.int64]) -> list[ErrorLocation]:
    """Return the errors of rows that were computed again, even if the rows have moved since."""
    todo = mask_of(unit.todo, unit.rows)
    ids = set(row_ids[todo].tolist()) if errors and len(row_ids) else set()
    return [
        error
        for error in errors
        if error.row_id in ids
        or (error.row_id is None and error.fragment_id == unit.fragment_id and todo[error.row_offset])
    ]


def _superseded(errors: Sequence[ErrorLocation]) -> list[str]:
    """Return the ids of errors that no restorable version needs: of each row, all but the newest."""
    by_row: dict[object, list[str]] = {}
    for error in errors:
        row = (error.fragment_id, error.row_offset) if error.row_id is None else error.row_id
        by_row.setdefault(row, []).append(error.id)
    return [known for ids in by_row.values() for known in ids[: 1 - column_states.MAX_RECORDS]]
