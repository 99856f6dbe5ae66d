"""The progress bar of a job, shown in terminals and notebooks only."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from pennon.client.job import Job


class _NotebookDisplay(Protocol):
    def update(self, shown: RenderableType) -> None: ...


class JobProgress:
    """Shows the progress of a job: rows, fragments, speed and failures."""

    def __init__(self, *, enabled: bool = True, console: Console | None = None) -> None:
        # Standard error, so that the output of a script can still be piped.
        self._console = console or Console(stderr=True)
        self._in_notebook = enabled and self._console.is_jupyter
        in_terminal = enabled and self._console.is_terminal and not self._console.is_jupyter
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not in_terminal,
        )
        self._task: TaskID = self._progress.add_task("", total=None, detail="")
        self._display: _NotebookDisplay | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, job: Job) -> None:
        """Show the current progress of the job."""
        planned, done = rows_planned(job), rows_done(job)
        if job.state == "done":
            # Also a job that had nothing to do ends with a full bar.
            planned = done = max(planned, 1)
        detail = _detail(job, self._progress.tasks[0].speed)
        self._progress.update(
            self._task,
            description=_title(job),
            total=planned or None,
            completed=done,
            detail=detail,
        )
        if self._in_notebook:
            self._draw()

    def _draw(self) -> None:
        """Draw the bar in a notebook; Rich itself would need ipywidgets, which may not be installed."""
        from IPython.display import display

        bar = self._progress.make_tasks_table(self._progress.tasks)
        if self._display is None:
            self._display = display(bar, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._display.update(bar)


def rows_planned(job: Job) -> int:
    """Return the number of rows a job has to process; 0 while it is unknown."""
    return int(job.counters.get("rows_planned", 0))


def rows_done(job: Job) -> int:
    """Return the number of rows with a result, a value or an error."""
    done = int(job.counters.get("rows_computed", 0))
    return min(done, rows_planned(job) or done)


def _title(job: Job) -> str:
    label = " ".join(part for part in (job.kind, job.target) if part)
    return f"[bold]{escape(label or job.id)}[/bold] {job.state}"


def _detail(job: Job, speed: float | None) -> str:
    if job.waiting_for:
        return f"waiting: {escape(job.waiting_for)}"
    counters = job.counters
    parts = [f"{rows_done(job):,}/{rows_planned(job):,} rows"]
    if counters.get("fragments_planned"):
        committed, planned = counters.get("fragments_committed", 0), counters["fragments_planned"]
        parts.append(f"{committed:,.0f}/{planned:,.0f} fragments")
    if speed:
        parts.append(f"{speed:,.0f} rows/s")
    if counters.get("rows_failed"):
        parts.append(f"[red]{counters['rows_failed']:,.0f} failed[/red]")
    return " · ".join(parts)
