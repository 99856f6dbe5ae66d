"""A bar that shows how far a job is: in terminals and notebooks, and nowhere else."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from pennon.client.job import Job


class JobProgress:
    """Shows a job while it runs: rows, fragments, speed and failures."""

    def __init__(self, *, enabled: bool = True, console: Console | None = None) -> None:
        # Standard error, so that what a script prints can still be piped.
        self._console = console or Console(stderr=True)
        self._in_notebook = enabled and self._console.is_jupyter
        in_terminal = enabled and self._console.is_terminal and not self._console.is_jupyter
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not in_terminal,
        )
        self._task: TaskID = self._progress.add_task("", total=None, told="")
        self._drawn: Any = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, job: Job) -> None:
        """Show how far the job is now."""
        planned, done = rows_planned(job), rows_done(job)
        if job.state == "done":
            # A job may have had nothing to do; its bar is full all the same.
            planned = done = max(planned, 1)
        self._progress.update(
            self._task, description=_title(job), total=planned or None, completed=done, told=_told(job, self._speed())
        )
        if self._in_notebook:
            self._draw()

    def _draw(self) -> None:
        """Draw the bar into a notebook: Rich would need ipywidgets for that, which not everybody has."""
        from IPython.display import display

        bar = self._progress.make_tasks_table(self._progress.tasks)
        if self._drawn is None:
            self._drawn = display(bar, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._drawn.update(bar)

    def _speed(self) -> float | None:
        return self._progress.tasks[0].speed


def rows_planned(job: Job) -> int:
    """Return how many rows a job has to see to; 0 while that is not known."""
    return int(job.counters.get("rows_planned", 0))


def rows_done(job: Job) -> int:
    """Return how many rows a job has a result for, be it a value or an error."""
    done = int(job.counters.get("rows_computed", 0))
    return min(done, rows_planned(job) or done)


def _title(job: Job) -> str:
    what = " ".join(part for part in (job.kind, job.target) if part)
    return f"[bold]{escape(what or job.id)}[/bold] {job.state}"


def _told(job: Job, speed: float | None) -> str:
    if job.waiting_for:
        return f"waits: {escape(job.waiting_for)}"
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
