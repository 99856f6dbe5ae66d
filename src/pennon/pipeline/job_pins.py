"""Pins of a job: the versions of its table that it reads, kept from being cleaned up while it runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pennon.views import pins
from pennon.views.pins import Pin

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from pennon.storage.file_io import FileIO

logger = logging.getLogger("pennon.worker")


class JobPins:
    """The pins of one job on its table."""

    def __init__(self, folder: FileIO, job: Job) -> None:
        self._folder = folder
        self._job = job
        self._held: set[int] = set()
        #: False while a worker that was lost may have left pins.
        self._is_clean = job.attempt <= 1

    def hold(self, *versions: int) -> None:
        """Pin these versions and release all others; raise ``TableVersionNotFoundError`` if one is gone."""
        for version in versions:
            if version not in self._held:
                pins.pin(self._folder, self._job.id, version, self._job.branch, "job")
                self._held.add(version)
        if not self._is_clean:
            pins.release(self._folder, self._job.id, versions, "job")
            self._is_clean = True
        self._remove(self._held.difference(versions))

    def release(self) -> None:
        """Release all versions; the worker's sweep retries what storage refuses to remove now."""
        try:
            self._remove(set(self._held))
        except Exception:
            logger.exception("could not release the pins of job %s; the pin sweep will retry", self._job.id)

    def _remove(self, versions: set[int]) -> None:
        pins.remove(self._folder, (Pin(self._job.id, version, "job") for version in sorted(versions)))
        self._held -= versions
