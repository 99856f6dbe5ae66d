"""Where the clients of LanceDB's own remote protocol differ from the specification.

They never send a delimiter and end most table routes with a slash; by that they are told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models import JsonArrowDataType, JsonArrowField

from pennon.core.identifiers import Identifier, check_name
from pennon.core.paging import decode_token, encode_token

if TYPE_CHECKING:
    from pennon.server.http.exchange import Exchange
    from pennon.server.operations.model import Operation

_LISTING = "tables"


def is_remote(exchange: Exchange) -> bool:
    """Tell whether LanceDB's remote client asks, on a table's route."""
    if not exchange.raw_path.endswith(b"/"):
        return False
    try:
        return "delimiter" not in exchange.query
    except InvalidInputError:
        return False  # no client writes a query that cannot be read


def database_named(exchange: Exchange) -> str | None:
    """Return the database that LanceDB's remote client names with each request."""
    name = exchange.headers.get("x-lancedb-database")
    return name if name and "delimiter" not in exchange.query else None


class Remote:
    """Translates between LanceDB's remote client and the specification, for one request."""

    def __init__(self, operation: Operation, exchange: Exchange) -> None:
        #: Whether the client is LanceDB's own.
        self.is_remote = is_remote(exchange)
        self._details = operation.id == "DescribeTable" and self.is_remote
        self._root_listing = operation.id == "ListAllTables" and self.is_remote
        self._names = self._root_listing or (operation.id == "ListTables" and "delimiter" not in exchange.query)
        self._rename = operation.id == "RenameTable"
        self._jobs = operation.tag == "Job"

    @property
    def lists_root(self) -> bool:
        """Whether the request wants the root's tables where the specification lists all."""
        return self._root_listing

    def read(self, body: dict[str, Any], database: Identifier) -> None:
        """Turn the client's spellings of a body into the specification's."""
        if self._rename and "new_namespace_id" not in body and isinstance(body.get("new_namespace"), list):
            body["new_namespace_id"] = [*database, *body["new_namespace"]]
        if self._root_listing or self._jobs:
            body["id"] = list(database)
        if self._details:
            body["load_detailed_metadata"] = True

    def open_token(self, request: Any) -> None:
        """Turn a page token that is a name, as the client builds it, into one of the listing."""
        if not self._names or not request.page_token:
            return
        try:
            decode_token(_LISTING, request.page_token, (str,))
        except InvalidInputError:
            request.page_token = encode_token(_LISTING, (check_name(request.page_token),))

    def write(self, response: Any) -> None:
        """Turn an answer of the specification into the one that the client reads."""
        if self._names and getattr(response, "page_token", None):
            response.page_token = response.tables[-1]
        if self._details:
            for field in response.var_schema.fields:
                _describe_maps_as_lists(field.type)


def _describe_maps_as_lists(kind: JsonArrowDataType) -> None:
    """Give a type a name that the client knows: it has none for maps, and opens no table that has one."""
    for part in kind.fields or []:
        _describe_maps_as_lists(part.type)
    if kind.type == "map":
        parts = [part.model_copy(update={"nullable": True}) for part in kind.fields or []]  # as it makes them itself
        entries = JsonArrowField(name="item", nullable=True, type=JsonArrowDataType(type="struct", fields=parts))
        kind.type, kind.fields = "list", [entries]
