"""Describing a table: from the catalog alone where that suffices, from the dataset where details are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from lance_namespace import (
    DescribeTableRequest,
    DescribeTableResponse,
    TableExistsRequest,
    TableExistsResponse,
)
from lance_namespace.errors import InvalidInputError, TableTagNotFoundError
from lance_namespace_urllib3_client.models import JsonArrowSchema, TableBasicStats

from pennon.catalog.tables import DISCOVERED
from pennon.catalog.versions import MAIN
from pennon.core.errors import suggest
from pennon.core.identifiers import format_identifier
from pennon.namespace.operations import Operations, request_as, table_id
from pennon.storage import refs
from pennon.storage.layout import check_branch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version


class DescriptionOperations(Operations):
    """Describe tables and tell whether they exist."""

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Return what is known of a table at its latest or another version."""
        request = request_as(DescribeTableRequest, request)
        table = self._table(table_id(request))
        detailed = bool(request.load_detailed_metadata)
        named = request.version is not None or request.tag is not None or request.branch is not None
        known = table.managed or detailed or named
        version = self._target(table, request) if known else None
        response = DescribeTableResponse(
            version=version.version if version is not None else None,
            location=table.location,
            table_uri=uri_of(table.location) if request.with_table_uri else None,
            storage_options=self.services.storage_root.client_options(vend=request.vend_credentials),
            properties=table.properties,
            managed_versioning=table.managed,
        )
        if request.check_declared or detailed:
            response.is_only_declared = version is None if known else self._is_only_declared(table)
        if detailed:
            self._add_details(response, table, version)
        return response

    def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        """Answer when a table, or one version of it, exists; raise when it does not."""
        request = request_as(TableExistsRequest, request)
        table = self._table(table_id(request))
        if request.version is not None:
            self.services.history.find(table, MAIN, request.version)
        return TableExistsResponse()

    def lasting(self, request: DescribeTableRequest | TableExistsRequest) -> Callable[[], bool] | None:
        """Return what tells, while the catalog stays as it is, whether a table is still what a request was told.

        None where that is not told more cheaply than by asking again.
        """
        table = self._table(table_id(request))
        if request.version is not None or not table.managed or table.origin == DISCOVERED:
            return None
        if isinstance(request, TableExistsRequest):
            return _always
        named = request.tag is not None or request.branch is not None
        return None if named or request.load_detailed_metadata else self.services.history.lasting(table)

    def _target(self, table: Table, request: DescribeTableRequest) -> Version | None:
        """Return the version that is asked for; none for a table without data."""
        if request.tag is not None:
            if request.version is not None or request.branch is not None:
                raise InvalidInputError("tag cannot be combined with version or branch: a tag names both.")
            return self._tagged(table, request.tag)
        branch = check_branch(request.branch)
        if request.version is not None:
            return self.services.history.find(table, branch, request.version)
        newest = self.services.history.latest(table, branch)
        if newest is None and self.services.discovery.forget_if_gone(table):
            raise self._missing_table(table.identifier)
        return newest

    def _tagged(self, table: Table, tag: str) -> Version:
        known = {ref.name: ref for ref in refs.tags(self.services.storage_root.folder(table.location))}
        if tag not in known:
            name = format_identifier(table.identifier)
            raise TableTagNotFoundError(f"Table {name!r} has no tag {tag!r}.{suggest(tag, known)}")
        found = known[tag]
        return self.services.history.find(table, found.branch, found.version)

    def _add_details(self, response: DescribeTableResponse, table: Table, version: Version | None) -> None:
        response.table = table.name
        response.namespace = list(table.namespace)
        if version is None:
            response.version = 0
            response.var_schema = JsonArrowSchema(fields=[])
            response.stats = TableBasicStats(num_fragments=0, num_deleted_rows=0)
            return
        details = self.services.details.read(table, version)
        response.var_schema = JsonArrowSchema.model_validate(details.schema)
        response.metadata = details.metadata
        response.stats = TableBasicStats(num_fragments=details.num_fragments, num_deleted_rows=details.num_deleted_rows)


def _always() -> bool:
    return True


def uri_of(location: str) -> str:
    """Return a location as a complete URI."""
    return location if "://" in location else "file://" + quote(location)
