"""The namespace: every operation as a plain method that delegates to the operations of its noun.

Operations that only the server's endpoints call, such as uploads and blobs, are reached through their noun.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import lance_namespace as ln

from pennon.catalog import dropped_locations, idempotency, transactions
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
from pennon.namespace.models import columns as column_models
from pennon.namespace.models import inspection as inspection_models
from pennon.namespace.models import jobs as job_models
from pennon.namespace.models import lineage as lineage_models
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
        services.removal.sweep()
        services.uploads.sweep(stale)
        services.queue.sweep(now - int(settings.job_retention_days * _DAY_MILLIS))
        services.worker_registry.sweep()

    def close(self) -> None:
        """Finish the index builds that are running, and close the connections to the catalog."""
        self.services.query_pool.close()
        self.services.indexer.close()
        self.services.database.close()

    def find_table(self, identifier: Identifier) -> Table:
        """Return a table, or raise the error that names what is missing."""
        return self.resolver.table(identifier)

    # Namespaces.

    def create_namespace(self, request: ln.CreateNamespaceRequest) -> ln.CreateNamespaceResponse:
        return self.namespaces.create_namespace(request)

    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        return self.namespaces.list_namespaces(request)

    def describe_namespace(self, request: ln.DescribeNamespaceRequest) -> ln.DescribeNamespaceResponse:
        return self.namespaces.describe_namespace(request)

    def namespace_exists(self, request: ln.NamespaceExistsRequest) -> ln.NamespaceExistsResponse:
        return self.namespaces.namespace_exists(request)

    def drop_namespace(self, request: ln.DropNamespaceRequest) -> ln.DropNamespaceResponse:
        return self.namespaces.drop_namespace(request)

    # Tables.

    def list_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        return self.listings.list_tables(request)

    def list_all_tables(
        self, request: ln.ListTablesRequest, delimiter: str = DEFAULT_DELIMITER
    ) -> ln.ListTablesResponse:
        return self.listings.list_all_tables(request, delimiter)

    def describe_table(self, request: ln.DescribeTableRequest) -> ln.DescribeTableResponse:
        return self.descriptions.describe_table(request)

    def table_exists(self, request: ln.TableExistsRequest) -> ln.TableExistsResponse:
        return self.descriptions.table_exists(request)

    def declare_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        return self.tables.declare_table(request)

    def create_empty_table(  # type: ignore[override]  # its route has the fields of DeclareTable
        self, request: ln.DeclareTableRequest
    ) -> ln.DeclareTableResponse:
        return self.tables.create_empty_table(request)

    def register_table(self, request: ln.RegisterTableRequest) -> ln.RegisterTableResponse:
        return self.tables.register_table(request)

    def rename_table(self, request: ln.RenameTableRequest) -> ln.RenameTableResponse:
        return self.tables.rename_table(request)

    def drop_table(self, request: ln.DropTableRequest) -> ln.DropTableResponse:
        return self.tables.drop_table(request)

    def deregister_table(self, request: ln.DeregisterTableRequest) -> ln.DeregisterTableResponse:
        return self.tables.deregister_table(request)

    # Versions and transactions.

    def create_table_version(self, request: ln.CreateTableVersionRequest) -> ln.CreateTableVersionResponse:
        return self.versions.create_table_version(request)

    def batch_create_table_versions(
        self, request: ln.BatchCreateTableVersionsRequest
    ) -> ln.BatchCreateTableVersionsResponse:
        return self.versions.batch_create_table_versions(request)

    def list_table_versions(self, request: ln.ListTableVersionsRequest) -> ln.ListTableVersionsResponse:
        return self.versions.list_table_versions(request)

    def describe_table_version(self, request: ln.DescribeTableVersionRequest) -> ln.DescribeTableVersionResponse:
        return self.versions.describe_table_version(request)

    def batch_delete_table_versions(
        self, request: ln.BatchDeleteTableVersionsRequest
    ) -> ln.BatchDeleteTableVersionsResponse:
        return self.versions.batch_delete_table_versions(request)

    def restore_table(self, request: ln.RestoreTableRequest) -> ln.RestoreTableResponse:
        return self.versions.restore_table(request)

    def batch_commit_tables(self, request: ln.BatchCommitTablesRequest) -> ln.BatchCommitTablesResponse:
        return self.batches.batch_commit_tables(request)

    def describe_transaction(self, request: ln.DescribeTransactionRequest) -> ln.DescribeTransactionResponse:
        return self.transactions.describe_transaction(request)

    def alter_transaction(self, request: ln.AlterTransactionRequest) -> ln.AlterTransactionResponse:
        return self.transactions.alter_transaction(request)

    # Rows.

    def create_table(self, request: ln.CreateTableRequest, request_data: bytes) -> ln.CreateTableResponse:
        return self.rows.create_table(request, request_data)

    def insert_into_table(self, request: ln.InsertIntoTableRequest, request_data: bytes) -> ln.InsertIntoTableResponse:
        return self.rows.insert_into_table(request, request_data)

    def merge_insert_into_table(
        self, request: ln.MergeInsertIntoTableRequest, request_data: bytes
    ) -> ln.MergeInsertIntoTableResponse:
        return self.rows.merge_insert_into_table(request, request_data)

    def update_table(self, request: ln.UpdateTableRequest) -> ln.UpdateTableResponse:
        return self.rows.update_table(request)

    def delete_from_table(self, request: ln.DeleteFromTableRequest) -> ln.DeleteFromTableResponse:
        return self.rows.delete_from_table(request)

    def query_table(self, request: ln.QueryTableRequest) -> ln.QueryTableResponse:
        return self.queries.query_table(request)

    def count_table_rows(self, request: ln.CountTableRowsRequest) -> ln.CountTableRowsResponse:
        return self.queries.count_table_rows(request)

    def explain_table_query_plan(self, request: ln.ExplainTableQueryPlanRequest) -> str:
        return self.queries.explain_table_query_plan(request)

    def analyze_table_query_plan(self, request: ln.AnalyzeTableQueryPlanRequest) -> str:
        return self.queries.analyze_table_query_plan(request)

    # Columns.

    def alter_table_add_columns(self, request: ln.AlterTableAddColumnsRequest) -> ln.AlterTableAddColumnsResponse:
        return self.columns.alter_table_add_columns(request)

    def alter_table_alter_columns(self, request: ln.AlterTableAlterColumnsRequest) -> ln.AlterTableAlterColumnsResponse:
        return self.columns.alter_table_alter_columns(request)

    def alter_table_drop_columns(self, request: ln.AlterTableDropColumnsRequest) -> ln.AlterTableDropColumnsResponse:
        return self.columns.alter_table_drop_columns(request)

    def update_field_metadata(self, request: ln.UpdateFieldMetadataRequest) -> ln.UpdateFieldMetadataResponse:
        return self.columns.update_field_metadata(request)

    def update_table_schema_metadata(
        self, request: ln.UpdateTableSchemaMetadataRequest
    ) -> ln.UpdateTableSchemaMetadataResponse:
        return self.columns.update_table_schema_metadata(request)

    def alter_table_backfill_columns(  # type: ignore[override]  # a dry run returns a plan
        self, request: ln.AlterTableBackfillColumnsRequest
    ) -> ln.AlterTableBackfillColumnsResponse | column_models.BackfillPlan:
        return self.feature_columns.alter_table_backfill_columns(request)

    def describe_column_state(self, request: column_models.ColumnStateRequest) -> column_models.ColumnStateResponse:
        return self.feature_columns.describe_column_state(request)

    def list_column_errors(self, request: column_models.ColumnErrorsRequest) -> column_models.ColumnErrorsResponse:
        return self.feature_columns.list_column_errors(request)

    def describe_column_function(
        self, request: inspection_models.DescribeColumnFunctionRequest
    ) -> inspection_models.DescribeColumnFunctionResponse:
        return self.functions.describe_column_function(request)

    def describe_view_functions(
        self, request: inspection_models.DescribeViewFunctionsRequest
    ) -> inspection_models.DescribeViewFunctionsResponse:
        return self.functions.describe_view_functions(request)

    # Indices.

    def create_table_index(
        self, request: ln.CreateTableIndexRequest, *, replace: bool = False, more: Mapping[str, object] | None = None
    ) -> ln.CreateTableIndexResponse:
        return self.indices.create_table_index(request, replace=replace, more=more)

    def create_table_scalar_index(self, request: ln.CreateTableIndexRequest) -> ln.CreateTableScalarIndexResponse:
        return self.indices.create_table_scalar_index(request)

    def list_table_indices(self, request: ln.ListTableIndicesRequest) -> ln.ListTableIndicesResponse:
        return self.indices.list_table_indices(request)

    def describe_table_index_stats(
        self, request: ln.DescribeTableIndexStatsRequest
    ) -> ln.DescribeTableIndexStatsResponse:
        return self.indices.describe_table_index_stats(request)

    def drop_table_index(self, request: ln.DropTableIndexRequest) -> ln.DropTableIndexResponse:
        return self.indices.drop_table_index(request)

    # Tags and branches.

    def list_table_tags(self, request: ln.ListTableTagsRequest) -> ln.ListTableTagsResponse:
        return self.tags.list_table_tags(request)

    def get_table_tag_version(self, request: ln.GetTableTagVersionRequest) -> ln.GetTableTagVersionResponse:
        return self.tags.get_table_tag_version(request)

    def create_table_tag(self, request: ln.CreateTableTagRequest) -> ln.CreateTableTagResponse:
        return self.tags.create_table_tag(request)

    def update_table_tag(self, request: ln.UpdateTableTagRequest) -> ln.UpdateTableTagResponse:
        return self.tags.update_table_tag(request)

    def delete_table_tag(self, request: ln.DeleteTableTagRequest) -> ln.DeleteTableTagResponse:
        return self.tags.delete_table_tag(request)

    def list_table_branches(self, request: ln.ListTableBranchesRequest) -> ln.ListTableBranchesResponse:
        return self.branches.list_table_branches(request)

    def create_table_branch(self, request: ln.CreateTableBranchRequest) -> ln.CreateTableBranchResponse:
        return self.branches.create_table_branch(request)

    def delete_table_branch(self, request: ln.DeleteTableBranchRequest) -> ln.DeleteTableBranchResponse:
        return self.branches.delete_table_branch(request)

    # Inspection.

    def describe_caller(self, request: inspection_models.CallerRequest) -> inspection_models.DescribeCallerResponse:
        return self.inspection.describe_caller(request)

    def diff_table_versions(
        self, request: inspection_models.DiffTableVersionsRequest
    ) -> inspection_models.DiffTableVersionsResponse:
        return self.inspection.diff_table_versions(request)

    def get_table_stats(self, request: ln.GetTableStatsRequest) -> ln.GetTableStatsResponse:
        return self.inspection.get_table_stats(request)

    def list_table_fragments(
        self, request: inspection_models.ListTableFragmentsRequest
    ) -> inspection_models.ListTableFragmentsResponse:
        return self.inspection.list_table_fragments(request)

    # Materialized views.

    def create_materialized_view(
        self,
        request: ln.CreateMaterializedViewRequest | view_models.CreateViewRequest | Mapping[str, object],
        database: Identifier = ROOT,
    ) -> ln.CreateMaterializedViewResponse:
        return self.view_creation.create_materialized_view(request, database)

    def describe_materialized_view(self, request: view_models.DescribeViewRequest) -> view_models.DescribeViewResponse:
        return self.views.describe_materialized_view(request)

    def list_materialized_views(self, request: view_models.ListViewsRequest) -> view_models.ListViewsResponse:
        return self.views.list_materialized_views(request)

    def alter_materialized_view(self, request: view_models.AlterViewRequest) -> view_models.AlterViewResponse:
        return self.views.alter_materialized_view(request)

    def drop_materialized_view(self, request: view_models.DropViewRequest) -> view_models.DropViewResponse:
        return self.views.drop_materialized_view(request)

    def refresh_materialized_view(  # type: ignore[override]  # a dry run returns a plan
        self, request: ln.RefreshMaterializedViewRequest
    ) -> ln.RefreshMaterializedViewResponse | view_models.RefreshPlan:
        return self.views.refresh_materialized_view(request)

    def describe_lineage(
        self, request: lineage_models.DescribeLineageRequest
    ) -> lineage_models.DescribeLineageResponse:
        return self.lineage.describe_lineage(request)

    # Jobs.

    def list_jobs(self, request: job_models.ListJobsRequest) -> job_models.ListJobsResponse:
        return self.jobs.list_jobs(request)

    def describe_job(self, request: job_models.JobRequest) -> job_models.DescribeJobResponse:
        return self.jobs.describe_job(request)

    def cancel_job(self, request: job_models.JobRequest) -> job_models.CancelJobResponse:
        return self.jobs.cancel_job(request)

    def pause_job(self, request: job_models.JobRequest) -> job_models.PauseJobResponse:
        return self.jobs.pause_job(request)

    def resume_job(self, request: job_models.JobRequest) -> job_models.ResumeJobResponse:
        return self.jobs.resume_job(request)

    def retry_job(self, request: job_models.RetryJobRequest) -> job_models.RetryJobResponse:
        return self.jobs.retry_job(request)
