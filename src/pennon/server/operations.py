"""The table of operations: the one place that says what the server offers, to whom, and where.

Routes, the OpenAPI document, the authorization matrix, metrics and the reference page are all made from these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lance_namespace as ln
from pydantic import BaseModel

from pennon.core.caller import Role
from pennon.core.identifiers import Identifier, check_identifier


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

    @property
    def changes(self) -> bool:
        """Whether the operation changes anything."""
        return self.permission.role > Role.READER


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


OPERATIONS: tuple[Operation, ...] = (
    _namespace("CreateNamespace", "POST", f"{_NS}/create", _WRITE_NAMESPACE, summary="Create a namespace."),
    _namespace(
        "ListNamespaces", "GET", f"{_NS}/list", _FILTERED, query=_PAGED, instant=True, summary="List child namespaces."
    ),
    _namespace(
        "DescribeNamespace", "POST", f"{_NS}/describe", _READ_NAMESPACE, instant=True, summary="Describe a namespace."
    ),
    _namespace("DropNamespace", "POST", f"{_NS}/drop", _WRITE_NAMESPACE, summary="Drop a namespace."),
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
    _table("DropTable", "drop", _WRITE_TABLE, "Drop a table and delete its data."),
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

#: Operations of the protocol that this Pennon answers with "unsupported": their routes, so that the answer is typed.
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "RestoreTable": ("POST", f"{_T}/restore"),
    "UpdateTableSchemaMetadata": ("POST", f"{_T}/schema_metadata/update"),
    "AlterTableAlterColumns": ("POST", f"{_T}/alter_columns"),
    "UpdateFieldMetadata": ("POST", f"{_T}/update_field_metadata"),
    "AlterTableDropColumns": ("POST", f"{_T}/drop_columns"),
    "GetTableStats": ("POST", f"{_T}/stats"),
    "InsertIntoTable": ("POST", f"{_T}/insert"),
    "MergeInsertIntoTable": ("POST", f"{_T}/merge_insert"),
    "UpdateTable": ("POST", f"{_T}/update"),
    "DeleteFromTable": ("POST", f"{_T}/delete"),
    "QueryTable": ("POST", f"{_T}/query"),
    "CountTableRows": ("POST", f"{_T}/count_rows"),
    "CreateTable": ("POST", f"{_T}/create"),
    "ExplainTableQueryPlan": ("POST", f"{_T}/explain_plan"),
    "AnalyzeTableQueryPlan": ("POST", f"{_T}/analyze_plan"),
    "AlterTableAddColumns": ("POST", f"{_T}/add_columns"),
    "AlterTableBackfillColumns": ("POST", f"{_T}/backfill_column"),
    "RefreshMaterializedView": ("POST", "/v1/materialized_view/{id}/refresh"),
    "CreateMaterializedView": ("POST", "/v1/materialized_view/{id}/create"),
    "CreateTableIndex": ("POST", f"{_T}/create_index"),
    "CreateTableScalarIndex": ("POST", f"{_T}/create_scalar_index"),
    "ListTableIndices": ("POST", f"{_T}/index/list"),
    "DescribeTableIndexStats": ("POST", f"{_T}/index/{{index_name}}/stats"),
    "DropTableIndex": ("POST", f"{_T}/index/{{index_name}}/drop"),
    "ListTableTags": ("POST", f"{_T}/tags/list"),
    "GetTableTagVersion": ("POST", f"{_T}/tags/version"),
    "CreateTableTag": ("POST", f"{_T}/tags/create"),
    "DeleteTableTag": ("POST", f"{_T}/tags/delete"),
    "UpdateTableTag": ("POST", f"{_T}/tags/update"),
    "ListTableBranches": ("POST", f"{_T}/branches/list"),
    "CreateTableBranch": ("POST", f"{_T}/branches/create"),
    "DeleteTableBranch": ("POST", f"{_T}/branches/delete"),
}
