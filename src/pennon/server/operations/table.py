"""The table of operations: the only place that knows which operations the server offers, to whom, and how.

Routes, authorization, dispatch, metrics, the OpenAPI document and the reference page are made from its rows.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import lance_namespace as ln

from pennon.namespace.models import columns as column_models
from pennon.namespace.models import dependents as dependent_models
from pennon.namespace.models import extensions as extension_models
from pennon.namespace.models import inspection as inspection_models
from pennon.namespace.models import jobs as job_models
from pennon.namespace.models import lineage as lineage_models
from pennon.namespace.models import maintenance as maintenance_models
from pennon.namespace.models import views as view_models
from pennon.server.endpoints import catalog, columns, data, extensions, jobs, maintenance, views
from pennon.server.lancedb_compat import (
    JobScope,
    RootListing,
    TableCreation,
    TableDescription,
    TableListing,
    TableRename,
)
from pennon.server.operations.model import (
    FILTERED,
    READ_NAMESPACE,
    READ_TABLE,
    WRITE_BATCH,
    WRITE_BOTH_NAMES,
    WRITE_ENTRIES,
    WRITE_JOB,
    WRITE_NAMESPACE,
    WRITE_TABLE,
    WRITE_TRANSACTION,
    Alternative,
    Operation,
    Permission,
)

if TYPE_CHECKING:
    from types import ModuleType

    from pennon.server.request import Endpoint, RequestContext

_PAGED = ("page_token", "limit")
_NS, _T = "/v1/namespace/{id}", "/v1/table/{id}"
_CREATED_VIEW = ln.CreateMaterializedViewResponse


def _row(op: str, path: str, permission: Permission, summary: str, *, noun: str = "", **more: Any) -> Operation:
    """Make a row.

    Without an endpoint, the method of the operation's name gets the parsed request: that of the namespace, or of the
    operations on a noun.
    """
    if "endpoint" not in more:
        method = "".join(f"_{c.lower()}" if c.isupper() else c for c in op).lstrip("_")
        more["endpoint"] = _call_method(f"{noun}.{method}" if noun else method)
        more["parse_first"] = True
    more.setdefault("request", getattr(ln, f"{op}Request", None))
    more.setdefault("response", getattr(ln, f"{op}Response", None))
    return Operation(op, more.pop("method", "POST"), path, permission, summary, **more)


def _call_method(name: str) -> Endpoint:
    find = attrgetter(name)

    def endpoint(context: RequestContext) -> object:
        return find(context.namespace)(context.model)

    return endpoint


def _namespace(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    return _row(op, f"{_NS}/{verb}", permission, summary, **{"tag": "Namespace", **more})


def _table(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    return _row(op, f"{_T}/{verb}", permission, summary, **more)


def _data(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    """Make the row of an operation that reads or writes the data of a table."""
    return _table(op, verb, permission, summary, **{"data_pool": True, **more})


def _view(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    """Make the row of an operation on materialized views."""
    path = f"/v1/materialized_view/{{id}}/{verb}"
    return _row(op, path, permission, summary, **{"tag": "MaterializedView", **more})


def _models(module: ModuleType, name: str, tag: str = "Extension") -> dict[str, Any]:
    """Return the attributes of an operation beyond the specification: its models, and where it is documented."""
    request, response = (getattr(module, f"{name}{kind}", None) for kind in ("Request", "Response"))
    return {"request": request, "response": response, "tag": tag, "in_spec": False}


def _extension(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    """Make the row of an operation that LanceDB's client sends and the specification does not have."""
    return _data(op, verb, permission, summary, **{**_models(extension_models, op), **more})


