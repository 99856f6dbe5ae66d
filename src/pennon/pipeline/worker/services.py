"""What a worker works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.columns.state import ColumnStateStore
    from pennon.core.settings import Settings
    from pennon.jobs.queue import Queue
    from pennon.pipeline.cluster.session import Sessions
    from pennon.storage.root import StorageRoot
    from pennon.tables.datasets import Datasets
    from pennon.tables.writer import Writer


@dataclass
class Tools:
    """The parts of a worker, put together once."""

    settings: Settings
    database: Database
    storage_root: StorageRoot
    datasets: Datasets
    writer: Writer
    column_state_store: ColumnStateStore
    queue: Queue
    sessions: Sessions
