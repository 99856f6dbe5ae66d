"""The namespace itself: all operations, and the house they work in."""

from __future__ import annotations

import logging
from typing import Any

from lance_namespace import LanceNamespace

from pennon.catalog import dropped_locations, idempotency, transactions
from pennon.core.clock import now_millis
from pennon.core.settings import Settings, load_settings
from pennon.namespace.batches import BatchOperations
from pennon.namespace.branches import BranchOperations
from pennon.namespace.columns import ColumnOperations
from pennon.namespace.descriptions import DescriptionOperations
from pennon.namespace.extensions import ExtensionOperations
from pennon.namespace.feature_columns import BackfillOperations
from pennon.namespace.indices import IndexOperations
from pennon.namespace.inspection import InspectionOperations
from pennon.namespace.jobs import JobOperations
from pennon.namespace.lineage import LineageOperations
from pennon.namespace.listings import ListingOperations
from pennon.namespace.namespaces import NamespaceOperations
from pennon.namespace.queries import QueryOperations
from pennon.namespace.rows import RowOperations
from pennon.namespace.statistics import StatisticsOperations
from pennon.namespace.tags import TagOperations
from pennon.namespace.transactions import TransactionOperations
from pennon.namespace.view_functions import ViewFunctionOperations
from pennon.services import build_services

logger = logging.getLogger("pennon.namespace")

_DAY_MILLIS = 24 * 60 * 60 * 1000


class PennonNamespace(  # type: ignore[misc]  # create_empty_table takes the fields its route has, not CreateTable's
    NamespaceOperations,
    ListingOperations,
    DescriptionOperations,
    BatchOperations,
    TransactionOperations,
    ViewFunctionOperations,
    RowOperations,
    QueryOperations,
    ColumnOperations,
    IndexOperations,
    ExtensionOperations,
    InspectionOperations,
    BackfillOperations,
    LineageOperations,
    TagOperations,
    BranchOperations,
    StatisticsOperations,
    JobOperations,
    LanceNamespace,
):
    """Pennon in this process: ``lance_namespace.connect("pennon", {"directory": "data"})``.

    The properties are the settings of the server, by the same names.
    """

    def __init__(self, **properties: Any) -> None:
        self.services = build_services(load_settings(**properties))

    @classmethod
    def open(cls, settings: Settings) -> PennonNamespace:
        """Open the namespace that settings describe."""
        namespace = cls.__new__(cls)
        namespace.services = build_services(settings)
        return namespace

    def namespace_id(self) -> str:
        """Return what tells this namespace from others, without its secrets."""
        return f"PennonNamespace {{ root: {self.services.storage_root.root_location!r} }}"

    def tidy(self) -> None:
        """Do the small chores of a long-lived process: forget what is old, remove what drops left behind."""
        refusal = self.services.ownership.check()
        if refusal is not None:
            logger.error("nothing is written: %s Run `pennon doctor --adopt` to take the root over.", refusal)
            return
        oldest = now_millis() - int(self.services.settings.transaction_days * _DAY_MILLIS)
        self._write(lambda connection: transactions.forget_before(connection, oldest))
        self._write(lambda connection: dropped_locations.forget_before(connection, oldest))
        stale = now_millis() - int(self.services.settings.idempotency_hours * _DAY_MILLIS / 24)
        self._write(lambda connection: idempotency.forget_before(connection, stale))
        self.services.removal.sweep()
        self.services.uploads.sweep(stale)
        self.services.queue.sweep(now_millis() - int(self.services.settings.job_days * _DAY_MILLIS))
        self.services.worker_registry.sweep()

    def close(self) -> None:
        """Finish what is being built, and give back the connections to the catalog."""
        self.services.query_pool.close()
        self.services.indexer.close()
        self.services.database.close()
