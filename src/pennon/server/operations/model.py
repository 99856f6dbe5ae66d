"""What an operation is: a row of the table of operations, and what its callers must be allowed to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from pennon.core.caller import Role
from pennon.core.identifiers import Identifier, check_identifier
from pennon.server.endpoints.data import Binding


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
    #: The field of the request that the whole JSON body is, where it is not the request itself.
    whole: str | None = None
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
        return self.id not in _OF_CATALOG if self.binding is not None else self.id in _ON_DATA

    @property
    def lasting(self) -> bool:
        """Whether the answer may be given again while nothing it tells of has changed."""
        return self.id in _LASTING

    @property
    def specified(self) -> bool:
        """Whether the operation is one of the specification's; the others first of all serve LanceDB's client."""
        return self.tag not in {"Extension", "Job"}

    @property
    def changes(self) -> bool:
        """Whether the operation changes anything."""
        return self.permission.role > Role.READER


#: Those without a binding that read or write more than the catalog.
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
    }
)

#: Those with a binding that tell, or write down, what the catalog and the refs of a table say.
_OF_CATALOG = frozenset(
    {
        "BeginUpload",
        "FollowJob",
        "GetWriteBuffer",
        "GetWriteBufferStats",
        "ListTableTags",
        "PrewarmData",
        "QueryJobEvents",
    }
)

_LASTING = frozenset({"DescribeTable", "TableExists"})


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


READ_NAMESPACE = Permission(Role.READER, _own, "namespace")
WRITE_NAMESPACE = Permission(Role.WRITER, _own, "namespace")
READ_TABLE = Permission(Role.READER, _own, "table")
WRITE_TABLE = Permission(Role.WRITER, _own, "table")
WRITE_ENTRIES = Permission(Role.WRITER, _entries, "table")
WRITE_BATCH = Permission(Role.WRITER, _batch, "table")
WRITE_BOTH_NAMES = Permission(Role.WRITER, _both_names, "table")
# Filtered by the operation itself, which knows what each item of its answer belongs to.
FILTERED = Permission(Role.READER, _nothing, "table")
FILTERED_WRITE = Permission(Role.WRITER, _nothing, "transaction")
