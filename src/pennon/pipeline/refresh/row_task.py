"""The task of a refresh that goes row by row: read rows of the source, compute, write fragments of the view.

Executors import this module: nothing of Lance is imported before a Python worker forked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pennon.pipeline.backfill.fragment import Meter, Pace, Sizes, forget_peak
from pennon.pipeline.backfill.task import SAMPLE_ROWS, Work
from pennon.pipeline.refresh.work_split import Item, Picked, Slice
from pennon.tables.snapshots import Snapshot
from pennon.views.model.definition import CHILD, SOURCE_ROW

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pennon.functions.chunker_calls import Expanded
    from pennon.pipeline.backfill.fragment import Errors
    from pennon.pipeline.computation import Expands

_KEEP, _INPUT = "__keep", "__input"
_FIRST_ROWS = 1024
#: So many errors a task are told in full; all of them are counted.
MOST_ERRORS = 1000


@dataclass(frozen=True)
class Recipe:
    """How rows of the view come from rows of the source."""

    #: Names and expressions, as Lance evaluates them.
    columns: tuple[tuple[str, str], ...]
    where: str | None = None
    functions: tuple[Work, ...] = ()
    #: A chunker: its bytes, its inputs, and the columns it makes.
    chunker: tuple[bytes, tuple[str, ...], tuple[str, ...]] | None = None
    limit: int | None = None
    offset: int | None = None

    @property
    def names(self) -> list[str]:
        """The columns that are written."""
        made = [target.path for work in self.functions for target in work.targets]
        if self.chunker is not None:
            made += [CHILD, *self.chunker[2]]
        return [*(name for name, _ in self.columns), *made]


@dataclass(frozen=True)
class Derivation:
    """Derives rows of a view from groups of rows of its source, one group a task."""

    source: Snapshot
    target: Snapshot
    recipe: Recipe
    sizes: Sizes
    #: Tells the files and the notices of this run from those of others.
    run: str
    most_rows: int | None
    groups: tuple[tuple[Item, ...], ...] = field(repr=False)

    def __call__(self, number: int) -> dict[str, Any]:
        """Derive the rows of one group; a failure of a function is told, not raised: Spark would try it again."""
        from pennon.pipeline.refresh.fragments import FragmentWriter

        forget_peak()
        writer = FragmentWriter(self.target, self.recipe.names, self.run, self.most_rows)

        def derive() -> dict[str, Any]:
            worker = _Worker(self, number, writer)
            worker.derive(self.groups[number])
            return {"fragments": [piece.to_json() for piece in writer.close()], **worker.answer()}

        return guarded(self.target, self.run, number, writer.abort, derive)

    def try_out(self) -> None:
        """Load the functions and try them on the first rows."""
        from pennon.pipeline.refresh.fragments import FragmentWriter

        writer = FragmentWriter(self.target, self.recipe.names, self.run, self.most_rows)
        _Worker(self, 0, writer).try_out(self.groups[0])


def guarded(
    target: Snapshot, run: str, number: int, abort: Callable[[], None], work: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Do the work of a task; when it fails, remove what it wrote, and tell what no second attempt would change."""
    from pennon.pipeline.computation import failure_of
    from pennon.pipeline.refresh.fragments import MisfitError
    from pennon.pipeline.refresh.run_signals import Notices
    from pennon.storage.root import open_file_io

    notices = Notices(open_file_io(target.location, target.options), run)
    try:
        answer = work()
        notices.check()  # what a task writes after the driver has tidied up would stay for ever
    except BaseException as error:
        abort()
        failure = failure_of(error) if isinstance(error, Exception) else None
        if isinstance(error, MisfitError):
            failure = {"type": "TableSchemaValidationError", "message": str(error)}
        if failure is None:
            raise
        notices.file_failure(number, failure)
        return {"failure": failure}
    return answer


