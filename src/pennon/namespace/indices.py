"""Operations on indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace import (
    CreateTableIndexRequest,
    CreateTableIndexResponse,
    CreateTableScalarIndexResponse,
    DescribeTableIndexStatsRequest,
    DescribeTableIndexStatsResponse,
    DropTableIndexRequest,
    DropTableIndexResponse,
    ListTableIndicesRequest,
    ListTableIndicesResponse,
)
from lance_namespace.errors import InvalidInputError, InvalidTableStateError, TableIndexNotFoundError

from pennon.core.errors import suggest
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.namespace.operations import Operations, request_as, table_id, transaction_recorder
from pennon.storage.layout import check_branch
from pennon.tables.indexes import describe_indices, index_stats
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from pennon.catalog.tables import Table

_LISTING = "indices"


class IndexOperations(Operations):
    """Create, list, describe and drop indices."""

    def create_table_index(
        self, request: CreateTableIndexRequest, *, replace: bool = False, more: dict[str, Any] | None = None
    ) -> CreateTableIndexResponse:
        """Start building an index; it is listed with its coverage while and after it is built."""
        request = request_as(CreateTableIndexRequest, request)
        table = self._table(table_id(request))
        options = {**request.model_dump(exclude_none=True, by_alias=True), **(more or {})}
        with self._not_found_if_dropped(table):
            self.services.indexer.start(table, check_branch(request.branch), options, replace=replace)
        transaction_id = self._note("CreateTableIndex", table)
        return CreateTableIndexResponse(transaction_id=transaction_id)

    def create_table_scalar_index(self, request: CreateTableIndexRequest) -> CreateTableScalarIndexResponse:
        """Start building a scalar index."""
        response = self.create_table_index(request)
        return CreateTableScalarIndexResponse(transaction_id=response.transaction_id)

    def list_table_indices(self, request: ListTableIndicesRequest) -> ListTableIndicesResponse:
        """List the indices of a table, those being built among them."""
        request = request_as(ListTableIndicesRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_LISTING, request.page_token, (str,))
        dataset = self.services.datasets.at(table, branch, request.version)
        with typed_errors():
            found = {index.index_name: index for index in describe_indices(dataset)}
        if request.version is None:
            for index in self.services.indexer.under_way(table, branch, dataset):
                found.setdefault(index.index_name, index)
        after = str(key[0]) if key else ""
        ordered = [found[name] for name in sorted(found) if name > after]
        page = cut_page(_LISTING, ordered[: size + 1], size, lambda index: (index.index_name,))
        return ListTableIndicesResponse(indexes=page.items, page_token=page.token)

    def describe_table_index_stats(self, request: DescribeTableIndexStatsRequest) -> DescribeTableIndexStatsResponse:
        """Return how much of a table an index covers."""
        request = request_as(DescribeTableIndexStatsRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        name = _name_of(request)
        dataset = self.services.datasets.at(table, branch, request.version)
        failure = self.services.indexer.failure(table, branch, name)
        if failure is not None:
            raise InvalidTableStateError(f"The index {name!r} could not be built: {failure}")
        for index in self.services.indexer.under_way(table, branch, dataset):
            if index.index_name == name:
                return DescribeTableIndexStatsResponse(
                    index_type=index.index_type, num_indexed_rows=0, num_unindexed_rows=index.num_unindexed_rows
                )
        self._require(dataset, name)
        with typed_errors():
            return index_stats(dataset, name)

    def drop_table_index(self, request: DropTableIndexRequest) -> DropTableIndexResponse:
        """Drop an index."""
        request = request_as(DropTableIndexRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        name = _name_of(request)
        self._require(self.services.datasets.at(table, branch, None), name)

        def work(dataset: Any) -> None:
            dataset.drop_index(name)

        _, written = self.services.writer.change(table, branch, transaction_recorder("DropTableIndex", table), work)
        return DropTableIndexResponse(transaction_id=written.transaction_id)

    def prewarm_table_index(self, table: Table, name: str) -> None:
        """Load an index into memory, for queries to come."""
        dataset = self.services.datasets.at(table, "", None)
        self._require(dataset, name)
        with typed_errors():
            dataset.prewarm_index(name)

    def _require(self, dataset: Any, name: str) -> None:
        known = [index.name for index in dataset.describe_indices()]
        if name not in known:
            raise TableIndexNotFoundError(f"The table has no index {name!r}.{suggest(name, known)}")


def _name_of(request: DescribeTableIndexStatsRequest | DropTableIndexRequest) -> str:
    if not request.index_name:
        raise InvalidInputError("The request names no index.")
    return request.index_name
