"""The namespace: every operation as a plain method that delegates to the operations of its noun.

Operations that only the server's endpoints call, such as uploads and blobs, are reached through their noun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import lance_namespace as ln

from pennon.catalog import changes, dropped_locations, idempotency, transactions
from pennon.core.clock import now_millis
from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier
from pennon.core.settings import Settings, load_settings
from pennon.namespace.batches import BatchOperations
from pennon.namespace.blobs import BlobOperations
from pennon.namespace.branches import BranchOperations
from pennon.namespace.clones import CloneOperations
from pennon.namespace.columns import ColumnOperations
from pennon.namespace.dependents import Dependents
from pennon.namespace.descriptions import DescriptionOperations
from pennon.namespace.feature_columns import FeatureColumnOperations
from pennon.namespace.functions import FunctionOperations
from pennon.namespace.indices import IndexOperations
from pennon.namespace.inspection import InspectionOperations
from pennon.namespace.jobs import JobOperations
from pennon.namespace.lineage import LineageOperations
from pennon.namespace.listings import ListingOperations
from pennon.namespace.maintenance import MaintenanceOperations
from pennon.namespace.maintenance_policies import MaintenancePolicyOperations
from pennon.namespace.models import columns as column_models
from pennon.namespace.models import views as view_models
from pennon.namespace.namespaces import NamespaceOperations
from pennon.namespace.new_tables import NewTables
from pennon.namespace.queries import QueryOperations
from pennon.namespace.resolver import TableResolver
from pennon.namespace.rows import RowOperations
from pennon.namespace.tables import TableOperations
from pennon.namespace.tags import TagOperations
from pennon.namespace.transactions import TransactionOperations
from pennon.namespace.uploads import UploadOperations
from pennon.namespace.versions import VersionOperations
from pennon.namespace.view_creation import ViewCreation
from pennon.namespace.views import ViewOperations
from pennon.services import build_services

if TYPE_CHECKING:
    from pennon.catalog.tables import Table

logger = logging.getLogger("pennon.namespace")

_HOUR_MILLIS = 60 * 60 * 1000
_DAY_MILLIS = 24 * _HOUR_MILLIS


Params = ParamSpec("Params")
Result_co = TypeVar("Result_co", covariant=True)


def _delegate(
    noun: str, method: Callable[Concatenate[Any, Params], Result_co]
) -> Callable[Concatenate[Any, Params], Result_co]:
    """Return a method of the namespace that calls a method of the operations of a noun."""
    name = method.__name__

    @wraps(method)
    def call(self: Any, /, *args: Params.args, **kwargs: Params.kwargs) -> Result_co:
        result: Result_co = getattr(getattr(self, noun), name)(*args, **kwargs)
        return result

    return call


class PennonNamespace(ln.LanceNamespace):
    """Pennon in this process: ``lance_namespace.connect("pennon", {"directory": "data"})``.

    The properties are the settings of the server, by the same names.
    """

    def __init__(self, settings: Settings | None = None, **properties: Any) -> None:
        services = build_services(load_settings(**properties) if settings is None else settings)
        resolver = TableResolver(services)
        dependents = Dependents(services)
        new_tables = NewTables(services, resolver)
        self.services = services
        self.resolver = resolver
        self.namespaces = NamespaceOperations(services, resolver, dependents)
        self.listings = ListingOperations(services, resolver)
        self.descriptions = DescriptionOperations(services, resolver)
        self.tables = TableOperations(services, resolver, dependents, new_tables)
        self.versions = VersionOperations(services, resolver)
        self.batches = BatchOperations(services, resolver, self.tables, new_tables, self.versions)
        self.transactions = TransactionOperations(services)
        self.rows = RowOperations(services, resolver, dependents, new_tables)
        self.queries = QueryOperations(services, resolver)
        self.columns = ColumnOperations(services, resolver, dependents)
        self.feature_columns = FeatureColumnOperations(services, resolver)
        self.functions = FunctionOperations(services, resolver)
        self.indices = IndexOperations(services, resolver)
        self.tags = TagOperations(services, resolver)
        self.branches = BranchOperations(services, resolver)
        self.inspection = InspectionOperations(services, resolver)
        self.view_creation = ViewCreation(services, resolver, dependents, new_tables)
        self.views = ViewOperations(services, resolver, self.tables, self.view_creation)
        self.lineage = LineageOperations(services, resolver)
        self.jobs = JobOperations(services)
        self.maintenance_policies = MaintenancePolicyOperations(services, resolver)
        self.maintenance = MaintenanceOperations(services, resolver, self.maintenance_policies)
        self.clones = CloneOperations(services, resolver, new_tables)
        self.uploads = UploadOperations(services, resolver, dependents)
        self.blobs = BlobOperations(services, resolver)

    def namespace_id(self) -> str:
        """Return a name that identifies this namespace and holds no secrets."""
        return f"PennonNamespace {{ root: {self.services.storage_root.root_location!r} }}"

    def maintain(self) -> None:
        """Do the periodic maintenance of a long-lived process: expire old records, remove files of dropped tables."""
        refusal = self.services.ownership.check()
        if refusal is not None:
            logger.error("skipped maintenance: %s Run `pennon doctor --adopt` to take the root over.", refusal)
            return
        services, settings, now = self.services, self.services.settings, now_millis()
        oldest = now - int(settings.transaction_retention_days * _DAY_MILLIS)
        services.database.write(lambda connection: transactions.delete_before(connection, oldest))
        services.database.write(lambda connection: dropped_locations.delete_before(connection, oldest))
        stale = now - int(settings.idempotency_retention_hours * _HOUR_MILLIS)
        services.database.write(lambda connection: idempotency.delete_before(connection, stale))
        services.database.write(lambda connection: changes.prune(connection, services.database.dialect))
        services.removal.sweep()
        services.uploads.sweep(stale)
        services.queue.sweep(now - int(settings.job_retention_days * _DAY_MILLIS))
        services.worker_registry.sweep()

    def close(self) -> None:
        """Finish the index builds that are running, and close the connections to the catalog."""
        self.services.query_pool.close()
        self.services.indexer.close()
        self.services.deferred_flush.close()
        self.services.database.close()

    def find_table(self, identifier: Identifier) -> Table:
        """Return a table, or raise the error that names what is missing."""
        return self.resolver.table(identifier)

    # Namespaces.

    create_namespace = _delegate("namespaces", NamespaceOperations.create_namespace)
    list_namespaces = _delegate("namespaces", NamespaceOperations.list_namespaces)
    describe_namespace = _delegate("namespaces", NamespaceOperations.describe_namespace)
    namespace_exists = _delegate("namespaces", NamespaceOperations.namespace_exists)
    drop_namespace = _delegate("namespaces", NamespaceOperations.drop_namespace)

    # Tables.

    list_tables = _delegate("listings", ListingOperations.list_tables)

    def list_all_tables(
        self, request: ln.ListTablesRequest, delimiter: str = DEFAULT_DELIMITER
    ) -> ln.ListTablesResponse:
        return self.listings.list_all_tables(request, delimiter)

    describe_table = _delegate("descriptions", DescriptionOperations.describe_table)
    table_exists = _delegate("descriptions", DescriptionOperations.table_exists)
    declare_table = _delegate("tables", TableOperations.declare_table)

    def create_empty_table(  # type: ignore[override]  # its route has the fields of DeclareTable
        self, request: ln.DeclareTableRequest
    ) -> ln.DeclareTableResponse:
        return self.tables.create_empty_table(request)

    register_table = _delegate("tables", TableOperations.register_table)
    rename_table = _delegate("tables", TableOperations.rename_table)
    drop_table = _delegate("tables", TableOperations.drop_table)
    deregister_table = _delegate("tables", TableOperations.deregister_table)

    # Versions and transactions.

    create_table_version = _delegate("versions", VersionOperations.create_table_version)
    batch_create_table_versions = _delegate("versions", VersionOperations.batch_create_table_versions)
    list_table_versions = _delegate("versions", VersionOperations.list_table_versions)
    describe_table_version = _delegate("versions", VersionOperations.describe_table_version)
    batch_delete_table_versions = _delegate("versions", VersionOperations.batch_delete_table_versions)
    restore_table = _delegate("versions", VersionOperations.restore_table)
    batch_commit_tables = _delegate("batches", BatchOperations.batch_commit_tables)
    describe_transaction = _delegate("transactions", TransactionOperations.describe_transaction)
    alter_transaction = _delegate("transactions", TransactionOperations.alter_transaction)

    # Rows.

    create_table = _delegate("rows", RowOperations.create_table)
    insert_into_table = _delegate("rows", RowOperations.insert_into_table)
    merge_insert_into_table = _delegate("rows", RowOperations.merge_insert_into_table)
    update_table = _delegate("rows", RowOperations.update_table)
    delete_from_table = _delegate("rows", RowOperations.delete_from_table)
    query_table = _delegate("queries", QueryOperations.query_table)
    count_table_rows = _delegate("queries", QueryOperations.count_table_rows)
    explain_table_query_plan = _delegate("queries", QueryOperations.explain_table_query_plan)
    analyze_table_query_plan = _delegate("queries", QueryOperations.analyze_table_query_plan)

    # Columns.

    alter_table_add_columns = _delegate("columns", ColumnOperations.alter_table_add_columns)
    alter_table_alter_columns = _delegate("columns", ColumnOperations.alter_table_alter_columns)
    alter_table_drop_columns = _delegate("columns", ColumnOperations.alter_table_drop_columns)
    update_field_metadata = _delegate("columns", ColumnOperations.update_field_metadata)
    update_table_schema_metadata = _delegate("columns", ColumnOperations.update_table_schema_metadata)

    def alter_table_backfill_columns(  # type: ignore[override]  # a dry run returns a plan
        self, request: ln.AlterTableBackfillColumnsRequest
    ) -> ln.AlterTableBackfillColumnsResponse | column_models.BackfillPlan:
        return self.feature_columns.alter_table_backfill_columns(request)

    describe_column_state = _delegate("feature_columns", FeatureColumnOperations.describe_column_state)
    list_column_errors = _delegate("feature_columns", FeatureColumnOperations.list_column_errors)
    describe_column_function = _delegate("functions", FunctionOperations.describe_column_function)
    describe_view_functions = _delegate("functions", FunctionOperations.describe_view_functions)

    # Indices.

    def create_table_index(
        self, request: ln.CreateTableIndexRequest, *, replace: bool = False, more: Mapping[str, object] | None = None
    ) -> ln.CreateTableIndexResponse:
        return self.indices.create_table_index(request, replace=replace, more=more)

    create_table_scalar_index = _delegate("indices", IndexOperations.create_table_scalar_index)
    list_table_indices = _delegate("indices", IndexOperations.list_table_indices)
    describe_table_index_stats = _delegate("indices", IndexOperations.describe_table_index_stats)
    drop_table_index = _delegate("indices", IndexOperations.drop_table_index)

    # Tags and branches.

    list_table_tags = _delegate("tags", TagOperations.list_table_tags)
    get_table_tag_version = _delegate("tags", TagOperations.get_table_tag_version)
    create_table_tag = _delegate("tags", TagOperations.create_table_tag)
    update_table_tag = _delegate("tags", TagOperations.update_table_tag)
    delete_table_tag = _delegate("tags", TagOperations.delete_table_tag)
    list_table_branches = _delegate("branches", BranchOperations.list_table_branches)
    create_table_branch = _delegate("branches", BranchOperations.create_table_branch)
    delete_table_branch = _delegate("branches", BranchOperations.delete_table_branch)

    # Inspection.

    describe_caller = _delegate("inspection", InspectionOperations.describe_caller)
    diff_table_versions = _delegate("inspection", InspectionOperations.diff_table_versions)
    get_table_stats = _delegate("inspection", InspectionOperations.get_table_stats)
    list_table_fragments = _delegate("inspection", InspectionOperations.list_table_fragments)

    # Materialized views.

    def create_materialized_view(
        self,
        request: ln.CreateMaterializedViewRequest | view_models.CreateViewRequest | Mapping[str, object],
        database: Identifier = ROOT,
    ) -> ln.CreateMaterializedViewResponse:
        return self.view_creation.create_materialized_view(request, database)

    describe_materialized_view = _delegate("views", ViewOperations.describe_materialized_view)
    list_materialized_views = _delegate("views", ViewOperations.list_materialized_views)
    alter_materialized_view = _delegate("views", ViewOperations.alter_materialized_view)
    drop_materialized_view = _delegate("views", ViewOperations.drop_materialized_view)

    def refresh_materialized_view(  # type: ignore[override]  # a dry run returns a plan
        self, request: ln.RefreshMaterializedViewRequest
    ) -> ln.RefreshMaterializedViewResponse | view_models.RefreshPlan:
        return self.views.refresh_materialized_view(request)

    describe_lineage = _delegate("lineage", LineageOperations.describe_lineage)

    # Jobs.

    list_jobs = _delegate("jobs", JobOperations.list_jobs)
    describe_job = _delegate("jobs", JobOperations.describe_job)
    cancel_job = _delegate("jobs", JobOperations.cancel_job)
    pause_job = _delegate("jobs", JobOperations.pause_job)
    resume_job = _delegate("jobs", JobOperations.resume_job)
    retry_job = _delegate("jobs", JobOperations.retry_job)

    # Maintenance.

    describe_table_health = _delegate("maintenance", MaintenanceOperations.describe_table_health)
    list_table_health = _delegate("maintenance", MaintenanceOperations.list_table_health)
    maintain_table = _delegate("maintenance", MaintenanceOperations.maintain_table)
    describe_version_retention = _delegate("maintenance", MaintenanceOperations.describe_version_retention)
    describe_maintenance_policy = _delegate(
        "maintenance_policies", MaintenancePolicyOperations.describe_maintenance_policy
    )
    alter_maintenance_policy = _delegate("maintenance_policies", MaintenancePolicyOperations.alter_maintenance_policy)
    describe_namespace_maintenance_policy = _delegate(
        "maintenance_policies", MaintenancePolicyOperations.describe_namespace_maintenance_policy
    )
    alter_namespace_maintenance_policy = _delegate(
        "maintenance_policies", MaintenancePolicyOperations.alter_namespace_maintenance_policy
    )