def _job(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    """Make the row of an operation on jobs, by the routes of LanceDB's client."""
    models = _models(job_models, op, "Job")
    models["request"] = models["request"] or job_models.JobRequest
    return _row(op, f"/v1/jobs/{verb}", permission, summary, **{**models, "lancedb": JobScope(), **more})


_NAMESPACES: tuple[Operation, ...] = (
    _namespace("CreateNamespace", "create", WRITE_NAMESPACE, "Create a namespace."),
    _namespace(
        "ListNamespaces", "list", FILTERED, "List child namespaces.", method="GET", query=_PAGED, catalog_only=True
    ),
    _namespace("DescribeNamespace", "describe", READ_NAMESPACE, "Describe a namespace.", catalog_only=True),
    _namespace("DropNamespace", "drop", WRITE_NAMESPACE, "Drop a namespace.", request=dependent_models.DropNamespace),
    _namespace(
        "NamespaceExists",
        "exists",
        READ_NAMESPACE,
        "Check whether a namespace exists.",
        response=None,
        catalog_only=True,
    ),
    _namespace(
        "ListTables",
        "table/list",
        FILTERED,
        "List the tables of a namespace.",
        method="GET",
        query=(*_PAGED, "include_declared"),
        catalog_only=True,
        has_feature_header=True,
        lancedb=TableListing(),
    ),
)

_TABLES: tuple[Operation, ...] = (
    _row(
        "ListAllTables",
        "/v1/table",
        FILTERED,
        "List the tables of all namespaces.",
        method="GET",
        endpoint=catalog.list_all_tables,
        parse_first=True,
        request=ln.ListTablesRequest,
        response=ln.ListTablesResponse,
        query=(*_PAGED, "include_declared"),
        catalog_only=True,
        has_feature_header=True,
        lancedb=RootListing(),
    ),
    _table("RegisterTable", "register", WRITE_TABLE, "Register a table that exists on storage."),
    _table(
        "DescribeTable",
        "describe",
        READ_TABLE,
        "Describe a table.",
        response=maintenance_models.DescribedTable,
        query=("with_table_uri", "load_detailed_metadata", "check_declared"),
        catalog_only=True,
        cacheable=True,
        has_feature_header=True,
        lancedb=TableDescription(),
    ),
    _table(
        "TableExists",
        "exists",
        READ_TABLE,
        "Check whether a table exists.",
        response=None,
        catalog_only=True,
        cacheable=True,
    ),
    _table("DropTable", "drop", WRITE_TABLE, "Drop a table and delete its data.", request=dependent_models.DropTable),
    _table("DeregisterTable", "deregister", WRITE_TABLE, "Remove a table from the catalog and keep its data."),
    _table("RenameTable", "rename", WRITE_BOTH_NAMES, "Rename or move a table.", lancedb=TableRename()),
    _table("DeclareTable", "declare", WRITE_TABLE, "Declare a table without writing to storage."),
    _table(
        "CreateEmptyTable",
        "create-empty",
        WRITE_TABLE,
        "Declare a table (deprecated route).",
        request=ln.DeclareTableRequest,
        response=ln.DeclareTableResponse,
    ),
    _table(
        "ListTableVersions",
        "version/list",
        READ_TABLE,
        "List the versions of a table.",
        query=(*_PAGED, "descending", "branch"),
    ),
    _table("CreateTableVersion", "version/create", WRITE_TABLE, "Commit a version whose manifest is staged."),
    _table("DescribeTableVersion", "version/describe", READ_TABLE, "Describe a version.", catalog_only=True),
    _table("BatchDeleteTableVersions", "version/delete", WRITE_TABLE, "Delete ranges of versions."),
    _row(
        "BatchCreateTableVersions",
        "/v1/table/version/batch-create",
        WRITE_ENTRIES,
        "Commit versions of several tables in one transaction.",
    ),
    _row(
        "BatchCommitTables",
        "/v1/table/batch-commit",
        WRITE_BATCH,
        "Commit operations on several tables in one transaction.",
    ),
)

_ROWS: tuple[Operation, ...] = (
    _data(
        "CreateTable",
        "create",
        WRITE_TABLE,
        "Create a table from an Arrow stream.",
        query=("mode", "properties", "storage_options"),
        endpoint=data.create_table,
        body="arrow",
        has_feature_header=True,
        lancedb=TableCreation(),
    ),
    _data(
        "InsertIntoTable",
        "insert",
        WRITE_TABLE,
        "Append an Arrow stream to a table, or overwrite the table with it.",
        query=("mode", "branch", "upload_id", "upload_part_id"),
        endpoint=data.insert_into_table,
        body="arrow",
    ),
    _data(
        "MergeInsertIntoTable",
        "merge_insert",
        WRITE_TABLE,
        "Upsert an Arrow stream.",
        query=(
            "on",
            "when_matched_update_all",
            "when_matched_update_all_filt",
            "when_not_matched_insert_all",
            "when_not_matched_by_source_delete",
            "when_not_matched_by_source_delete_filt",
            "timeout",
            "use_index",
            "branch",
        ),
        endpoint=data.merge_insert_into_table,
        body="arrow",
    ),
    _data("UpdateTable", "update", WRITE_TABLE, "Update rows."),
    _data("DeleteFromTable", "delete", WRITE_TABLE, "Delete rows."),
    _data(
        "QueryTable",
        "query",
        READ_TABLE,
        "Query a table.",
        response=None,
        endpoint=data.query_table,
        inline=data.query_inline,
        response_format="arrow",
    ),
    _data(
        "CountTableRows",
        "count_rows",
        READ_TABLE,
        "Count rows.",
        response=None,
        value_type=int,
        endpoint=data.count_table_rows,
    ),
    _data(
        "ExplainTableQueryPlan",
        "explain_plan",
        READ_TABLE,
        "Return the plan of a query.",
        response=None,
        value_type=str,
        endpoint=data.explain_table_query_plan,
    ),
    _data(
        "AnalyzeTableQueryPlan",
        "analyze_plan",
        READ_TABLE,
        "Run a query and return its plan with measurements.",
        response=None,
        value_type=str,
        endpoint=data.analyze_table_query_plan,
    ),
    _data("GetTableStats", "stats", READ_TABLE, "Return the statistics of a table."),
    _data("RestoreTable", "restore", WRITE_TABLE, "Restore a version as the latest.", endpoint=data.restore_table),
)

_COLUMNS: tuple[Operation, ...] = (
    _data(
        "AlterTableAddColumns",
        "add_columns",
        WRITE_TABLE,
        "Add columns.",
        endpoint=data.alter_table_add_columns,
        query=("branch",),
        body="json or arrow",
    ),
    _data(
        "AlterTableBackfillColumns",
        "backfill_column",
        WRITE_TABLE,
        "Start a backfill of a column, or plan one.",
        request=column_models.BackfillRequest,
        endpoint=columns.backfill_column,
        status=202,
        alternatives={200: Alternative("The plan of a backfill (dry run).", column_models.BackfillPlan)},
    ),
    _data(
        "DescribeColumnState",
        "column_state",
        READ_TABLE,
        "Count the rows of a feature column by state.",
        **_models(column_models, "ColumnState"),
    ),
    _data(
        "ListColumnErrors",
        "errors",
        READ_TABLE,
        "List the rows on which functions failed.",
        **_models(column_models, "ColumnErrors"),
    ),
    _data(
        "DescribeLineage",
        "lineage",
        READ_TABLE,
        "Describe what a table is computed from, and what is computed from it.",
        **_models(lineage_models, "DescribeLineage"),
    ),
    _data(
        "AlterTableAlterColumns", "alter_columns", WRITE_TABLE, "Alter columns.", request=dependent_models.AlterColumns
    ),
    _data("AlterTableDropColumns", "drop_columns", WRITE_TABLE, "Drop columns.", request=dependent_models.DropColumns),
    _data("UpdateFieldMetadata", "update_field_metadata", WRITE_TABLE, "Change the metadata of fields."),
    _data(
        "UpdateTableSchemaMetadata",
        "schema_metadata/update",
        WRITE_TABLE,
        "Replace the metadata of the schema.",
        body_field="metadata",
        response=None,
        value_type=dict[str, str],
        query=("branch",),
        endpoint=data.update_table_schema_metadata,
    ),
)

_INDEXES: tuple[Operation, ...] = (
    _data(
        "CreateTableIndex",
        "create_index",
        WRITE_TABLE,
        "Start to build an index.",
        endpoint=data.create_table_index,
        tag="Index",
    ),
    _data(
        "CreateTableScalarIndex",
        "create_scalar_index",
        WRITE_TABLE,
        "Start to build a scalar index.",
        request=ln.CreateTableIndexRequest,
        endpoint=data.create_table_index,
        tag="Index",
    ),
    _data("ListTableIndices", "index/list", READ_TABLE, "List the indexes of a table.", tag="Index", query=_PAGED),
    _table(
        "DescribeTableIndexStats", "index/{index_name}/stats", READ_TABLE, "Describe what an index covers.", tag="Index"
    ),
    _data("DropTableIndex", "index/{index_name}/drop", WRITE_TABLE, "Drop an index.", tag="Index", query=("branch",)),
)

_REFS: tuple[Operation, ...] = (
    _table(
        "ListTableTags",
        "tags/list",
        READ_TABLE,
        "List the tags of a table.",
        tag="Tag",
        query=_PAGED,
        endpoint=data.list_table_tags,
    ),
    _table("GetTableTagVersion", "tags/version", READ_TABLE, "Return the version of a tag.", tag="Tag"),
    _table("CreateTableTag", "tags/create", WRITE_TABLE, "Create a tag.", tag="Tag"),
    _table("DeleteTableTag", "tags/delete", WRITE_TABLE, "Delete a tag.", tag="Tag"),
    _table("UpdateTableTag", "tags/update", WRITE_TABLE, "Move a tag to another version.", tag="Tag"),
    _table(
        "ListTableBranches", "branches/list", READ_TABLE, "List the branches of a table.", tag="Branch", query=_PAGED
    ),
    _data("CreateTableBranch", "branches/create", WRITE_TABLE, "Create a branch.", tag="Branch"),
    _data("DeleteTableBranch", "branches/delete", WRITE_TABLE, "Delete a branch.", tag="Branch"),
)

_CONFLICT = Alternative("What prevents the cherry-pick, or an error.", extension_models.CherryPickResponse)

_EXTENSIONS: tuple[Operation, ...] = (
    _extension(
        "CloneTable", "clone", WRITE_TABLE, "Clone a table.", endpoint=extensions.clone_table, has_feature_header=True
    ),
    _extension(
        "BeginUpload",
        "multipart_write/create",
        WRITE_TABLE,
        "Begin a multipart upload.",
        endpoint=extensions.begin_upload,
        query=("branch",),
        data_pool=False,
    ),
    _extension(
        "CompleteUpload",
        "multipart_write/complete",
        WRITE_TABLE,
        "Commit a multipart upload.",
        endpoint=extensions.complete_upload,
        request=extension_models.UploadRequest,
        query=("upload_id", "branch"),
    ),
    _extension(
        "AbortUpload",
        "multipart_write/abort",
        WRITE_TABLE,
        "Abort a multipart upload.",
        endpoint=extensions.abort_upload,
        request=extension_models.UploadRequest,
        response=extension_models.EmptyResponse,
        query=("upload_id", "branch"),
    ),
    _extension(
        "DiffBranch", "branches/diff", READ_TABLE, "Compare a branch with main.", endpoint=extensions.diff_branch
    ),
    _extension(
        "CherryPick",
        "branches/cherry_pick",
        WRITE_TABLE,
        "Apply the changes of a branch to main.",
        endpoint=extensions.cherry_pick,
        alternatives={409: _CONFLICT},
    ),
    _extension(
        "MergeBranch",
        "branches/merge",
        WRITE_TABLE,
        "Apply the changes of a branch to main, for LanceDB's client for Node.js.",
        endpoint=extensions.merge_branch,
        request=extension_models.CherryPickRequest,
        response=extension_models.CherryPickResponse,
        alternatives={409: _CONFLICT},
    ),
    _extension(
        "FetchBlobs",
        "fetch_blobs",
        READ_TABLE,
        "Read the blobs of rows.",
        endpoint=extensions.fetch_blobs,
        response_format="arrow",
    ),
    _extension(
        "ReadBlob",
        "blob/{column}/{row_id}/bytes",
        READ_TABLE,
        "Read a range of a blob.",
        method="GET",
        endpoint=extensions.read_blob,
        query=("version", "branch"),
        status=206,
        alternatives={
            204: Alternative("The blob is null."),
            206: Alternative("Bytes of the blob.", media_type="application/octet-stream"),
            416: Alternative("The range begins after the end of the blob."),
        },
    ),
    _extension(
        "PrewarmIndex",
        "index/{index_name}/prewarm",
        READ_TABLE,
        "Load an index into memory.",
        endpoint=extensions.prewarm_index,
        response=extension_models.EmptyResponse,
    ),
    _extension(
        "PrewarmData",
        "page_cache/prewarm",
        READ_TABLE,
        "Accept a request to preload data (no effect).",
        endpoint=extensions.prewarm_data,
        response=extension_models.EmptyResponse,
        data_pool=False,
    ),
    _extension(
        "GetWriteBuffer",
        "get_lsm_write_spec",
        READ_TABLE,
        "Return the write buffer of a table (always null).",
        endpoint=extensions.get_write_buffer,
        response=extension_models.WriteBufferResponse,
        data_pool=False,
    ),
    _extension(
        "GetWriteBufferStats",
        "get_lsm_stats",
        READ_TABLE,
        "Return the statistics of the write buffer (always null).",
        endpoint=extensions.get_write_buffer,
        response=extension_models.WriteBufferResponse,
        data_pool=False,
    ),
)

_INSPECTION: tuple[Operation, ...] = (
    _row(
        "DescribeCaller",
        "/v1/whoami",
        FILTERED,
        "Describe the caller and its grants.",
        method="GET",
        request=inspection_models.CallerRequest,
        response=inspection_models.DescribeCallerResponse,
        tag="Extension",
        in_spec=False,
        catalog_only=True,
    ),
    _data(
        "DiffTableVersions",
        "version/diff",
        READ_TABLE,
        "Compare two versions of a table.",
        **_models(inspection_models, "DiffTableVersions"),
    ),
    _data(
        "ListTableFragments",
        "fragments",
        READ_TABLE,
        "List the fragments of a table.",
        **_models(inspection_models, "ListTableFragments"),
    ),
    _data(
        "DescribeColumnFunction",
        "column_function",
        READ_TABLE,
        "Describe the function of a column.",
        **_models(inspection_models, "DescribeColumnFunction"),
    ),
)

_MAINTENANCE: tuple[Operation, ...] = (
    _data(
        "DescribeTableHealth",
        "health",
        READ_TABLE,
        "Describe the health of a table, and what maintenance would do.",
        noun="maintenance",
        **_models(maintenance_models, "DescribeTableHealth", "Maintenance"),
    ),
    _namespace(
        "ListTableHealth",
        "health",
        READ_NAMESPACE,
        "List the tables of a namespace that need maintenance most, from the catalog.",
        noun="maintenance",
        **_models(maintenance_models, "ListTableHealth", "Maintenance"),
    ),
    _data(
        "MaintainTable",
        "maintain",
        WRITE_TABLE,
        "Start maintenance of a table, or plan it.",
        endpoint=maintenance.maintain_table,
        status=202,
        alternatives={200: Alternative("The plan of the maintenance (dry run).", maintenance_models.MaintenancePlan)},
        **_models(maintenance_models, "MaintainTable", "Maintenance"),
    ),
    _data(
        "DescribeVersionRetention",
        "version/retention",
        READ_TABLE,
        "Describe why versions are kept.",
        noun="maintenance",
        **_models(maintenance_models, "DescribeVersionRetention", "Maintenance"),
    ),
    _table(
        "DescribeMaintenancePolicy",
        "maintenance_policy/describe",
        READ_TABLE,
        "Describe the maintenance policy of a table.",
        noun="maintenance_policies",
        **_models(maintenance_models, "DescribeMaintenancePolicy", "Maintenance"),
    ),
    _table(
        "AlterMaintenancePolicy",
        "maintenance_policy/alter",
        WRITE_TABLE,
        "Change the maintenance policy of a table.",
        noun="maintenance_policies",
        **_models(maintenance_models, "AlterMaintenancePolicy", "Maintenance"),
    ),
    _namespace(
        "DescribeNamespaceMaintenancePolicy",
        "maintenance_policy/describe",
        READ_NAMESPACE,
        "Describe the maintenance policy that the tables of a namespace inherit.",
        noun="maintenance_policies",
        **_models(maintenance_models, "DescribeMaintenancePolicy", "Maintenance"),
    ),
    _namespace(
        "AlterNamespaceMaintenancePolicy",
        "maintenance_policy/alter",
        WRITE_NAMESPACE,
        "Change the maintenance policy that the tables of a namespace inherit.",
        noun="maintenance_policies",
        **_models(maintenance_models, "AlterMaintenancePolicy", "Maintenance"),
    ),
)

_JOBS: tuple[Operation, ...] = (
    _job("ListJobs", "list", FILTERED, "List jobs, newest first."),
    _job("DescribeJob", "describe", FILTERED, "Describe a job: its state, progress and result."),
    _job("CancelJob", "cancel", WRITE_JOB, "Cancel a job."),
    _job("PauseJob", "pause", WRITE_JOB, "Pause a job."),
    _job("ResumeJob", "resume", WRITE_JOB, "Resume a paused job."),
    _job("RetryJob", "retry", WRITE_JOB, "Retry a job that ended."),
    _job(
        "QueryJobEvents",
        "query_events",
        FILTERED,
        "Return the events of jobs, as Arrow.",
        endpoint=jobs.query_events,
        response_format="arrow",
    ),
    _job(
        "FollowJob",
        "{job_id}/events",
        FILTERED,
        "Stream the events of a job, as server-sent events.",
        method="GET",
        request=None,
        query=("after",),
        endpoint=jobs.follow,
        response_format="events",
    ),
)

_VIEWS: tuple[Operation, ...] = (
    _view(
        "CreateMaterializedView",
        "create",
        WRITE_TABLE,
        "Create a materialized view.",
        request=view_models.CreateViewRequest,
        endpoint=views.create_view,
        data_pool=True,
        status=201,
        alternatives={
            200: Alternative("The view was created for LanceDB's client.", _CREATED_VIEW),
            202: Alternative("The view was created, and a job computes its rows.", _CREATED_VIEW),
        },
    ),
    _view(
        "RefreshMaterializedView",
        "refresh",
        WRITE_TABLE,
        "Start a refresh of a view, or plan one.",
        request=view_models.RefreshViewRequest,
        endpoint=views.refresh_view,
        data_pool=True,
        status=202,
        alternatives={200: Alternative("The plan of a refresh (dry run).", view_models.RefreshPlan)},
    ),
    _view(
        "DescribeMaterializedView",
        "describe",
        READ_TABLE,
        "Describe a view: its definition and freshness.",
        endpoint=views.describe_view,
        data_pool=True,
        **_models(view_models, "DescribeView"),
    ),
    _view(
        "AlterMaterializedView",
        "alter",
        WRITE_TABLE,
        "Change how a view is refreshed.",
        **_models(view_models, "AlterView"),
    ),
    _view(
        "DescribeViewFunctions",
        "functions",
        READ_TABLE,
        "Describe the functions of a view.",
        **_models(inspection_models, "DescribeViewFunctions"),
    ),
    _view(
        "DropMaterializedView",
        "drop",
        WRITE_TABLE,
        "Drop a view and delete its data.",
        **_models(view_models, "DropView"),
    ),
    _namespace(
        "ListMaterializedViews",
        "materialized_view/list",
        FILTERED,
        "List the views of a namespace.",
        method="GET",
        query=_PAGED,
        catalog_only=True,
        **_models(view_models, "ListViews"),
    ),
)

_TRANSACTIONS: tuple[Operation, ...] = (
    _row(
        "DescribeTransaction",
        "/v1/transaction/{id}/describe",
        FILTERED,
        "Describe a transaction.",
        tag="Transaction",
        has_plain_id=True,
        catalog_only=True,
    ),
    _row(
        "AlterTransaction",
        "/v1/transaction/{id}/alter",
        WRITE_TRANSACTION,
        "Alter a transaction.",
        tag="Transaction",
        has_plain_id=True,
    ),
)

OPERATIONS: tuple[Operation, ...] = (
    *_NAMESPACES,
    *_TABLES,
    *_ROWS,
    *_COLUMNS,
    *_INDEXES,
    *_REFS,
    *_EXTENSIONS,
    *_INSPECTION,
    *_MAINTENANCE,
    *_JOBS,
    *_VIEWS,
    *_TRANSACTIONS,
)

#: Operations of the specification and of LanceDB's client that the server does not support: they have routes so that
#: the error names them.
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "CreateFunction": ("POST", "/v1/function/{id}/create"),
    "DescribeFunction": ("POST", "/v1/function/{id}/describe"),
    "DropFunction": ("POST", "/v1/function/{id}/drop"),
    "ListFunctions": ("GET", f"{_NS}/function/list"),
    "CreateView": ("POST", "/v1/view/{id}/create"),
    "DescribeView": ("POST", "/v1/view/{id}/describe"),
    "DropView": ("POST", "/v1/view/{id}/drop"),
    "ListViews": ("GET", f"{_NS}/view/list"),
    "CreateSecret": ("POST", "/v1/secret/{id}/create"),
    "AlterSecret": ("POST", "/v1/secret/{id}/alter"),
    "DescribeSecret": ("POST", "/v1/secret/{id}/describe"),
    "DropSecret": ("POST", "/v1/secret/{id}/drop"),
    "ListSecrets": ("GET", f"{_NS}/secret/list"),
    "SetWriteBuffer": ("POST", f"{_T}/set_lsm_write_spec"),
    "UnsetWriteBuffer": ("POST", f"{_T}/unset_lsm_write_spec"),
    "FlushWriteBuffer": ("POST", f"{_T}/flush_lsm"),
    "CompactWriteBuffer": ("POST", f"{_T}/compact_lsm"),
}
