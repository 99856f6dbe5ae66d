"""Materialized views of a Pennon server: tables computed from other tables, and their refresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from pennon.client.job import Job, job_from_response
from pennon.client.reports import Freshness, RefreshPlan
from pennon.client.table import Table
from pennon.client.transport import new_key, object_path
from pennon.client.view_requests import RefreshOptions, ViewOptions, option_body, refresh_body

if TYPE_CHECKING:
    from collections.abc import Sequence


class View(Table):
    """A materialized view: a read-only table with a refresh."""

    def __repr__(self) -> str:
        return f"<View {'$'.join(self.path)}>"

    def refresh(self, *, wait: bool = True, progress: bool = True, **options: Unpack[RefreshOptions]) -> Job:
        """Refresh the view, incrementally where its query allows it, wait, and return the job.

        Raises a ``JobError`` if the job fails, times out or is cancelled; the view then keeps its rows. The ``result``
        of the job has the mode (no_op, incremental or rebuild), the reason for it, and the numbers of rows added,
        updated and removed.

        Args:
            wait: Whether to wait for the job, or return it at once.
            progress: Whether to show a progress bar.
            options: ``full`` recomputes the whole view; ``cascade`` first refreshes the views that this one reads;
                ``src_version`` is the version of the source to refresh to; ``RefreshOptions`` has the full list.
        """
        body = refresh_body(options)
        response = self._transport.post(self._view_route("refresh"), body, idempotency_key=new_key())
        job = job_from_response(self._transport, response, job_type="refresh", table="$".join(self.path))
        return self.wait_for(job, progress=progress) if wait else job

    def wait_for(self, job: Job, *, progress: bool = True) -> Job:
        """Wait for a refresh of this view, and read the view's schema again."""
        job.wait(progress=progress)
        self._reload()
        return job

    def plan(self, **options: Unpack[RefreshOptions]) -> RefreshPlan:
        """Return the plan of a refresh without running it."""
        body = {**refresh_body(options), "dry_run": True}
        return RefreshPlan.of(self._transport.read(self._view_route("refresh"), body))

    def freshness(self) -> Freshness:
        """Return the freshness of the view: its state, and the versions of its sources that it holds."""
        return Freshness.of(self.describe())

    def describe(self) -> dict[str, Any]:
        """Return the server's full description of the view."""
        return self._transport.read(self._view_route("describe"))

    def alter(self, **options: Unpack[ViewOptions]) -> None:
        """Change how the view is kept up to date; ``schedule=None`` removes the schedule."""
        body = option_body(options)
        if "schedule" in options:
            body["schedule"] = options["schedule"] or ""
        self._transport.post(self._view_route("alter"), body, idempotency_key=new_key())

    def drop(self, *, cascade: bool = False) -> None:
        """Drop the view; with ``cascade`` also the views over it."""
        self._transport.post(self._view_route("drop"), {"cascade": cascade}, idempotency_key=new_key())

    def _view_route(self, verb: str) -> str:
        return view_route(self.path, verb)


def view_route(path: Sequence[str], verb: str) -> str:
    """Return the path of an operation on a view."""
    return object_path("materialized_view", path, verb)
