"""A materialized view of a server: a table that is computed from others, and how it is brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from pennon.client.job import Job, submitted
from pennon.client.reports import Freshness, RefreshPlan
from pennon.client.table import Table
from pennon.client.transport import new_key
from pennon.client.view_requests import RefreshOptions, ViewOptions, option_body, refresh_body

if TYPE_CHECKING:
    from collections.abc import Sequence


class View(Table):
    """All that a table can do but be written, and what brings it up to date."""

    def __repr__(self) -> str:
        return f"<View {'$'.join(self.path)}>"

    def refresh(self, *, wait: bool = True, progress: bool = True, **options: Unpack[RefreshOptions]) -> Job:
        """Bring the view up to date, wait with a progress bar, and return the job; it raises what went wrong.

        The job's ``result`` says what was done: its mode (no_op, incremental or rebuild), why, and how many rows came,
        changed and went.

        Args:
            wait: Whether to wait for the job, or to return it at once.
            progress: Whether to show the bar.
            options: ``full`` computes the whole view; ``cascade`` refreshes the views first that this one reads;
                ``src_version`` is the version of the source to hold; ``RefreshOptions`` has them all.
        """
        body = refresh_body(options)
        answer = self._transport.post(self._view_route("refresh"), body, idempotency_key=new_key())
        job = submitted(self._transport, answer, job_type="refresh", table="$".join(self.path))
        return self.arrived(job, progress=progress) if wait else job

    def arrived(self, job: Job, *, progress: bool = True) -> Job:
        """Wait for a job that fills the view, and look at the view again."""
        job.wait(progress=progress)
        self._look_again()
        return job

    def plan(self, **options: Unpack[RefreshOptions]) -> RefreshPlan:
        """Return what a refresh would do, without doing it."""
        body = {**refresh_body(options), "dry_run": True}
        return RefreshPlan.of(self._transport.ask(self._view_route("refresh"), body))

    def freshness(self) -> Freshness:
        """Return how fresh the view is: its state, and the versions of its sources that it holds."""
        return Freshness.of(self.describe())

    def describe(self) -> dict[str, Any]:
        """Return all that the server tells of the view."""
        return self._transport.ask(self._view_route("describe"))

    def alter(self, **options: Unpack[ViewOptions]) -> None:
        """Change how the view is kept up to date; a schedule of ``None`` ends it."""
        body = option_body(options)
        if "schedule" in options:
            body["schedule"] = options["schedule"] or ""
        self._transport.post(self._view_route("alter"), body, idempotency_key=new_key())

    def drop(self, *, cascade: bool = False) -> None:
        """Drop the view and its rows; with ``cascade`` also the views over it."""
        self._transport.post(self._view_route("drop"), {"cascade": cascade}, idempotency_key=new_key())

    def _view_route(self, verb: str) -> str:
        return view_route(self.path, verb)


def view_route(path: Sequence[str], verb: str) -> str:
    """Return the address of an operation on a view."""
    return f"/v1/materialized_view/{quote('$'.join(path), safe='$')}/{verb}"
