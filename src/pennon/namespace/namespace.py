"""The namespace itself: all operations, and the house they work in."""

from __future__ import annotations

import logging
from typing import Any

from lance_namespace import LanceNamespace

from pennon.catalog import dropped_locations, idempotency, open_database, transactions
from pennon.catalog.locations import has_absolute, make_relative
from pennon.catalog.schema import migrate
from pennon.columns.state import Ledger
from pennon.commits.authority import CommitAuthority
from pennon.commits.history import History
from pennon.commits.ownership import Ownership
from pennon.core.clock import now_millis
from pennon.core.memory_budget import MemoryBudget
from pennon.core.settings import Settings, load_settings
from pennon.jobs.queue import Queue
from pennon.jobs.worker_registry import Roster
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
from pennon.namespace.operations import House
from pennon.namespace.queries import QueryOperations
from pennon.namespace.rows import RowOperations
from pennon.namespace.statistics import StatisticsOperations
from pennon.namespace.tags import TagOperations
from pennon.namespace.transactions import TransactionOperations
from pennon.namespace.view_functions import ViewFunctionOperations
from pennon.storage.root import Places
from pennon.tables.datasets import Datasets
from pennon.tables.details import DetailReader
from pennon.tables.discovery import Discovery
from pennon.tables.indexes import Indexer
from pennon.tables.message_stream import ArrowLimits
from pennon.tables.query.process_pool import QueryPool
from pennon.tables.removal import Removal
from pennon.tables.uploads import Uploads
from pennon.tables.writer import Writer

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
        self.house = build_house(load_settings(**properties))

    @classmethod
    def open(cls, settings: Settings) -> PennonNamespace:
        """Open the namespace that settings describe."""
        namespace = cls.__new__(cls)
        namespace.house = build_house(settings)
        return namespace

    def namespace_id(self) -> str:
        """Return what tells this namespace from others, without its secrets."""
        return f"PennonNamespace {{ root: {self.house.places.root_location!r} }}"

    def tidy(self) -> None:
        """Do the small chores of a long-lived process: forget what is old, remove what drops left behind."""
        refusal = self.house.ownership.check()
        if refusal is not None:
            logger.error("nothing is written: %s Run `pennon doctor --adopt` to take the root over.", refusal)
            return
        oldest = now_millis() - int(self.house.settings.transaction_days * _DAY_MILLIS)
        self._write(lambda connection: transactions.forget_before(connection, oldest))
        self._write(lambda connection: dropped_locations.forget_before(connection, oldest))
        stale = now_millis() - int(self.house.settings.idempotency_hours * _DAY_MILLIS / 24)
        self._write(lambda connection: idempotency.forget_before(connection, stale))
        self.house.removal.sweep()
        self.house.uploads.sweep(stale)
        self.house.queue.sweep(now_millis() - int(self.house.settings.job_days * _DAY_MILLIS))
        self.house.roster.sweep()

    def close(self) -> None:
        """Finish what is being built, and give back the connections to the catalog."""
        self.house.query_pool.close()
        self.house.indexer.close()
        self.house.database.close()


def open_places(settings: Settings) -> Places:
    """Return where tables may be; raises what is wrong with the settings of storage."""
    return Places(
        settings.root_url,
        settings.storage_options,
        vend_credentials=settings.vend_credentials,
        allowed_locations=settings.allowed_locations,
        durable_writes=settings.durable_writes,
    )


def build_house(settings: Settings) -> House:
    """Open the catalog, bring its schema up to date, and put the parts together."""
    places = open_places(settings)
    database = open_database(settings.database_url, pool_size=settings.database_pool_size, root=places.root_location)
    migrate(database)
    if database.read(has_absolute):
        database.write(make_relative)  # what releases before schema version 14 stored
    ownership = Ownership(database, places)
    history = History(database, places, ownership)
    authority = CommitAuthority(database, places, history, ownership, settings.manifest_cache_bytes)
    datasets = Datasets(
        places,
        history,
        authority,
        index_cache_bytes=settings.index_cache_bytes,
        metadata_cache_bytes=settings.metadata_cache_bytes,
        handles=settings.dataset_handles,
    )
    writer = Writer(database, places, datasets, ownership)
    return House(
        settings=settings,
        database=database,
        places=places,
        history=history,
        authority=authority,
        details=DetailReader(datasets, settings.detail_cache_entries),
        discovery=Discovery(database, places, enabled=settings.discover, seconds=settings.discover_seconds),
        ownership=ownership,
        removal=Removal(database, places, ownership),
        datasets=datasets,
        writer=writer,
        indexer=Indexer(database, datasets, settings.index_threads),
        uploads=Uploads(database, writer),
        arrow_limits=ArrowLimits(
            settings.max_batch_bytes, settings.max_upload_bytes, MemoryBudget(settings.batch_memory_bytes)
        ),
        queue=Queue(database, attempts=settings.job_attempts),
        ledger=Ledger(database, places, history),
        roster=Roster(database, settings.job_lease_seconds),
        query_pool=QueryPool(settings),
    )
