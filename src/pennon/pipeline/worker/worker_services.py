"""The services of a worker: those of every process, and Spark sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pennon.services import Services

if TYPE_CHECKING:
    from pennon.pipeline.cluster.session import Sessions


@dataclass(frozen=True)
class WorkerServices(Services):
    """What jobs work with; a worker has one of each."""

    sessions: Sessions
