"""The services of a process, API or worker: built once from the settings, and passed to what uses them."""

from __future__ import annotations

from dataclasses import dataclass

from pennon.catalog import Database, open_database
from pennon.catalog.locations import has_absolute, make_relative
from pennon.catalog.schema import migrate
from pennon.columns.state import ColumnStateStore
from pennon.commits.authority import CommitAuthority
from pennon.commits.deferred_flush import DeferredFlush
from pennon.commits.history import History
from pennon.commits.ownership import Ownership
from pennon.commits.staging import ManifestLimits
from pennon.core.memory_budget import MemoryBudget
from pennon.core.settings import Settings
from pennon.jobs.queue import Queue
from pennon.jobs.worker_registry import WorkerRegistry
from pennon.storage.root import StorageRoot
from pennon.tables.datasets import Datasets
from pennon.tables.details import DetailReader
from pennon.tables.discovery import Discovery
from pennon.tables.indexes import Indexer
from pennon.tables.message_stream import ArrowLimits
from pennon.tables.query.expressions import SqlLimits
from pennon.tables.query.process_pool import QueryPool
from pennon.tables.removal import Removal
from pennon.tables.uploads import Uploads
from pennon.tables.writer import Writer


@dataclass(frozen=True)
class Services:
    """The services that operations and jobs use; a process has one of each."""

    settings: Settings
    database: Database
    storage_root: StorageRoot
    history: History
    authority: CommitAuthority
    deferred_flush: DeferredFlush
    details: DetailReader
    discovery: Discovery
    ownership: Ownership
    removal: Removal
    datasets: Datasets
    writer: Writer
    indexer: Indexer
    uploads: Uploads
    arrow_limits: ArrowLimits
    queue: Queue
    column_state_store: ColumnStateStore
    worker_registry: WorkerRegistry
    query_pool: QueryPool

    @property
    def sql_limits(self) -> SqlLimits:
        """The maximum size of SQL from callers."""
        return SqlLimits(self.settings.max_expression_bytes, self.settings.max_expression_literals)


def open_storage_root(settings: Settings) -> StorageRoot:
    """Return the storage root that the settings name, or raise an error if they are invalid."""
    return StorageRoot(
        settings.root_url,
        settings.storage_options,
        vend_credentials=settings.vend_credentials,
        allowed_locations=settings.allowed_locations,
        durable_writes=settings.durable_writes,
    )


def build_services(settings: Settings) -> Services:
    """Open the catalog, migrate its schema, and build the services on top of it."""
    storage_root = open_storage_root(settings)
    database = open_database(
        settings.database_url, pool_size=settings.database_pool_size, root=storage_root.root_location
    )
    migrate(database)
    if database.read(has_absolute):
        database.write(make_relative)  # releases before schema version 14 stored absolute locations
    ownership = Ownership(database, storage_root)
    history = History(database, storage_root, ownership)
    deferred_flush = DeferredFlush(database, storage_root, ownership)
    deferred_flush.restore()
    limits = ManifestLimits(settings.manifest_cache_bytes, settings.max_manifest_bytes)
    authority = CommitAuthority(database, storage_root, history, ownership, deferred_flush, limits)
    datasets = Datasets(
        storage_root,
        history,
        authority,
        index_cache_bytes=settings.index_cache_bytes,
        metadata_cache_bytes=settings.metadata_cache_bytes,
        handles=settings.dataset_cache_entries,
    )
    writer = Writer(database, storage_root, datasets, ownership)
    return Services(
        settings=settings,
        database=database,
        storage_root=storage_root,
        history=history,
        authority=authority,
        deferred_flush=deferred_flush,
        details=DetailReader(datasets, settings.schema_cache_entries),
        discovery=Discovery(
            database, storage_root, enabled=settings.discover_tables, seconds=settings.discovery_interval_seconds
        ),
        ownership=ownership,
        removal=Removal(database, storage_root, ownership),
        datasets=datasets,
        writer=writer,
        indexer=Indexer(database, datasets, settings.index_threads, settings.memory_limit_bytes // 4),
        uploads=Uploads(database, writer),
        arrow_limits=ArrowLimits(
            settings.max_batch_bytes, settings.max_upload_bytes, MemoryBudget(settings.batch_memory_bytes)
        ),
        queue=Queue(database, attempts=settings.max_job_takeovers),
        column_state_store=ColumnStateStore(database, storage_root, history),
        worker_registry=WorkerRegistry(database, settings.job_lease_seconds),
        query_pool=QueryPool(settings),
    )
