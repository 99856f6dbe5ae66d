"""Automatic backfills: they follow commits to tables with columns that were added with ``auto_backfill``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import jobs, versions
from pennon.columns.dependencies import columns_computed_together, find_incomplete_inputs
from pennon.columns.feature_columns import FeatureColumn, feature_columns, find_feature_column
from pennon.columns.plan import summarize_column
from pennon.core.clock import now_millis
from pennon.core.job_model import BackfillSpec, JobKind
from pennon.jobs.triggers import AutomaticJobs, TriggerServices, is_unsuccessful

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table

logger = logging.getLogger("pennon.worker")

SUBMITTER = "auto_backfill"
#: How far back a worker that starts looks for commits that no worker has followed.
_LOOK_BACK_MILLIS = 24 * 60 * 60 * 1000
#: Clocks of hosts differ, and a commit is recorded shortly after its time, so consecutive checks overlap.
_OVERLAP_MILLIS = 30_000


class AutoBackfill(AutomaticJobs):
    """Submits backfills of tables that were committed to."""

    action = "backfill"

    def __init__(self, services: TriggerServices, clock: Callable[[], int] = now_millis) -> None:
        super().__init__(services, clock)
        self._column_state_store = services.column_state_store
        self._since = clock() - _LOOK_BACK_MILLIS
        #: The version up to which each branch of a table was checked.
        self._checked_versions: dict[tuple[str, str], int] = {}

    def tick(self) -> None:
        """Check the tables that have changed since the last call."""
        now = self._now()
        changed = self._database.read(lambda connection: versions.changed_since(connection, self._since))
        waiting = []
        for table_id, branch, version, created_at in changed:
            if self._checked_versions.get((table_id, branch), 0) >= version:
                continue
            table = self._table(table_id)
            if table is None or self._checked(table, partial(self._check, table, branch)):
                self._checked_versions[table_id, branch] = version
            else:
                waiting.append(created_at)
        self._since = min([*waiting, now]) - _OVERLAP_MILLIS
        recent = {(table_id, branch) for table_id, branch, _, _ in changed}
        self._checked_versions = {key: version for key, version in self._checked_versions.items() if key in recent}

    def _check(self, table: Table, branch: str) -> bool:
        """Submit the backfills of a table that are due; false if one has to wait."""
        dataset = self._datasets.at(table, branch, None)
        outcomes = [self._check_column(table, branch, dataset, name) for name in feature_columns(dataset.schema)]
        return all(outcomes)

    def _check_column(self, table: Table, branch: str, dataset: LanceDataset, name: str) -> bool:
        """Submit the backfill of a column if it is due; false if it has to wait."""
        try:
            column = find_feature_column(dataset, name)
            if (
                not column.auto_backfill
                or self._unfilled(table, branch, column) < self._settings.auto_backfill_min_rows
            ):
                return True
            return self._submit(table, branch, column)
        except LanceNamespaceError as error:  # one column that cannot be filled does not affect the others
            logger.info("no automatic backfill of %s of %s: %s", name, table.identifier, error)
            return True

    def _unfilled(self, table: Table, branch: str, column: FeatureColumn) -> int:
        dataset = self._datasets.at(table, branch, None)
        return summarize_column(
            dataset, self._column_state_store.read(dataset, table, branch, column), column
        ).incomplete

    def _submit(self, table: Table, branch: str, column: FeatureColumn) -> bool:
        """Submit a backfill unless one is active or was submitted recently; false if it has to wait."""
        dataset = self._datasets.at(table, branch, None)
        before = find_incomplete_inputs(dataset, column, lambda upstream: self._unfilled(table, branch, upstream))
        names = [unfilled.name for unfilled in before]
        spec = BackfillSpec(
            column=column.path,
            columns=columns_computed_together(dataset, [*names, column.path]),
            mode="default",
            since=dataset.version,
            before=names,
        )

        def work(connection: Connection) -> bool:
            if any(_has_failed(connection, table, branch, output.path, dataset.version) for output in column.outputs):
                return True
            cooldown = self._settings.auto_backfill_every_seconds
            if not self._is_ready(connection, table, branch, column.path, cooldown=cooldown):
                return False
            self._queue.submit(
                connection,
                JobKind.BACKFILL,
                table,
                spec,
                branch=branch,
                target=column.path,
                submitted_by=SUBMITTER,
            )
            logger.info("submitted an automatic backfill of %s", column.path)
            return True  # the commits of the job trigger the next check

        return self._database.write(work)


def _has_failed(connection: Connection, table: Table, branch: str, target: str, version: int) -> bool:
    """Return whether an automatic backfill, from any worker, has failed or was cancelled for this version."""
    last = jobs.newest(connection, table.id, branch, target)
    if last is None or last.submitted_by != SUBMITTER or not is_unsuccessful(last):
        return False
    return last.backfill_spec["since"] == version
