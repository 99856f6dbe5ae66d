"""What a worker works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.core.settings import Settings
    from pennon.jobs.queue import Queue
    from pennon.lake.datasets import Datasets
    from pennon.lake.fills import Ledger
    from pennon.lake.places import Places
    from pennon.lake.writing import Writer
    from pennon.pipeline.session import Sessions


@dataclass
class Tools:
    """The parts of a worker, put together once."""

    settings: Settings
    database: Database
    places: Places
    datasets: Datasets
    writer: Writer
    ledger: Ledger
    queue: Queue
    sessions: Sessions
