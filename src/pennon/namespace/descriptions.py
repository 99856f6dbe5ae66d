"""Descriptions of tables: from the catalog alone, and from the dataset if the request asks for details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import lance_namespace as ln
from lance_namespace.errors import InvalidInputError
from lance_namespace_urllib3_client.models import JsonArrowSchema, TableBasicStats

from pennon.catalog.tables import DISCOVERED
from pennon.catalog.versions import MAIN
from pennon.namespace.maintenance import described_health
from pennon.namespace.models.maintenance import DescribedTable
from pennon.namespace.requests import request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.services import Services
from pennon.storage.layout import check_branch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version


@dataclass(frozen=True)
class DescriptionOperations:
    """Describe tables, and check whether they exist."""

    services: Services
    resolver: TableResolver

    def describe_table(self, request: ln.DescribeTableRequest) -> DescribedTable:
        """Describe a table at its latest version or another one."""
        request = request_as(ln.DescribeTableRequest, request)
        table = self.resolver.table(table_id(request))
        detailed = bool(request.load_detailed_metadata)
        named = request.version is not None or request.tag is not None or request.branch is not None
        known = table.managed or detailed or named
        version = self._target(table, request) if known else None
        response = DescribedTable(
            version=version.version if version is not None else None,
            location=table.location,
            table_uri=uri_of(table.location) if request.with_table_uri else None,
            storage_options=self.services.storage_root.client_options(vend=request.vend_credentials),
            properties=table.properties,
            managed_versioning=table.managed,
        )
        if request.check_declared or detailed:
            response.is_only_declared = version is None if known else self.resolver.is_only_declared(table)
        if detailed:
            self._add_details(response, table, version)
        return response

    def table_exists(self, request: ln.TableExistsRequest) -> ln.TableExistsResponse:
        """Return if a table, or one version of it, exists; raise if it does not."""
        request = request_as(ln.TableExistsRequest, request)
        table = self.resolver.table(table_id(request))
        if request.version is not None:
            self.services.history.find(table, MAIN, request.version)
        return ln.TableExistsResponse()

    def cache_validator(self, request: ln.DescribeTableRequest | ln.TableExistsRequest) -> Callable[[], bool] | None:
        """Return a function that checks whether a cached response is fresh, as long as the catalog is unchanged.

        None if a check would cost as much as a new response.
        """
        table = self.resolver.table(table_id(request))
        if request.version is not None or not table.managed or table.origin == DISCOVERED:
            return None
        if isinstance(request, ln.TableExistsRequest):
            return _always
        named = request.tag is not None or request.branch is not None
        return None if named or request.load_detailed_metadata else self.services.history.freshness_check(table)

    def _target(self, table: Table, request: ln.DescribeTableRequest) -> Version | None:
        """Return the version that a request names; None for a table without data."""
        if request.tag is not None:
            if request.version is not None or request.branch is not None:
                raise InvalidInputError("tag cannot be combined with version or branch: a tag names both.")
            tag = self.resolver.tag(table, request.tag)
            return self.services.history.find(table, tag.branch, tag.version)
        branch = check_branch(request.branch)
        if request.version is not None:
            return self.services.history.find(table, branch, request.version)
        newest = self.services.history.latest(table, branch)
        if newest is None and self.services.discovery.forget_if_gone(table):
            raise self.resolver.missing_table(table.identifier)
        return newest

    def _add_details(self, response: DescribedTable, table: Table, version: Version | None) -> None:
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
        response.health = self.services.database.read(lambda connection: described_health(connection, version))


def _always() -> bool:
    return True


def uri_of(location: str) -> str:
    """Return a location as a complete URI."""
    return location if "://" in location else "file://" + quote(location)
