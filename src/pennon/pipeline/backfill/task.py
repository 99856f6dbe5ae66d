"""The task of a backfill: the fragments that one Spark task fills, one after the other.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pennon.columns.plan import Unit
from pennon.columns.row_spans import as_spans
from pennon.pipeline.backfill.fragment import Fragment, Meter, Pace, Sizes, Target, forget_peak, positions
from pennon.tables.blobs import scan_with_blobs
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.pipeline.backfill.checkpoints import Checkpoints
    from pennon.pipeline.backfill.fragment import Compute, Errors

#: Functions are tried on so many rows before they are let loose on all.
SAMPLE_ROWS = 3


@dataclass(frozen=True)
class Work:
    """How the rows of a column are computed: by a function's bytes, or by an expression."""

    inputs: tuple[str, ...]
    targets: tuple[Target, ...]
    function: bytes | None = None
    expression: str | None = None


@dataclass(frozen=True)
class FillTask:
    """Fills groups of fragments, one group a task."""

    source: Snapshot
    work: Work
    sizes: Sizes
    checkpoint_path: str
    groups: tuple[tuple[Unit, ...], ...] = field(repr=False)
    #: Tells this run of the tasks from others, so that it can be stopped.
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, number: int) -> dict[str, Any]:
        """Fill the fragments of one group; a failure of the function is told, not raised: Spark would try it again."""
        from pennon.pipeline.backfill.checkpoints import Checkpoints
        from pennon.pipeline.computation import failure_of
        from pennon.storage.root import open_file_io

        checkpoints = Checkpoints(open_file_io(self.source.location, self.source.options), self.checkpoint_path)
        try:
            self._fill(number, checkpoints)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            checkpoints.file_failure(number, failure)
        return {}

    def try_out(self) -> None:
        """Load the function and try it on the first rows."""
        from pennon.pipeline.computation import computing

        dataset = self.source.open()
        with computing(self.work, dataset.schema) as compute:
            compute(_sample(dataset, self.groups[0][0], list(self.work.inputs)))

    def _fill(self, number: int, checkpoints: Checkpoints) -> None:
        """Fill fragments one after the other; those whose receipt is there already are done."""
        from pennon.pipeline.computation import computing

        forget_peak()
        dataset = self.source.open()
        pace = Pace(self.sizes, *self._call_rows())
        with computing(self.work, dataset.schema) as compute:

            def compute_on(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Errors]:
                # Spark ends a cancelled task seconds later, and what it computes until then is computed twice.
                if checkpoints.is_stopped(self.run):
                    raise RuntimeError("The run was stopped.")
                return compute(batch)

            for unit in self.groups[number]:
                if not is_receipt_for(checkpoints.receipt(unit.input_signature), unit):
                    fragment = self._fragment(dataset, unit, checkpoints, compute_on, pace)
                    fragment.fill(self.source.home, self.source.options or None)

    def _fragment(self, dataset: Any, unit: Unit, checkpoints: Any, compute: Compute, pace: Pace) -> Fragment:
        work = self.work
        inputs = work.expression if work.expression is not None else list(work.inputs)
        return Fragment(dataset, unit, inputs, list(work.targets), self.sizes, checkpoints, compute, pace, Meter())

    def _call_rows(self) -> tuple[int, int]:
        """Return how many rows a call takes, at least and at most: as many as its author says, if a checkpoint can."""
        from pennon.functions.envelope import read_envelope

        most = min(self.sizes.batch_rows, self.sizes.most_checkpoint_rows)
        if self.work.function is None:
            return 1, most
        envelope = read_envelope(self.work.function)
        most = min(most, envelope.options.batch_size or most)
        return most if envelope.options.batch_size and envelope.kind != "scalar" else 1, most


def is_receipt_for(receipt: dict[str, Any] | None, unit: Unit) -> bool:
    """Tell whether a receipt says that this very work is done."""
    if receipt is None or receipt["signature"] != unit.signature:
        return False
    return as_spans(receipt["todo"]) == unit.todo


def _sample(dataset: Any, unit: Unit, inputs: list[str]) -> Any:
    start = unit.todo[0][0]
    stop = min(unit.todo[0][1], start + SAMPLE_ROWS)
    fragment = dataset.get_fragment(unit.fragment_id)
    options: dict[str, Any] = {"include_deleted_rows": True, "with_row_id": True} if unit.has_deletions else {}
    columns = list(dict.fromkeys(inputs))
    options |= {"offset": start, "limit": stop - start}
    scanner = scan_with_blobs(dataset, columns, fragments=[fragment], **options)
    table = scanner.to_table().select(positions(inputs)).combine_chunks()
    return table.to_batches()[0]