class _Worker:
    """One task at work."""

    def __init__(self, task: Derivation, number: int, writer: Any) -> None:
        from pennon.pipeline.refresh.run_signals import Notices
        from pennon.storage.root import open_file_io

        self._task = task
        self._number = number
        self._writer = writer
        self._dataset = task.source.open()
        self._meter = Meter()
        self._notices = Notices(open_file_io(task.target.location, task.target.options), task.run)
        self._pace = Pace(task.sizes, 1, self._call_rows())
        self._known: list[np.ndarray[Any, Any]] = []
        self._errors: list[dict[str, Any]] = []

    def derive(self, items: tuple[Item, ...]) -> None:
        """Derive the rows of items, one after the other."""
        with self._computing() as compute:
            for item in items:
                for batch in self._read(item):
                    self._derive_batch(batch, compute, item)

    def try_out(self, items: tuple[Item, ...]) -> None:
        """Compute the first rows of items, and write nothing."""
        with self._computing() as compute:
            batch = next((batch for item in items for batch in self._read(item)), None)
            if batch is not None:
                compute(batch.slice(0, SAMPLE_ROWS))

    def answer(self) -> dict[str, Any]:
        """Return what the driver is told beside the fragments."""
        from pennon.pipeline.refresh.counts import pack_ids

        meter = self._meter
        meter.bytes_written = self._writer.bytes_written
        return {"counters": meter.counters(), "known": pack_ids(self._known), "errors": self._errors}

    def _derive_batch(self, batch: pa.RecordBatch, compute: Any, item: Item) -> None:
        """Compute rows in pieces that each take about as long as a stop should."""
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, self._pace.rows * self._task.sizes.threads)
            start += piece.num_rows
            began = time.perf_counter()
            results = compute(piece)
            seconds = time.perf_counter() - began
            self._meter.udf_seconds += seconds
            self._meter.rows_computed += piece.num_rows
            self._pace.learn(piece.num_rows // self._task.sizes.threads, seconds, sum(r.nbytes for r in results))
            began = time.perf_counter()
            for result in results:
                self._writer.write(result)
                if item.known:
                    self._known.append(result.column(SOURCE_ROW).to_numpy())
            self._meter.write_seconds += time.perf_counter() - began
            self._notices.tell(self._number, self._meter.rows_computed)

    # Reading.

    def _columns(self, *, keep: bool) -> dict[str, str]:
        from pennon.tables.field_paths import path_expression

        recipe = self._task.recipe
        inputs = [path for work in recipe.functions for path in work.inputs]
        inputs += recipe.chunker[1] if recipe.chunker else ()
        # Of a row that fails it is told which it is, also where the view does not keep that.
        found = {SOURCE_ROW: "_rowid"} if recipe.functions or recipe.chunker else {}
        found |= dict(recipe.columns) | {f"{_INPUT}{at}": path_expression(path) for at, path in enumerate(inputs)}
        return found | ({_KEEP: recipe.where} if keep and recipe.where is not None else {})

    def _read(self, item: Item) -> Iterator[pa.RecordBatch]:
        batches = self._take(item) if isinstance(item, Picked) else self._scan(item)
        while True:
            began = time.perf_counter()
            batch = next(batches, None)
            self._meter.read_seconds += time.perf_counter() - began
            if batch is None:
                return
            self._meter.bytes_read += batch.nbytes
            if _KEEP in batch.schema.names:
                batch = batch.filter(batch.column(_KEEP)).drop_columns([_KEEP])
            if batch.num_rows:
                yield batch

    def _scan(self, item: Slice) -> Iterator[pa.RecordBatch]:
        recipe, sizes = self._task.recipe, self._task.sizes
        limited = recipe.limit is not None or recipe.offset is not None
        options: dict[str, Any] = {}
        if limited:
            options = {"limit": recipe.limit, "offset": recipe.offset}
        else:
            options["fragments"] = [self._dataset.get_fragment(item.fragment_id)]
            if not item.whole:
                options |= {"offset": item.start, "limit": item.rows}
        whole = limited or item.whole
        scanner = self._dataset.scanner(
            columns=self._columns(keep=not whole),
            filter=recipe.where if whole else None,
            batch_size=sizes.batch_rows,
            batch_size_bytes=sizes.batch_bytes,
            batch_readahead=2,
            **options,
        )
        yield from scanner.to_batches()

    def _take(self, item: Picked) -> Iterator[pa.RecordBatch]:
        """Take rows by their ids; how many at once follows from how large they are."""
        import pyarrow as pa

        from pennon.columns.row_spans import numbers_of

        ids = numbers_of(item.runs).astype("uint64")
        columns, sizes = self._columns(keep=True), self._task.sizes
        start, rows = 0, _FIRST_ROWS
        while start < len(ids):
            table = self._dataset._take_rows(pa.array(ids[start : start + rows]), columns=columns)  # noqa: SLF001
            start += rows
            rows = int(min(max(sizes.batch_bytes * rows // max(table.nbytes, 1), 1), sizes.batch_rows, rows * 8))
            yield from table.combine_chunks().to_batches()

    # Computing.

    def _call_rows(self) -> int:
        from pennon.functions.envelope import read_envelope

        recipe = self._task.recipe
        contents = [work.function for work in recipe.functions] + ([recipe.chunker[0]] if recipe.chunker else [])
        sizes = [read_envelope(content).options.batch_size for content in contents if content is not None]
        return min([self._task.sizes.batch_rows, *(size for size in sizes if size)])

    @contextmanager
    def _computing(self) -> Iterator[Callable[[pa.RecordBatch], list[pa.RecordBatch]]]:
        recipe = self._task.recipe
        if recipe.chunker is not None:
            with self._expanding() as expand:
                yield expand
        elif recipe.functions:
            with ExitStack() as opened:
                yield self._applying([opened.enter_context(self._function(work)) for work in recipe.functions])
        else:
            yield lambda batch: [batch]

    def _function(self, work: Work) -> AbstractContextManager[Any]:
        from pennon.pipeline.computation import computing

        return computing(work, self._writer.schema)

    def _applying(self, functions: list[Any]) -> Callable[[pa.RecordBatch], list[pa.RecordBatch]]:
        import pyarrow as pa

        recipe = self._task.recipe
        names = [name for name, _ in recipe.columns]

        def apply(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            columns, made = [batch.column(name) for name in names], list(names)
            at = 0
            for work, compute in zip(recipe.functions, functions, strict=True):
                inputs = batch.select([f"{_INPUT}{at + number}" for number in range(len(work.inputs))])
                at += len(work.inputs)
                values, errors = self._at_once(inputs, compute, batch)
                columns += values.columns
                made += [target.path for target in work.targets]
                self._note_errors(batch, work.targets[0].path, errors)
            return [pa.RecordBatch.from_arrays(columns, names=made)]

        return apply

    def _at_once(self, inputs: pa.RecordBatch, compute: Any, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Call a function; several times at once, if asked to, because it waits for something else than this CPU."""
        from pennon.functions.results import join

        threads = self._task.sizes.threads
        if threads == 1:
            with self._placed(batch):
                return compute(inputs)  # type: ignore[no-any-return]
        size = -(-inputs.num_rows // threads)
        starts = range(0, inputs.num_rows, size)

        def call(start: int) -> Any:
            with self._placed(batch, start):
                return compute(inputs.slice(start, size))

        with ThreadPoolExecutor(threads) as pool:
            outcomes = list(pool.map(call, starts))
        errors = [
            (row + start, *rest) for start, (_, found) in zip(starts, outcomes, strict=True) for row, *rest in found
        ]
        pieces = [values for values, _ in outcomes]
        return join(pieces, pieces[0].schema), errors

    @contextmanager
    def _expanding(self) -> Iterator[Callable[[pa.RecordBatch], list[pa.RecordBatch]]]:
        """Lend what makes children of rows, each with its parent's id, its number, and its parent's columns."""
        import pyarrow as pa

        from pennon.pipeline.computation import expanding

        recipe = self._task.recipe
        assert recipe.chunker is not None  # noqa: S101 - the caller looked
        content, inputs, outputs = recipe.chunker
        schema = pa.schema([self._writer.schema.field(name) for name in outputs])
        names = [name for name, _ in recipe.columns]

        def with_parents(batch: pa.RecordBatch, piece: Expanded) -> pa.RecordBatch:
            parents = batch.select(names).take(pa.array(piece.parents))
            columns = [*parents.columns, pa.array(piece.children), *piece.values.columns]
            return pa.RecordBatch.from_arrays(columns, names=[*names, CHILD, *outputs])

        def expand_part(expander: Expands, part: pa.RecordBatch) -> list[pa.RecordBatch]:
            with self._placed(part):
                pieces, errors = expander.expand(part.select([f"{_INPUT}{at}" for at in range(len(inputs))]))
            told = [(error.row, error.type, error.message, error.attempt) for error in errors]
            self._note_errors(part, outputs[0], told)
            return [with_parents(part, piece) for piece in pieces]

        def expand(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            if len(expanders) == 1:
                return expand_part(expanders[0], batch)
            size = -(-batch.num_rows // len(expanders))
            parts = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
            with ThreadPoolExecutor(len(parts)) as pool:
                found = list(pool.map(expand_part, expanders, parts))
            return [piece for pieces in found for piece in pieces]

        # One for each thread: an expander can do one thing at a time.
        with expanding(content, inputs, schema, self._task.sizes.threads) as expanders:
            yield expand

    @contextmanager
    def _placed(self, batch: pa.RecordBatch, first: int = 0) -> Iterator[None]:
        """Name the row that a function fails for."""
        from pennon.functions.failures import FunctionFailedError

        try:
            yield
        except FunctionFailedError as error:
            if error.row is not None:
                error.place = f"the source's row with id {batch.column(SOURCE_ROW)[error.row + first]}"
            raise

    def _note_errors(self, batch: pa.RecordBatch, column: str, errors: Errors) -> None:
        self._meter.rows_failed += len(errors)
        ids = batch.column(SOURCE_ROW)
        for row, kind, message, attempt in errors[: max(MOST_ERRORS - len(self._errors), 0)]:
            self._errors.append(error_of(column, kind, message, attempt, row=ids[row].as_py()))


def error_of(
    column: str, kind: str, message: str, attempt: int, *, row: int | None = None, partition: str | None = None
) -> dict[str, Any]:
    """Return what a function failed on, a row of the source or a partition of it, as a task tells it."""
    where = {"column": column, "row": row, "partition": partition}
    return {**where, "error_type": kind, "error_message": message, "attempt": attempt}
