"""The table of operations: the one place that says what the server offers, to whom, and where.

Routes, the OpenAPI document, the authorization matrix, metrics and the reference page are all made from these rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import lance_namespace as ln

from pennon.namespace.models import inspection as inspection_models
from pennon.namespace.models import jobs as job_models
from pennon.namespace.models import views as view_models
from pennon.namespace.models.columns import (
    BackfillRequest,
    ColumnErrorsRequest,
    ColumnErrorsResponse,
    ColumnStateRequest,
    ColumnStateResponse,
)
from pennon.namespace.models.dependents import AlterColumns, DropColumns, DropNamespace, DropTable
from pennon.namespace.models.lineage import DescribeLineageRequest, DescribeLineageResponse
from pennon.server.endpoints import columns, data, extensions, jobs, views
from pennon.server.endpoints.data import Binding
from pennon.server.operations.model import (
    FILTERED,
    FILTERED_WRITE,
    READ_NAMESPACE,
    READ_TABLE,
    WRITE_BATCH,
    WRITE_BOTH_NAMES,
    WRITE_ENTRIES,
    WRITE_NAMESPACE,
    WRITE_TABLE,
    Operation,
    Permission,
)

_PAGED = ("page_token", "limit")
_NS, _T = "/v1/namespace/{id}", "/v1/table/{id}"


def _namespace(op: str, method: str, path: str, permission: Permission, **more: Any) -> Operation:
    return _operation(op, method, path, permission, tag="Namespace", **more)


def _operation(op: str, method: str, path: str, permission: Permission, **more: Any) -> Operation:
    """Make a row; handler and models follow from the operation's id unless they are given."""
    handler = "".join(f"_{char.lower()}" if char.isupper() else char for char in op).lstrip("_")
    more.setdefault("handler", handler)
    more.setdefault("request", getattr(ln, f"{op}Request", None))
    more.setdefault("response", getattr(ln, f"{op}Response", None))
    return Operation(op, method, path, permission=permission, **more)


