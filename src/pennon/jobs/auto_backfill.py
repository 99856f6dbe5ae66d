"""Jobs that follow commits by themselves: backfills of columns that were added with ``auto_backfill``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import jobs, tables, versions
from pennon.catalog.jobs import DONE, ENDED
from pennon.columns.dependencies import columns_filled, unfilled_before
from pennon.columns.feature_columns import FeatureColumn, feature_columns, find_feature_column
from pennon.columns.plan import summarise
from pennon.core.clock import now_millis
from pennon.jobs.rate_limit import is_ready

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.columns.state import ColumnStateStore
    from pennon.core.settings import Settings
    from pennon.jobs.queue import Queue
    from pennon.tables.datasets import Datasets

logger = logging.getLogger("pennon.worker")

SUBMITTER = "auto_backfill"
#: A worker that starts looks back so far for commits that nobody followed.
_LOOK_BACK_MILLIS = 24 * 60 * 60 * 1000
#: Clocks of hosts differ, and a commit is recorded a little after its time: so much is looked at again.
_OVERLAP_MILLIS = 30_000


class Trigger(Protocol):
    """Submits the jobs that something calls for."""

    def tick(self) -> None:
        """Look for what has come up since the last time."""


class Triggers:
    """Several triggers, none of which keeps the others from what they do."""

    def __init__(self, *triggers: Trigger) -> None:
        self._triggers = triggers

    def tick(self) -> None:
        """Let each look for what has come up."""
        for trigger in self._triggers:
            try:
                trigger.tick()
            except Exception:
                logger.exception("%s failed; it is tried again", type(trigger).__name__)


class AutoBackfill:
    """Looks at what was committed, and submits the jobs that it calls for."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        datasets: Datasets,
        column_state_store: ColumnStateStore,
        queue: Queue,
        clock: Callable[[], int] = now_millis,
    ) -> None:
        self._settings = settings
        self._database = database
        self._datasets = datasets
        self._column_state_store = column_state_store
        self._queue = queue
        self._now = clock
        self._since = clock() - _LOOK_BACK_MILLIS
        self._settled: dict[tuple[str, str], int] = {}

    def tick(self) -> None:
        """Look at the tables that changed since the last time."""
        now = self._now()
        changed = self._database.read(lambda connection: versions.changed_since(connection, self._since))
        waiting = []
        for table_id, branch, version, created_at in changed:
            if self._settled.get((table_id, branch), 0) >= version:
                continue
            if self._look_at(table_id, branch):
                self._settled[table_id, branch] = version
            else:
                waiting.append(created_at)
        self._since = min([*waiting, now]) - _OVERLAP_MILLIS
        recent = {(table_id, branch) for table_id, branch, _, _ in changed}
        self._settled = {key: version for key, version in self._settled.items() if key in recent}

    def _look_at(self, table_id: str, branch: str) -> bool:
        """Submit what a table calls for; false when it has to wait."""
        table = self._database.read(lambda connection: tables.find_by_id(connection, table_id))
        if table is None:
            return True
        try:
            dataset = self._datasets.at(table, branch, None)
            outcomes = [self._follow(table, branch, dataset, name) for name in feature_columns(dataset.schema)]
        except LanceNamespaceError as error:
            logger.info("no automatic backfill of %s: %s", table.identifier, error)
            return True
        except Exception:  # one whose storage is out of order hinders no other
            logger.exception("no automatic backfill of %s for now", table.identifier)
            return False
        return all(outcomes)

    def _follow(self, table: Table, branch: str, dataset: Any, name: str) -> bool:
        """Submit what a column calls for; false when it has to wait. One that cannot be filled hinders no other."""
        try:
            column = find_feature_column(dataset, name)
            if not column.auto_backfill or self._unfilled(table, branch, column) < self._settings.auto_backfill_rows:
                return True
            return self._submit(table, branch, column)
        except LanceNamespaceError as error:
            logger.info("no automatic backfill of %s of %s: %s", name, table.identifier, error)
            return True

    def _unfilled(self, table: Table, branch: str, column: FeatureColumn) -> int:
        dataset = self._datasets.at(table, branch, None)
        return summarise(dataset, self._column_state_store.read(dataset, table, branch, column), column).unfilled

    def _submit(self, table: Table, branch: str, column: FeatureColumn) -> bool:
        """Submit a backfill unless one is under way or was just now; false when it has to wait."""
        dataset = self._datasets.at(table, branch, None)
        before = unfilled_before(dataset, column, lambda upstream: self._unfilled(table, branch, upstream))
        names = [unfilled.name for unfilled in before]
        spec = {
            "column": column.path,
            "columns": columns_filled(dataset, [*names, column.path]),
            "mode": "default",
            "since": dataset.version,
            "before": names,
        }

        def work(connection: Connection) -> bool:
            if any(_gave_up(connection, table, branch, output.path, dataset.version) for output in column.outputs):
                return True
            seconds = self._settings.auto_backfill_seconds
            if not is_ready(connection, table.id, branch, column.path, now=self._now(), seconds=seconds):
                return False
            self._queue.submit(
                connection,
                kind="backfill",
                table_id=table.id,
                branch=branch,
                target=column.path,
                object=table.identifier,
                spec=spec,
                submitted_by=SUBMITTER,
                context={},
            )
            logger.info("an automatic backfill of %s follows", column.path)
            return True  # whether it brings all is seen after its commits

        return self._database.write(work)


def _gave_up(connection: Connection, table: Table, branch: str, target: str, version: int) -> bool:
    """Tell whether an automatic job, of whichever worker, failed or was cancelled for this very version."""
    last = jobs.newest(connection, table.id, branch, target)
    if last is None or last.submitted_by != SUBMITTER or last.state not in ENDED - {DONE}:
        return False
    return bool(last.spec["since"] == version)
