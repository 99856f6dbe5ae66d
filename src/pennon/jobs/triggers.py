"""Triggers: they submit jobs without a request of a user, and run once per second in every worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol

from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import jobs, tables
from pennon.core.clock import now_millis
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import TERMINAL, JobState

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.jobs import Job
    from pennon.catalog.tables import Table
    from pennon.columns.state import ColumnStateStore
    from pennon.core.settings import Settings
    from pennon.jobs.queue import Queue
    from pennon.tables.datasets import Datasets

logger = logging.getLogger("pennon.worker")


class Trigger(Protocol):
    """Submits jobs when they are due."""

    def tick(self) -> None:
        """Submit the jobs that have become due since the last call."""


class Triggers:
    """Several triggers; an error in one does not stop the others."""

    def __init__(self, *triggers: Trigger) -> None:
        self._triggers = triggers

    def tick(self) -> None:
        """Run every trigger."""
        for trigger in self._triggers:
            try:
                trigger.tick()
            except Exception:
                logger.exception("%s failed and will be retried", type(trigger).__name__)


class TriggerServices(Protocol):
    """The services that automatic jobs need."""

    @property
    def settings(self) -> Settings:
        """The settings."""

    @property
    def database(self) -> Database:
        """The catalog."""

    @property
    def datasets(self) -> Datasets:
        """The tables."""

    @property
    def column_state_store(self) -> ColumnStateStore:
        """The state of feature columns."""

    @property
    def queue(self) -> Queue:
        """The job queue."""


class AutomaticJobs:
    """The part that is common to triggers that check one table after another."""

    #: What the jobs do, for the log.
    action: ClassVar[str]

    def __init__(self, services: TriggerServices, clock: Callable[[], int] = now_millis) -> None:
        self._settings = services.settings
        self._database = services.database
        self._datasets = services.datasets
        self._queue = services.queue
        self._now = clock

    def _table(self, table_id: str) -> Table | None:
        return self._database.read(lambda connection: tables.find_by_id(connection, table_id))

    def _checked(self, table: Table, check: Callable[[], bool]) -> bool:
        """Return whether a check of a table is finished. An error in one table does not affect the others."""
        try:
            return check()
        except LanceNamespaceError as error:
            logger.info("no automatic %s of %s: %s", self.action, format_identifier(table.identifier), error)
            return True
        except Exception:  # such as an error of its storage
            logger.exception("no automatic %s of %s for now", self.action, format_identifier(table.identifier))
            return False

    def _is_ready(self, connection: Connection, table: Table, branch: str, target: str, *, cooldown: float) -> bool:
        """Return whether a target has no active job, and none was submitted during the cooldown, in seconds."""
        active = jobs.active_on(connection, table.id)
        if any(job.branch == branch and target in job.columns for job in active):
            return False
        last = jobs.newest(connection, table.id, branch, target)
        return last is None or self._now() - last.created_at >= cooldown * 1000


def is_unsuccessful(job: Job) -> bool:
    """Return whether a job has ended without doing its work."""
    return job.state in TERMINAL - {JobState.DONE}
