"""Compatibility with LanceDB's remote client (``db://``) where it differs from the specification.

Its requests have no delimiter, and most of its table routes end with a slash: that tells it from other clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_namespace import DescribeTableResponse, ListTablesRequest, ListTablesResponse
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableBranchNotFoundError,
    TableColumnNotFoundError,
    TableIndexAlreadyExistsError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)
from lance_namespace_urllib3_client.models import JsonArrowDataType, JsonArrowField

from pennon.core.identifiers import Identifier, check_name
from pennon.core.paging import decode_token, encode_token

if TYPE_CHECKING:
    from pydantic import BaseModel, JsonValue

    from pennon.server.http.exchange import Exchange
    from pennon.server.request import RequestContext

    Body = dict[str, JsonValue]

_LISTING = "tables"


def is_lancedb(exchange: Exchange) -> bool:
    """Tell whether LanceDB's remote client sent a request to a table route."""
    if not exchange.raw_path.endswith(b"/"):
        return False
    try:
        return "delimiter" not in exchange.query
    except InvalidInputError:
        return False  # no client sends an invalid query string


def database_named(exchange: Exchange) -> str | None:
    """Return the database that LanceDB's remote client names in each request."""
    name = exchange.headers.get("x-lancedb-database")
    return name if name and "delimiter" not in exchange.query else None


class Compatibility:
    """How LanceDB's client differs from the specification in one operation; this one only in the status of errors.

    The client goes by the status alone: it takes every 404 for a missing table, and retries after a 409.
    """

    misread: tuple[type[LanceNamespaceError], ...] = (
        TableColumnNotFoundError,
        TableTagNotFoundError,
        TableBranchNotFoundError,
        TableTagAlreadyExistsError,
        TableIndexAlreadyExistsError,
        TableVersionNotFoundError,
        InvalidTableStateError,
    )

    def misreads(self, error: LanceNamespaceError) -> bool:
        """Tell whether the client would misread an error by the specification's status, and needs a 400."""
        return isinstance(error, self.misread)

    def read_body(self, body: Body, exchange: Exchange, database: Identifier) -> None:
        """Rewrite the client's body to the specification's."""

    def read_request(self, request: BaseModel, exchange: Exchange) -> None:
        """Rewrite the fields of a parsed request."""

    def write_response(self, response: BaseModel, context: RequestContext) -> None:
        """Rewrite a response of the specification to the one that the client reads."""


class TableCreation(Compatibility):
    """The client recognises a table that exists by status 400."""

    misread = (*Compatibility.misread, TableAlreadyExistsError)


class TableDescription(Compatibility):
    """The client always needs the schema, and has no name for maps; it does expect a missing version as 404."""

    misread = tuple(kind for kind in Compatibility.misread if kind is not TableVersionNotFoundError)

    def read_body(self, body: Body, exchange: Exchange, _: Identifier) -> None:
        """Ask for the schema."""
        if is_lancedb(exchange):
            body["load_detailed_metadata"] = True

    def write_response(self, response: BaseModel, context: RequestContext) -> None:
        """Describe maps as lists."""
        if context.is_lancedb and isinstance(response, DescribeTableResponse) and response.var_schema is not None:
            for field in response.var_schema.fields:
                _describe_maps_as_lists(field.type)


class TableRename(Compatibility):
    """The client names the new namespace in ``new_namespace``, relative to its database."""

    def read_body(self, body: Body, _: Exchange, database: Identifier) -> None:
        """Rename the field."""
        namespace = body.get("new_namespace")
        if "new_namespace_id" not in body and isinstance(namespace, list):
            body["new_namespace_id"] = [*database, *namespace]


class JobScope(Compatibility):
    """The client's database is the scope of requests about jobs."""

    def read_body(self, body: Body, _: Exchange, database: Identifier) -> None:
        """Name the database."""
        body["id"] = list(database)


class TableListing(Compatibility):
    """The client uses the last name of a page as page token."""

    def applies(self, exchange: Exchange) -> bool:
        """Tell whether the client sent a request."""
        return "delimiter" not in exchange.query

    def read_request(self, request: BaseModel, exchange: Exchange) -> None:
        """Make a page token of the server out of a name."""
        if not isinstance(request, ListTablesRequest) or not request.page_token or not self.applies(exchange):
            return
        try:
            decode_token(_LISTING, request.page_token, (str,))
        except InvalidInputError:
            request.page_token = encode_token(_LISTING, (check_name(request.page_token),))

    def write_response(self, response: BaseModel, context: RequestContext) -> None:
        """Return the last name as page token."""
        if isinstance(response, ListTablesResponse) and response.page_token and self.applies(context.exchange):
            response.page_token = response.tables[-1]


class RootListing(TableListing):
    """The client lists the tables of its database by the route that lists those of all namespaces."""

    def applies(self, exchange: Exchange) -> bool:
        """Tell whether the client sent a request."""
        return is_lancedb(exchange)

    def read_body(self, body: Body, exchange: Exchange, database: Identifier) -> None:
        """Name the database."""
        if self.applies(exchange):
            body["id"] = list(database)


#: For operations in which only the status of errors differs.
STATUS_ONLY = Compatibility()


def _describe_maps_as_lists(kind: JsonArrowDataType) -> None:
    """Replace the type name ``map``: the client does not know it, and opens no table with such a column."""
    for part in kind.fields or []:
        _describe_maps_as_lists(part.type)
    if kind.type == "map":
        parts = [part.model_copy(update={"nullable": True}) for part in kind.fields or []]  # the client's own choice
        entries = JsonArrowField(name="item", nullable=True, type=JsonArrowDataType(type="struct", fields=parts))
        kind.type, kind.fields = "list", [entries]