def _table(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    return _operation(op, "POST", f"{_T}/{verb}", permission, summary=summary, **more)


def _extension(op: str, verb: str, permission: Permission, binding: Binding, summary: str, **more: Any) -> Operation:
    """Make the row of an operation that LanceDB's remote client knows and the specification does not."""
    more.setdefault("method", "POST")
    method = more.pop("method")
    return Operation(
        op, method, f"{_T}/{verb}", "", permission, tag="Extension", binding=binding, summary=summary, **more
    )


_EXTENSIONS: tuple[Operation, ...] = (
    _extension("CloneTable", "clone", WRITE_TABLE, extensions.clone_table, "Clone a table."),
    _extension(
        "BeginUpload",
        "multipart_write/create",
        WRITE_TABLE,
        extensions.begin_upload,
        "Begin an upload in parts.",
        query=("branch",),
    ),
    _extension(
        "CompleteUpload",
        "multipart_write/complete",
        WRITE_TABLE,
        extensions.complete_upload,
        "Commit an upload in parts.",
        query=("upload_id", "branch"),
    ),
    _extension(
        "AbortUpload",
        "multipart_write/abort",
        WRITE_TABLE,
        extensions.abort_upload,
        "Give an upload in parts up.",
        query=("upload_id", "branch"),
    ),
    _extension("DiffBranch", "branches/diff", READ_TABLE, extensions.diff_branch, "Compare a branch with main."),
    _extension(
        "CherryPick", "branches/cherry_pick", WRITE_TABLE, extensions.cherry_pick, "Bring a branch over to main."
    ),
    _extension(
        "MergeBranch",
        "branches/merge",
        WRITE_TABLE,
        partial(extensions.cherry_pick, merge=True),
        "Bring a branch over to main, as LanceDB's client for Node.js asks for it.",
    ),
    _extension(
        "FetchBlobs", "fetch_blobs", READ_TABLE, extensions.fetch_blobs, "Read blobs of rows.", answer="batches"
    ),
    _extension(
        "ReadBlob",
        "blob/{column}/{row_id}/bytes",
        READ_TABLE,
        extensions.read_blob,
        "Read a range of one blob.",
        method="GET",
        status=206,
        query=("version", "branch"),
    ),
    _extension(
        "PrewarmIndex",
        "index/{index_name}/prewarm",
        READ_TABLE,
        extensions.prewarm_index,
        "Load an index into memory.",
    ),
    _extension("PrewarmData", "page_cache/prewarm", READ_TABLE, extensions.prewarm_data, "Accept a wish to preload."),
    _extension(
        "GetWriteBuffer",
        "get_lsm_write_spec",
        READ_TABLE,
        extensions.no_write_buffer,
        "Tell that writes are not buffered.",
    ),
    _extension(
        "GetWriteBufferStats",
        "get_lsm_stats",
        READ_TABLE,
        extensions.no_write_buffer,
        "Tell that writes are not buffered.",
    ),
)


def _inspection(op: str, verb: str, summary: str) -> Operation:
    """Make the row of an operation for those who look at tables, such as the console."""
    models = {kind: getattr(inspection_models, f"{op}{kind.capitalize()}") for kind in ("request", "response")}
    return _table(op, verb, READ_TABLE, summary, tag="Extension", **models)


_INSPECTIONS: tuple[Operation, ...] = (
    _operation(
        "DescribeCaller",
        "GET",
        "/v1/whoami",
        FILTERED,
        request=inspection_models.CallerRequest,
        response=inspection_models.DescribeCallerResponse,
        tag="Extension",
        instant=True,
        summary="Tell the caller who it is and what it may do.",
    ),
    _inspection("DiffTableVersions", "version/diff", "Compare two versions of a table."),
    _inspection("ListTableFragments", "fragments", "List the fragments of a table."),
    _inspection("DescribeColumnFunction", "column_function", "Describe what fills a column."),
)


def _job(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    """Make the row of an operation on jobs, as LanceDB's client calls it."""
    path, method = f"/v1/jobs/{verb}", more.pop("method", "POST")
    more.setdefault("request", job_models.JobRequest)
    more.setdefault("response", getattr(job_models, f"{op}Response", None))
    return _operation(op, method, path, permission, tag="Job", summary=summary, **more)


_JOBS: tuple[Operation, ...] = (
    _job("ListJobs", "list", FILTERED, "List jobs, the newest first.", request=job_models.ListJobsRequest),
    _job("DescribeJob", "describe", FILTERED, "Describe a job: its state, progress and outcome."),
    _job("CancelJob", "cancel", FILTERED_WRITE, "Cancel a job."),
    _job("PauseJob", "pause", FILTERED_WRITE, "Let a job rest."),
    _job("ResumeJob", "resume", FILTERED_WRITE, "Let a job that rests go on."),
    _job(
        "RetryJob",
        "retry",
        FILTERED_WRITE,
        "Submit again what a job did not get done.",
        request=job_models.RetryJobRequest,
    ),
    _job(
        "QueryJobEvents",
        "query_events",
        FILTERED,
        "Return what happened to jobs, as Arrow.",
        request=job_models.QueryJobEventsRequest,
        binding=jobs.query_events,
        answer="batches",
    ),
    _job(
        "FollowJob",
        "{job_id}/events",
        FILTERED,
        "Follow what happens to a job, as server-sent events.",
        request=None,
        method="GET",
        query=("after",),
        binding=jobs.follow,
        answer="events",
    ),
)


def _view(op: str, verb: str, permission: Permission, summary: str, **more: Any) -> Operation:
    """Make the row of an operation on materialized views."""
    return _operation(op, "POST", f"/v1/materialized_view/{{id}}/{verb}", permission, summary=summary, **more)


def _view_extension(op: str, verb: str, permission: Permission, name: str, summary: str, **more: Any) -> Operation:
    """Make the row of an operation on materialized views that the specification does not know."""
    models = {kind.lower(): getattr(view_models, f"{name}{kind}") for kind in ("Request", "Response")}
    return _view(op, verb, permission, summary, tag="Extension", **models, **more)


_VIEWS: tuple[Operation, ...] = (
    _view(
        "CreateMaterializedView",
        "create",
        WRITE_TABLE,
        "Create a materialized view.",
        request=view_models.CreateViewRequest,
        binding=views.create_view,
        status=201,
        tag="MaterializedView",
    ),
    _view(
        "RefreshMaterializedView",
        "refresh",
        WRITE_TABLE,
        "Start bringing a view up to date, or tell what that would do.",
        request=view_models.RefreshViewRequest,
        binding=views.refresh_view,
        status=202,
        tag="MaterializedView",
    ),
    _view_extension(
        "DescribeMaterializedView",
        "describe",
        READ_TABLE,
        "DescribeView",
        "Tell what a view is and how fresh.",
        binding=views.describe_view,
    ),
    _view_extension(
        "AlterMaterializedView", "alter", WRITE_TABLE, "AlterView", "Change how a view is kept up to date."
    ),
    _view(
        "DescribeViewFunctions",
        "functions",
        READ_TABLE,
        "Describe the functions that a view is made by.",
        request=inspection_models.DescribeViewFunctionsRequest,
        response=inspection_models.DescribeViewFunctionsResponse,
        tag="Extension",
    ),
    _view_extension("DropMaterializedView", "drop", WRITE_TABLE, "DropView", "Drop a view and its rows."),
    _operation(
        "ListMaterializedViews",
        "GET",
        f"{_NS}/materialized_view/list",
        FILTERED,
        request=view_models.ListViewsRequest,
        response=view_models.ListViewsResponse,
        query=_PAGED,
        tag="Extension",
        instant=True,
        summary="List the views of a namespace.",
    ),
)


OPERATIONS: tuple[Operation, ...] = (
    _namespace("CreateNamespace", "POST", f"{_NS}/create", WRITE_NAMESPACE, summary="Create a namespace."),
    _namespace(
        "ListNamespaces", "GET", f"{_NS}/list", FILTERED, query=_PAGED, instant=True, summary="List child namespaces."
    ),
    _namespace(
        "DescribeNamespace", "POST", f"{_NS}/describe", READ_NAMESPACE, instant=True, summary="Describe a namespace."
    ),
    _namespace(
        "DropNamespace", "POST", f"{_NS}/drop", WRITE_NAMESPACE, request=DropNamespace, summary="Drop a namespace."
    ),
    _namespace(
        "NamespaceExists",
        "POST",
        f"{_NS}/exists",
        READ_NAMESPACE,
        response=None,
        instant=True,
        summary="Tell whether a namespace exists.",
    ),
    _namespace(
        "ListTables",
        "GET",
        f"{_NS}/table/list",
        FILTERED,
        query=(*_PAGED, "include_declared"),
        instant=True,
        summary="List the tables of a namespace.",
    ),
    _operation(
        "ListAllTables",
        "GET",
        "/v1/table",
        FILTERED,
        request=ln.ListTablesRequest,
        response=ln.ListTablesResponse,
        query=(*_PAGED, "include_declared"),
        instant=True,
        summary="List the tables of all namespaces.",
    ),
    _table("RegisterTable", "register", WRITE_TABLE, "Register a table that exists on storage."),
    _table(
        "DescribeTable",
        "describe",
        READ_TABLE,
        "Describe a table.",
        query=("with_table_uri", "load_detailed_metadata", "check_declared"),
        instant=True,
    ),
    _table("TableExists", "exists", READ_TABLE, "Tell whether a table exists.", response=None, instant=True),
    _table("DropTable", "drop", WRITE_TABLE, "Drop a table and delete its data.", request=DropTable),
    _table("DeregisterTable", "deregister", WRITE_TABLE, "Forget a table and keep its data."),
    _table("RenameTable", "rename", WRITE_BOTH_NAMES, "Rename or move a table."),
    _table("DeclareTable", "declare", WRITE_TABLE, "Declare a table without touching storage."),
    _table(
        "CreateEmptyTable",
        "create-empty",
        WRITE_TABLE,
        "Declare a table by the older route.",
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
    _table("DescribeTableVersion", "version/describe", READ_TABLE, "Describe one version.", instant=True),
    _table("BatchDeleteTableVersions", "version/delete", WRITE_TABLE, "Delete old versions."),
    _operation(
        "BatchCreateTableVersions",
        "POST",
        "/v1/table/version/batch-create",
        WRITE_ENTRIES,
        summary="Commit versions of several tables together.",
    ),
    _operation(
        "BatchCommitTables",
        "POST",
        "/v1/table/batch-commit",
        WRITE_BATCH,
        summary="Commit operations on several tables together.",
    ),
    _table(
        "CreateTable",
        "create",
        WRITE_TABLE,
        "Create a table from an Arrow stream.",
        query=("mode", "properties", "storage_options"),
        binding=data.create_table,
        arrow=True,
    ),
    _table(
        "InsertIntoTable",
        "insert",
        WRITE_TABLE,
        "Append an Arrow stream to a table, or replace its rows.",
        query=("mode", "branch", "upload_id", "upload_part_id"),
        binding=data.insert_into_table,
        arrow=True,
    ),
    _table(
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
        binding=data.merge_insert_into_table,
        arrow=True,
    ),
    _table("UpdateTable", "update", WRITE_TABLE, "Update rows."),
    _table("DeleteFromTable", "delete", WRITE_TABLE, "Delete rows."),
    _table(
        "QueryTable",
        "query",
        READ_TABLE,
        "Query a table.",
        response=None,
        binding=data.query_table,
        at_once=data.query_at_once,
        answer="batches",
    ),
    _table(
        "CountTableRows",
        "count_rows",
        READ_TABLE,
        "Count rows.",
        response=None,
        binding=data.count_table_rows,
        answer="value",
    ),
    _table(
        "ExplainTableQueryPlan",
        "explain_plan",
        READ_TABLE,
        "Explain how a query would be answered.",
        response=None,
        binding=data.explain_table_query_plan,
        answer="value",
    ),
    _table(
        "AnalyzeTableQueryPlan",
        "analyze_plan",
        READ_TABLE,
        "Run a query and tell what each step took.",
        response=None,
        binding=data.analyze_table_query_plan,
        answer="value",
    ),
    _table(
        "AlterTableAddColumns",
        "add_columns",
        WRITE_TABLE,
        "Add columns.",
        binding=data.alter_table_add_columns,
        query=("branch",),
        arrow="either",
    ),
    _table(
        "AlterTableBackfillColumns",
        "backfill_column",
        WRITE_TABLE,
        "Start filling a column, or tell what that would do.",
        request=BackfillRequest,
        binding=columns.backfill_column,
        status=202,
    ),
    _table(
        "DescribeColumnState",
        "column_state",
        READ_TABLE,
        "Count a column's rows by what is known of them.",
        request=ColumnStateRequest,
        response=ColumnStateResponse,
        tag="Extension",
    ),
    _table(
        "ListColumnErrors",
        "errors",
        READ_TABLE,
        "Return the rows that functions failed on.",
        request=ColumnErrorsRequest,
        response=ColumnErrorsResponse,
        tag="Extension",
    ),
    _table(
        "DescribeLineage",
        "lineage",
        READ_TABLE,
        "Tell what a table is computed from, and what is computed from it.",
        request=DescribeLineageRequest,
        response=DescribeLineageResponse,
        tag="Extension",
    ),
    _table("AlterTableAlterColumns", "alter_columns", WRITE_TABLE, "Alter columns.", request=AlterColumns),
    _table("AlterTableDropColumns", "drop_columns", WRITE_TABLE, "Drop columns.", request=DropColumns),
    _table("UpdateFieldMetadata", "update_field_metadata", WRITE_TABLE, "Change the metadata of fields."),
    _table(
        "UpdateTableSchemaMetadata",
        "schema_metadata/update",
        WRITE_TABLE,
        "Replace the schema's metadata.",
        whole="metadata",
        response=None,
        query=("branch",),
        binding=data.update_table_schema_metadata,
    ),
    _table("GetTableStats", "stats", READ_TABLE, "Return a table's statistics."),
    _table("RestoreTable", "restore", WRITE_TABLE, "Make an earlier version the newest.", binding=data.restore_table),
    _table(
        "CreateTableIndex",
        "create_index",
        WRITE_TABLE,
        "Start building an index.",
        binding=data.create_table_index,
        tag="Index",
    ),
    _table(
        "CreateTableScalarIndex",
        "create_scalar_index",
        WRITE_TABLE,
        "Start building a scalar index.",
        request=ln.CreateTableIndexRequest,
        binding=data.create_table_index,
        tag="Index",
    ),
    _table("ListTableIndices", "index/list", READ_TABLE, "List a table's indices.", tag="Index", query=_PAGED),
    _table(
        "DescribeTableIndexStats", "index/{index_name}/stats", READ_TABLE, "Tell what an index covers.", tag="Index"
    ),
    _table("DropTableIndex", "index/{index_name}/drop", WRITE_TABLE, "Drop an index.", tag="Index", query=("branch",)),
    _table(
        "ListTableTags",
        "tags/list",
        READ_TABLE,
        "List a table's tags.",
        tag="Tag",
        query=_PAGED,
        binding=data.list_table_tags,
    ),
    _table("GetTableTagVersion", "tags/version", READ_TABLE, "Return the version a tag points to.", tag="Tag"),
    _table("CreateTableTag", "tags/create", WRITE_TABLE, "Create a tag.", tag="Tag"),
    _table("DeleteTableTag", "tags/delete", WRITE_TABLE, "Delete a tag.", tag="Tag"),
    _table("UpdateTableTag", "tags/update", WRITE_TABLE, "Move a tag.", tag="Tag"),
    _table("ListTableBranches", "branches/list", READ_TABLE, "List a table's branches.", tag="Branch", query=_PAGED),
    _table("CreateTableBranch", "branches/create", WRITE_TABLE, "Create a branch.", tag="Branch"),
    _table("DeleteTableBranch", "branches/delete", WRITE_TABLE, "Delete a branch.", tag="Branch"),
    *_EXTENSIONS,
    *_INSPECTIONS,
    *_JOBS,
    *_VIEWS,
    _operation(
        "DescribeTransaction",
        "POST",
        "/v1/transaction/{id}/describe",
        FILTERED,
        tag="Transaction",
        instant=True,
        summary="Describe a transaction.",
    ),
    _operation(
        "AlterTransaction",
        "POST",
        "/v1/transaction/{id}/alter",
        FILTERED_WRITE,
        tag="Transaction",
        summary="Alter a transaction.",
    ),
)

#: Operations of the protocol and of LanceDB's client that this Pennon answers with "unsupported": their routes, so
#: that the answer is typed.
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
