"""Committing fragments of a column: the files, what is known of their rows and their errors, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from lance_namespace.errors import ConcurrentModificationError

from pennon.catalog import column_errors, column_fills, job_events, transactions
from pennon.catalog.column_errors import ColumnError, Place
from pennon.catalog.column_fills import Fill
from pennon.core.clock import now_millis
from pennon.jobs.queue import LeaseLostError, StopRequestedError
from pennon.lake.feature_columns import FeatureColumn, Output, feature_columns, find_feature_column
from pennon.lake.fills import FragmentFill, FragmentState, Segment, signature, signature_after
from pennon.lake.spans import mask_of, numbers_of, spans_of

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.lake.planning import Unit
    from pennon.pipeline.lease import Lease
    from pennon.pipeline.tools import Tools

_ATTEMPTS = 20

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
        tools: Tools,
        lease: Lease,
        table: Table,
        column: FeatureColumn,
        dataset: Any,
        states: list[FragmentState],
    ) -> None:
        self._tools = tools
        self._lease = lease
        self._table = table
        self._column = column
        self._branch = lease.job.branch
        self._source_version = dataset.version
        self._states = {state.fragment_id: state for state in states}
        self._siblings = {
            output.path: self._states_of(dataset, replace(column, path=output.path)) for output in column.outputs
        }
        self._others = {
            path: (other, self._states_of(dataset, other)) for path, other in self._other_columns(dataset).items()
        }
        self._stopped: Exception | None = None

    def commit(self, finished: Sequence[Finished]) -> Committed:
        """Commit those of the fragments that are still as they were read."""
        kept: list[Finished] = []
        metadata: dict[int, Any] = {}

        def build(dataset: Any) -> Any:
            kept[:], operation = self._build(dataset, finished, metadata)
            return operation

        for attempt in range(_ATTEMPTS):
            try:
                written = self._tools.writer.commit(
                    self._table,
                    self._branch,
                    lambda connection, version: self._record(connection, version, kept, metadata),
                    build,
                )
            except ConcurrentModificationError:
                if self._stopped is not None:
                    raise self._stopped from None
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                break
        if written is not None:
            self._tools.queue.resume_running(self._lease.job)
        self._remove_unused(finished, kept)
        return Committed(tuple(unit for unit, _ in kept), written.version if written else None)

    def _build(
        self, dataset: Any, finished: Sequence[Finished], metadata: dict[int, Any]
    ) -> tuple[list[Finished], Any]:
        """Return the operation that puts files in place of fragments that still have the same inputs."""
        import lance
        from lance.fragment import DataFile

        current = find_feature_column(dataset, self._column.path)
        if current.digest != self._column.digest:
            raise FunctionChangedError
        kept, groups = [], []
        for unit, receipt in finished:
            fragment = dataset.get_fragment(unit.fragment_id)
            if fragment is None or signature(fragment.metadata, current, current.output) != unit.signature:
                continue
            kept.append((unit, receipt))
            metadata[unit.fragment_id] = fragment.metadata
            file = DataFile(**receipt["file"])
            groups.append(lance.LanceOperation.DataReplacementGroup(unit.fragment_id, file))
        return kept, lance.LanceOperation.DataReplacement(groups) if groups else None

    def _record(self, connection: Connection, version: int, kept: list[Finished], metadata: dict[int, Any]) -> str:
        """Write down what a commit brings, in its own transaction, unless the job may not commit any more."""
        job = self._lease.job
        try:
            self._tools.queue.guard(connection, job)
        except (LeaseLostError, StopRequestedError) as stopped:
            self._stopped = stopped
            raise ConcurrentModificationError("The job is to stop.") from stopped
        for unit, receipt in kept:
            for output in self._column.outputs:
                self._save(connection, version, unit, receipt, output, metadata[unit.fragment_id])
            self._confirm_others(connection, version, unit)
            self._record_errors(connection, unit, receipt)
            failed = sum(stop - start for start, stop in receipt["failed"])
            data = {"rows": unit.count, "failed": failed, "version": version}
            job_events.append(connection, job.id, "committed", now_millis(), unit=str(unit.fragment_id), data=data)
        properties = {"operation": "Backfill", "principal": job.submitted_by, "job_id": job.id}
        return transactions.record(connection, "Backfill", self._table.identifier, properties)

    def _save(
        self, connection: Connection, version: int, unit: Unit, receipt: dict[str, Any], output: Output, metadata: Any
    ) -> None:
        todo, failed = mask_of(unit.todo, unit.rows), mask_of(_pairs(receipt["failed"]), unit.rows)
        segment = Segment(self._column.digest, version, version, spans_of(todo & ~failed), spans_of(failed))
        known = self._siblings[output.path].get(unit.fragment_id)
        fill = (known.fill if known else FragmentFill()).with_rows(segment, unit.rows, receipt["row_ids"])
        after = signature_after(metadata, self._column, output, receipt["file"])
        self._put(connection, output.field_id, after, unit.fragment_id, version, fill)

    def _confirm_others(self, connection: Connection, version: int, unit: Unit) -> None:
        """Say of other columns that their rows are as they were: the commit marks every row of the fragment written."""
        for other, states in self._others.values():
            known = states.get(unit.fragment_id)
            if known is not None and known.fill.segments:
                segments = tuple(replace(segment, valid_at=version) for segment in known.fill.segments)
                fill = replace(known.fill, segments=segments)
                self._put(connection, other.output.field_id, known.signature, unit.fragment_id, version, fill)

    def _put(
        self, connection: Connection, field_id: int, sign: str, fragment_id: int, version: int, fill: FragmentFill
    ) -> None:
        record = Fill(self._table.id, field_id, sign, self._branch, fragment_id, version, fill.encode())
        column_fills.save(connection, record)

    def _record_errors(self, connection: Connection, unit: Unit, receipt: dict[str, Any]) -> None:
        row_ids = numbers_of(receipt["row_ids"])
        place = Place(self._table.id, self._branch, self._column.path)
        self._forget_errors(connection, place, unit, row_ids)
        for offset, kind, message, attempt in receipt["errors"]:
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
            )
            column_errors.add(connection, place, error)

    def _forget_errors(self, connection: Connection, place: Place, unit: Unit, row_ids: Any) -> None:
        """Forget the errors of rows that failed before and were computed again."""
        known = self._states.get(unit.fragment_id)
        if known is None:
            return
        before = np.zeros(unit.rows, dtype=np.bool_)
        for segment in known.fill.segments:
            before |= mask_of(segment.failed, unit.rows)
        again = before & mask_of(unit.todo, unit.rows)
        for start, stop in spans_of(again):
            column_errors.forget_span(connection, place, unit.fragment_id, start, stop)
        if len(row_ids):
            column_errors.forget_rows(connection, place, row_ids[again].tolist())

    def _remove_unused(self, finished: Sequence[Finished], kept: list[Finished]) -> None:
        """Remove the files of fragments that changed meanwhile."""
        used = {receipt["file"]["path"] for _, receipt in kept}
        folder = self._tools.places.folder(self._table.location)
        home = f"tree/{self._branch}/" if self._branch else ""
        for _, receipt in finished:
            if receipt["file"]["path"] not in used:
                folder.remove(f"{home}data/{receipt['file']['path']}")

    def _states_of(self, dataset: Any, column: FeatureColumn) -> dict[int, FragmentState]:
        states = self._tools.ledger.read(dataset, self._table, self._branch, column)
        return {state.fragment_id: state for state in states}

    def _other_columns(self, dataset: Any) -> dict[str, FeatureColumn]:
        own = {output.path for output in self._column.outputs}
        return {name: find_feature_column(dataset, name) for name in feature_columns(dataset.schema) if name not in own}


def _pairs(spans: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((start, stop) for start, stop in spans)
