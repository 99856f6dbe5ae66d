"""The table of operations: the one place that says what the server offers, to whom, and where.

Routes, the OpenAPI document, the authorization matrix, metrics and the reference page are all made from these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import lance_namespace as ln
from pydantic import BaseModel

from pennon.core.caller import Role
from pennon.core.identifiers import Identifier, check_identifier
from pennon.namespace import inspection_models, job_models, view_models
from pennon.namespace.backfill_models import (
    BackfillRequest,
    ColumnErrorsRequest,
    ColumnErrorsResponse,
    ColumnStateRequest,
    ColumnStateResponse,
)
from pennon.namespace.dependent_models import AlterColumns, DropColumns, DropNamespace, DropTable
from pennon.namespace.lineage_models import DescribeLineageRequest, DescribeLineageResponse
from pennon.server import backfills, bindings, extensions, jobs, views
from pennon.server.bindings import Binding


@dataclass(frozen=True)
class Permission:
    """The role a caller needs, and on which objects of the request."""

    role: Role
    objects: Callable[[Any], list[Identifier]]
    #: What a hidden object is called in the error that denies its existence.
    kind: str


@dataclass(frozen=True)
class Operation:
    """One operation of the protocol."""

    id: str
    method: str
    path: str
    handler: str
    permission: Permission
    request: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    #: Query parameters that become fields of the request.
    query: tuple[str, ...] = ()
    status: int = 200
    tag: str = "Table"
    summary: str = ""
    #: Answered from the catalog alone: may run on the event loop when the catalog is embedded.
    instant: bool = False
    #: How an operation on data is called; without it, the handler takes the request.
    binding: Binding | None = None
    #: Answers on the event loop what takes no time, and nothing when it may take some.
    at_once: Binding | None = None
    #: Whether the body is an Arrow stream; "either" where JSON will do as well.
    arrow: bool | Literal["either"] = False
    #: What the answer is: an object, a bare JSON value, Arrow batches, or a stream of events.
    answer: Literal["object", "value", "batches", "events"] = "object"

    @property
    def long(self) -> bool:
        """Whether the operation works on data, and so on the threads for that."""
        return self.id in _ON_DATA

    @property
    def specified(self) -> bool:
        """Whether the operation is one of the specification's; the others first of all serve LanceDB's client."""
        return self.tag not in {"Extension", "Job"}

    @property
    def changes(self) -> bool:
        """Whether the operation changes anything."""
        return self.permission.role > Role.READER


_ON_DATA = frozenset(
    {
        "AlterTableAlterColumns",
        "AlterTableDropColumns",
        "CreateTableBranch",
        "DeleteFromTable",
        "DeleteTableBranch",
        "DescribeColumnFunction",
        "DescribeColumnState",
        "DescribeLineage",
        "DiffTableVersions",
        "DropTableIndex",
        "GetTableStats",
        "ListColumnErrors",
        "ListTableFragments",
        "ListTableIndices",
        "UpdateFieldMetadata",
        "UpdateTable",
        "UpdateTableSchemaMetadata",
    }
)


def _own(request: Any) -> list[Identifier]:
    return [check_identifier(request.id or ())]


def _entries(request: Any) -> list[Identifier]:
    return [check_identifier(entry.id or ()) for entry in request.entries]


def _batch(request: Any) -> list[Identifier]:
    parts = [
        part
        for operation in request.operations
        for part in (
            operation.declare_table,
            operation.create_table_version,
            operation.delete_table_versions,
            operation.deregister_table,
        )
        if part is not None
    ]
    return [check_identifier(part.id or ()) for part in parts]


def _both_names(request: Any) -> list[Identifier]:
    own = check_identifier(request.id or ())
    namespace = own[:-1] if request.new_namespace_id is None else check_identifier(request.new_namespace_id)
    return [own, (*namespace, request.new_table_name)]


def _nothing(_: Any) -> list[Identifier]:
    return []


_READ_NAMESPACE = Permission(Role.READER, _own, "namespace")
_WRITE_NAMESPACE = Permission(Role.WRITER, _own, "namespace")
_READ_TABLE = Permission(Role.READER, _own, "table")
_WRITE_TABLE = Permission(Role.WRITER, _own, "table")
# Filtered by the operation itself, which knows what each item of its answer belongs to.
_FILTERED = Permission(Role.READER, _nothing, "table")
_FILTERED_WRITE = Permission(Role.WRITER, _nothing, "transaction")

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
    _extension("CloneTable", "clone", _WRITE_TABLE, extensions.clone_table, "Clone a table."),
    _extension(
        "BeginUpload",
        "multipart_write/create",
        _WRITE_TABLE,
        extensions.begin_upload,
        "Begin an upload in parts.",
        query=("branch",),
    ),
    _extension(
        "CompleteUpload",
        "multipart_write/complete",
        _WRITE_TABLE,
        extensions.complete_upload,
        "Commit an upload in parts.",
        query=("upload_id", "branch"),
    ),
    _extension(
        "AbortUpload",
        "multipart_write/abort",
        _WRITE_TABLE,
        extensions.abort_upload,
        "Give an upload in parts up.",
        query=("upload_id", "branch"),
    ),
    _extension("DiffBranch", "branches/diff", _READ_TABLE, extensions.diff_branch, "Compare a branch with main."),
    _extension(
        "CherryPick", "branches/cherry_pick", _WRITE_TABLE, extensions.cherry_pick, "Bring a branch over to main."
    ),
    _extension(
        "FetchBlobs", "fetch_blobs", _READ_TABLE, extensions.fetch_blobs, "Read blobs of rows.", answer="batches"
    ),
    _extension(
        "ReadBlob",
        "blob/{column}/{row_id}/bytes",
        _READ_TABLE,
        extensions.read_blob,
        "Read a range of one blob.",
        method="GET",
        query=("version", "branch"),
    ),
    _extension(
        "PrewarmIndex",
        "index/{index_name}/prewarm",
        _READ_TABLE,
        extensions.prewarm_index,
        "Load an index into memory.",
    ),
    _extension("PrewarmData", "page_cache/prewarm", _READ_TABLE, extensions.prewarm_data, "Accept a wish to preload."),
    _extension(
        "GetWriteBuffer",
        "get_lsm_write_spec",
        _READ_TABLE,
        extensions.no_write_buffer,
        "Tell that writes are not buffered.",
    ),
    _extension(
        "GetWriteBufferStats",
        "get_lsm_stats",
        _READ_TABLE,
        extensions.no_write_buffer,
        "Tell that writes are not buffered.",
    ),
)


def _inspection(op: str, verb: str, summary: str) -> Operation:
    """Make the row of an operation for those who look at tables, such as the console."""
    models = {kind: getattr(inspection_models, f"{op}{kind.capitalize()}") for kind in ("request", "response")}
    return _table(op, verb, _READ_TABLE, summary, tag="Extension", **models)


_INSPECTIONS: tuple[Operation, ...] = (
    _operation(
        "DescribeCaller",
        "GET",
        "/v1/whoami",
        _FILTERED,
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
    _job("ListJobs", "list", _FILTERED, "List jobs, the newest first.", request=job_models.ListJobsRequest),
    _job("DescribeJob", "describe", _FILTERED, "Describe a job: its state, progress and outcome."),
    _job("CancelJob", "cancel", _FILTERED_WRITE, "Cancel a job."),
    _job("PauseJob", "pause", _FILTERED_WRITE, "Let a job rest."),
    _job("ResumeJob", "resume", _FILTERED_WRITE, "Let a job that rests go on."),
    _job(
        "RetryJob",
        "retry",
        _FILTERED_WRITE,
        "Submit again what a job did not get done.",
        request=job_models.RetryJobRequest,
    ),
    _job(
        "QueryJobEvents",
        "query_events",
        _FILTERED,
        "Return what happened to jobs, as Arrow.",
        request=job_models.QueryJobEventsRequest,
        binding=jobs.query_events,
        answer="batches",
    ),
    _job(
        "FollowJob",
        "{job_id}/events",
        _FILTERED,
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
        _WRITE_TABLE,
        "Create a materialized view.",
        request=view_models.CreateViewRequest,
        binding=views.create_view,
        status=201,
        tag="MaterializedView",
    ),
    _view(
        "RefreshMaterializedView",
        "refresh",
        _WRITE_TABLE,
        "Start bringing a view up to date, or tell what that would do.",
        request=view_models.RefreshViewRequest,
        binding=views.refresh_view,
        status=202,
        tag="MaterializedView",
    ),
    _view_extension(
        "DescribeMaterializedView",
        "describe",
        _READ_TABLE,
        "DescribeView",
        "Tell what a view is and how fresh.",
        binding=views.describe_view,
    ),
    _view_extension(
        "AlterMaterializedView", "alter", _WRITE_TABLE, "AlterView", "Change how a view is kept up to date."
    ),
    _view_extension("DropMaterializedView", "drop", _WRITE_TABLE, "DropView", "Drop a view and its rows."),
    _operation(
        "ListMaterializedViews",
        "GET",
        f"{_NS}/materialized_view/list",
        _FILTERED,
        request=view_models.ListViewsRequest,
        response=view_models.ListViewsResponse,
        query=_PAGED,
        tag="Extension",
        instant=True,
        summary="List the views of a namespace.",
    ),
)


OPERATIONS: tuple[Operation, ...] = (
    _namespace("CreateNamespace", "POST", f"{_NS}/create", _WRITE_NAMESPACE, summary="Create a namespace."),
    _namespace(
        "ListNamespaces", "GET", f"{_NS}/list", _FILTERED, query=_PAGED, instant=True, summary="List child namespaces."
    ),
    _namespace(
        "DescribeNamespace", "POST", f"{_NS}/describe", _READ_NAMESPACE, instant=True, summary="Describe a namespace."
    ),
    _namespace(
        "DropNamespace", "POST", f"{_NS}/drop", _WRITE_NAMESPACE, request=DropNamespace, summary="Drop a namespace."
    ),
    _namespace(
        "NamespaceExists",
        "POST",
        f"{_NS}/exists",
        _READ_NAMESPACE,
        response=None,
        instant=True,
        summary="Tell whether a namespace exists.",
    ),
    _namespace(
        "ListTables",
        "GET",
        f"{_NS}/table/list",
        _FILTERED,
        query=(*_PAGED, "include_declared"),
        instant=True,
        summary="List the tables of a namespace.",
    ),
    _operation(
        "ListAllTables",
        "GET",
        "/v1/table",
        _FILTERED,
        request=ln.ListTablesRequest,
        response=ln.ListTablesResponse,
        query=(*_PAGED, "include_declared"),
        instant=True,
        summary="List the tables of all namespaces.",
    ),
    _table("RegisterTable", "register", _WRITE_TABLE, "Register a table that exists on storage."),
    _table(
        "DescribeTable",
        "describe",
        _READ_TABLE,
        "Describe a table.",
        query=("with_table_uri", "load_detailed_metadata", "check_declared"),
        instant=True,
    ),
    _table("TableExists", "exists", _READ_TABLE, "Tell whether a table exists.", response=None, instant=True),
    _table("DropTable", "drop", _WRITE_TABLE, "Drop a table and delete its data.", request=DropTable),
    _table("DeregisterTable", "deregister", _WRITE_TABLE, "Forget a table and keep its data."),
    _table("RenameTable", "rename", Permission(Role.WRITER, _both_names, "table"), "Rename or move a table."),
    _table("DeclareTable", "declare", _WRITE_TABLE, "Declare a table without touching storage."),
    _table(
        "CreateEmptyTable",
        "create-empty",
        _WRITE_TABLE,
        "Declare a table by the older route.",
        request=ln.DeclareTableRequest,
        response=ln.DeclareTableResponse,
    ),
    _table(
        "ListTableVersions",
        "version/list",
        _READ_TABLE,
        "List the versions of a table.",
        query=(*_PAGED, "descending", "branch"),
    ),
    _table("CreateTableVersion", "version/create", _WRITE_TABLE, "Commit a version whose manifest is staged."),
    _table("DescribeTableVersion", "version/describe", _READ_TABLE, "Describe one version.", instant=True),
    _table("BatchDeleteTableVersions", "version/delete", _WRITE_TABLE, "Delete old versions."),
    _operation(
        "BatchCreateTableVersions",
        "POST",
        "/v1/table/version/batch-create",
        Permission(Role.WRITER, _entries, "table"),
        summary="Commit versions of several tables together.",
    ),
    _operation(
        "BatchCommitTables",
        "POST",
        "/v1/table/batch-commit",
        Permission(Role.WRITER, _batch, "table"),
        summary="Commit operations on several tables together.",
    ),
    _table(
        "CreateTable",
        "create",
        _WRITE_TABLE,
        "Create a table from an Arrow stream.",
        query=("mode", "properties", "storage_options"),
        binding=bindings.create_table,
        arrow=True,
    ),
    _table(
        "InsertIntoTable",
        "insert",
        _WRITE_TABLE,
        "Append an Arrow stream to a table, or replace its rows.",
        query=("mode", "branch", "upload_id", "upload_part_id"),
        binding=bindings.insert_into_table,
        arrow=True,
    ),
    _table(
        "MergeInsertIntoTable",
        "merge_insert",
        _WRITE_TABLE,
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
        binding=bindings.merge_insert_into_table,
        arrow=True,
    ),
    _table("UpdateTable", "update", _WRITE_TABLE, "Update rows."),
    _table("DeleteFromTable", "delete", _WRITE_TABLE, "Delete rows."),
    _table(
        "QueryTable",
        "query",
        _READ_TABLE,
        "Query a table.",
        response=None,
        binding=bindings.query_table,
        at_once=bindings.query_at_once,
        answer="batches",
    ),
    _table(
        "CountTableRows",
        "count_rows",
        _READ_TABLE,
        "Count rows.",
        response=None,
        binding=bindings.count_table_rows,
        answer="value",
    ),
    _table(
        "ExplainTableQueryPlan",
        "explain_plan",
        _READ_TABLE,
        "Explain how a query would be answered.",
        response=None,
        binding=bindings.explain_table_query_plan,
        answer="value",
    ),
    _table(
        "AnalyzeTableQueryPlan",
        "analyze_plan",
        _READ_TABLE,
        "Run a query and tell what each step took.",
        response=None,
        binding=bindings.analyze_table_query_plan,
        answer="value",
    ),
    _table(
        "AlterTableAddColumns",
        "add_columns",
        _WRITE_TABLE,
        "Add columns.",
        binding=bindings.alter_table_add_columns,
        query=("branch",),
        arrow="either",
    ),
    _table(
        "AlterTableBackfillColumns",
        "backfill_column",
        _WRITE_TABLE,
        "Start filling a column, or tell what that would do.",
        request=BackfillRequest,
        binding=backfills.backfill_column,
        status=202,
    ),
    _table(
        "DescribeColumnState",
        "column_state",
        _READ_TABLE,
        "Count a column's rows by what is known of them.",
        request=ColumnStateRequest,
        response=ColumnStateResponse,
        tag="Extension",
    ),
    _table(
        "ListColumnErrors",
        "errors",
        _READ_TABLE,
        "Return the rows that functions failed on.",
        request=ColumnErrorsRequest,
        response=ColumnErrorsResponse,
        tag="Extension",
    ),
    _table(
        "DescribeLineage",
        "lineage",
        _READ_TABLE,
        "Tell what a table is computed from, and what is computed from it.",
        request=DescribeLineageRequest,
        response=DescribeLineageResponse,
        tag="Extension",
    ),
    _table("AlterTableAlterColumns", "alter_columns", _WRITE_TABLE, "Alter columns.", request=AlterColumns),
    _table("AlterTableDropColumns", "drop_columns", _WRITE_TABLE, "Drop columns.", request=DropColumns),
    _table("UpdateFieldMetadata", "update_field_metadata", _WRITE_TABLE, "Change the metadata of fields."),
    _table("UpdateTableSchemaMetadata", "schema_metadata/update", _WRITE_TABLE, "Replace the schema's metadata."),
    _table("GetTableStats", "stats", _READ_TABLE, "Return a table's statistics."),
    _table(
        "RestoreTable", "restore", _WRITE_TABLE, "Make an earlier version the newest.", binding=bindings.restore_table
    ),
    _table(
        "CreateTableIndex",
        "create_index",
        _WRITE_TABLE,
        "Start building an index.",
        binding=bindings.create_table_index,
        tag="Index",
    ),
    _table(
        "CreateTableScalarIndex",
        "create_scalar_index",
        _WRITE_TABLE,
        "Start building a scalar index.",
        request=ln.CreateTableIndexRequest,
        binding=bindings.create_table_index,
        tag="Index",
    ),
    _table("ListTableIndices", "index/list", _READ_TABLE, "List a table's indices.", tag="Index", query=_PAGED),
    _table(
        "DescribeTableIndexStats", "index/{index_name}/stats", _READ_TABLE, "Tell what an index covers.", tag="Index"
    ),
    _table("DropTableIndex", "index/{index_name}/drop", _WRITE_TABLE, "Drop an index.", tag="Index", query=("branch",)),
    _table(
        "ListTableTags",
        "tags/list",
        _READ_TABLE,
        "List a table's tags.",
        tag="Tag",
        query=_PAGED,
        binding=bindings.list_table_tags,
    ),
    _table("GetTableTagVersion", "tags/version", _READ_TABLE, "Return the version a tag points to.", tag="Tag"),
    _table("CreateTableTag", "tags/create", _WRITE_TABLE, "Create a tag.", tag="Tag"),
    _table("DeleteTableTag", "tags/delete", _WRITE_TABLE, "Delete a tag.", tag="Tag"),
    _table("UpdateTableTag", "tags/update", _WRITE_TABLE, "Move a tag.", tag="Tag"),
    _table("ListTableBranches", "branches/list", _READ_TABLE, "List a table's branches.", tag="Branch", query=_PAGED),
    _table("CreateTableBranch", "branches/create", _WRITE_TABLE, "Create a branch.", tag="Branch"),
    _table("DeleteTableBranch", "branches/delete", _WRITE_TABLE, "Delete a branch.", tag="Branch"),
    *_EXTENSIONS,
    *_INSPECTIONS,
    *_JOBS,
    *_VIEWS,
    _operation(
        "DescribeTransaction",
        "POST",
        "/v1/transaction/{id}/describe",
        _FILTERED,
        tag="Transaction",
        instant=True,
        summary="Describe a transaction.",
    ),
    _operation(
        "AlterTransaction",
        "POST",
        "/v1/transaction/{id}/alter",
        _FILTERED_WRITE,
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
