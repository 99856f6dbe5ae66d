"""Operations on indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance_namespace as ln
from lance_namespace.errors import InvalidInputError, InvalidTableStateError, TableIndexNotFoundError

from pennon.core.errors import suggest
from pennon.core.paging import cut_page
from pennon.namespace.requests import name_cursor, request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import record_after, transaction_recorder
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.indexes import describe_indices, index_stats
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lance

    from pennon.catalog.tables import Table

_LISTING = "indices"


@dataclass(frozen=True)
class IndexOperations:
    """Create, list, describe and drop indices."""

    services: Services
    resolver: TableResolver

    def create_table_index(
        self, request: ln.CreateTableIndexRequest, *, replace: bool = False, more: Mapping[str, object] | None = None
    ) -> ln.CreateTableIndexResponse:
        """Start building an index, which is listed with its coverage from now on; ``more`` has further options."""
        request = request_as(ln.CreateTableIndexRequest, request)
        table = self.resolver.table(table_id(request))
        options = {**request.model_dump(exclude_none=True, by_alias=True), **(more or {})}
        with self.resolver.not_found_if_dropped(table):
            self.services.indexer.start(table, check_branch(request.branch), options, replace=replace)
        transaction_id = record_after(self.services.database, "CreateTableIndex", table)
        return ln.CreateTableIndexResponse(transaction_id=transaction_id)

    def create_table_scalar_index(self, request: ln.CreateTableIndexRequest) -> ln.CreateTableScalarIndexResponse:
        """Start building a scalar index."""
        response = self.create_table_index(request)
        return ln.CreateTableScalarIndexResponse(transaction_id=response.transaction_id)

    def list_table_indices(self, request: ln.ListTableIndicesRequest) -> ln.ListTableIndicesResponse:
        """List the indices of a table, including those being built."""
        request = request_as(ln.ListTableIndicesRequest, request)
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        size, after = name_cursor(_LISTING, request, self.services.settings.page_limit)
        dataset = self.services.datasets.at(table, branch, request.version)
        with typed_errors():
            found = {index.index_name: index for index in describe_indices(dataset)}
        if request.version is None:
            for index in self.services.indexer.list_building(table, branch, dataset):
                found.setdefault(index.index_name, index)
        ordered = [found[name] for name in sorted(found) if name > after]
        page = cut_page(_LISTING, ordered[: size + 1], size, lambda index: (index.index_name,))
        return ln.ListTableIndicesResponse(indexes=page.items, page_token=page.token)

    def describe_table_index_stats(
        self, request: ln.DescribeTableIndexStatsRequest
    ) -> ln.DescribeTableIndexStatsResponse:
        """Return how many rows an index covers."""
        request = request_as(ln.DescribeTableIndexStatsRequest, request)
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        name = _index_name(request)
        dataset = self.services.datasets.at(table, branch, request.version)
        failure = self.services.indexer.failure(table, branch, name)
        if failure is not None:
            raise InvalidTableStateError(f"The index {name!r} could not be built: {failure}")
        for index in self.services.indexer.list_building(table, branch, dataset):
            if index.index_name == name:
                return ln.DescribeTableIndexStatsResponse(
                    index_type=index.index_type, num_indexed_rows=0, num_unindexed_rows=index.num_unindexed_rows
                )
        self._require(dataset, name)
        with typed_errors():
            return index_stats(dataset, name)

    def drop_table_index(self, request: ln.DropTableIndexRequest) -> ln.DropTableIndexResponse:
        """Drop an index."""
        request = request_as(ln.DropTableIndexRequest, request)
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        name = _index_name(request)
        self._require(self.services.datasets.at(table, branch, None), name)

        def work(dataset: lance.LanceDataset) -> None:
            dataset.drop_index(name)

        _, written = self.services.writer.change(table, branch, transaction_recorder("DropTableIndex", table), work)
        return ln.DropTableIndexResponse(transaction_id=written.transaction_id)

    def prewarm_table_index(self, table: Table, name: str) -> None:
        """Load an index into memory for later queries."""
        dataset = self.services.datasets.at(table, "", None)
        self._require(dataset, name)
        with typed_errors():
            dataset.prewarm_index(name)

    def _require(self, dataset: lance.LanceDataset, name: str) -> None:
        known = [index.name for index in dataset.describe_indices()]
        if name not in known:
            raise TableIndexNotFoundError(f"The table has no index {name!r}.{suggest(name, known)}")


def _index_name(request: ln.DescribeTableIndexStatsRequest | ln.DropTableIndexRequest) -> str:
    if not request.index_name:
        raise InvalidInputError("The request has no index_name; name the index.")
    return request.index_name
