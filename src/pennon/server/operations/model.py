"""The row of an operation in the table of operations, and the permission it requires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel

from pennon.core.caller import Role
from pennon.core.identifiers import Identifier, check_identifier
from pennon.server.lancedb_compat import STATUS_ONLY, Compatibility

if TYPE_CHECKING:
    from lance_namespace import BatchCommitTablesRequest, BatchCreateTableVersionsRequest, RenameTableRequest

    from pennon.server.request import Endpoint


@dataclass(frozen=True)
class Permission:
    """The role that a caller needs on the objects of a request."""

    role: Role
    #: Returns the objects of a request: of its model, or of its context where the endpoint parses it.
    objects: Callable[[Any], list[Identifier]]
    #: The kind of the objects.
    kind: Literal["namespace", "table", "transaction", "job"]


@dataclass(frozen=True)
class Alternative:
    """A response that an operation gives beside its usual one."""

    description: str
    model: type[BaseModel] | None = None
    media_type: str = "application/json"


@dataclass(frozen=True)
class Operation:
    """One operation of the REST API. No other module tests for the id, the path or the tag of an operation."""

    id: str
    method: Literal["GET", "POST"]
    path: str
    permission: Permission
    summary: str
    endpoint: Endpoint
    request: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    #: The type of a response that is a plain JSON value instead of a model.
    value_type: Any = None
    #: Whether the request is parsed into its model before the caller is authorized. Other endpoints parse their
    #: parameters themselves: their bodies have several forms, or are Arrow.
    parse_first: bool = False
    #: The field of the request that the whole JSON body stands for.
    body_field: str | None = None
    #: Query parameters that become fields of the request.
    query: tuple[str, ...] = ()
    #: Whether the id in the path is one name, which may contain the delimiter.
    has_plain_id: bool = False
    status: int = 200
    #: Responses with another status than the usual one.
    alternatives: Mapping[int, Alternative] = field(default_factory=dict)
    #: The group in the OpenAPI document.
    tag: str = "Table"
    #: Whether the operation is in the Lance REST Namespace specification.
    in_spec: bool = True
    #: What the body of a POST request is.
    body: Literal["json", "arrow", "json or arrow"] = "json"
    #: What the body of a response is.
    response_format: Literal["json", "arrow", "events"] = "json"
    #: Whether the catalog alone usually answers: tried on the event loop first.
    catalog_only: bool = False
    #: Answers on the event loop what takes less time than a switch to a thread; returns None for other requests.
    inline: Endpoint | None = None
    #: Whether the operation reads or writes data, and so runs on the threads for data.
    data_pool: bool = False
    #: Whether responses to anonymous callers may be cached while the catalog does not change.
    cacheable: bool = False
    #: Whether the response has the header by which LanceDB's client learns what the server supports.
    has_feature_header: bool = False
    #: How LanceDB's client differs from the specification.
    lancedb: Compatibility = STATUS_ONLY

    @property
    def mutates(self) -> bool:
        """Whether the operation changes anything."""
        return self.permission.role > Role.READER

    @property
    def reads_table(self) -> bool:
        """Whether the operation reads the one table that its path names."""
        return self.permission is READ_TABLE


class _Named(Protocol):
    @property
    def id(self) -> Sequence[str] | None: ...


def _own(request: _Named) -> list[Identifier]:
    return [check_identifier(request.id or ())]


def _entries(request: BatchCreateTableVersionsRequest) -> list[Identifier]:
    return [check_identifier(entry.id or ()) for entry in request.entries]


def _batch(request: BatchCommitTablesRequest) -> list[Identifier]:
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


def _both_names(request: RenameTableRequest) -> list[Identifier]:
    own = check_identifier(request.id or ())
    namespace = own[:-1] if request.new_namespace_id is None else check_identifier(request.new_namespace_id)
    return [own, (*namespace, request.new_table_name)]


def _nothing(_: object) -> list[Identifier]:
    return []


READ_NAMESPACE = Permission(Role.READER, _own, "namespace")
WRITE_NAMESPACE = Permission(Role.WRITER, _own, "namespace")
READ_TABLE = Permission(Role.READER, _own, "table")
WRITE_TABLE = Permission(Role.WRITER, _own, "table")
WRITE_ENTRIES = Permission(Role.WRITER, _entries, "table")
WRITE_BATCH = Permission(Role.WRITER, _batch, "table")
WRITE_BOTH_NAMES = Permission(Role.WRITER, _both_names, "table")
# These operations filter what they return or change: only they know which namespaces it belongs to.
FILTERED = Permission(Role.READER, _nothing, "table")
WRITE_TRANSACTION = Permission(Role.WRITER, _nothing, "transaction")
WRITE_JOB = Permission(Role.WRITER, _nothing, "job")
