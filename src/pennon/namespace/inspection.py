"""Operations that inspect tables: their statistics, fragments and differences between versions; and the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
from lance_namespace import GetTableStatsRequest, GetTableStatsResponse
from lance_namespace_urllib3_client.models import FragmentStats, FragmentSummary

from pennon import __version__
from pennon.core.caller import ANONYMOUS_ADMIN, current_caller
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.namespace.models.inspection import (
    CallerGrant,
    CallerRequest,
    DescribeCallerResponse,
    DiffTableVersionsRequest,
    DiffTableVersionsResponse,
    ListTableFragmentsRequest,
    ListTableFragmentsResponse,
    TableFragment,
)
from pennon.namespace.requests import request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.comparison import compare_schemas
from pennon.tables.lance_errors import typed_errors
from pennon.views.refresh import changes

if TYPE_CHECKING:
    import lance

_FRAGMENTS = "fragments"
#: Fragments with fewer rows than this should be compacted.
_SMALL_ROWS = 100_000


class ChangeCounts(TypedDict):
    """The numbers of rows that two versions differ in, or the reason why they are unknown."""

    exact: bool
    reason: NotRequired[str]
    rows_added: NotRequired[int]
    rows_removed: NotRequired[int]
    rows_updated: NotRequired[int]


@dataclass(frozen=True)
class InspectionOperations:
    """Describe the caller, and what tables are made of."""

    services: Services
    resolver: TableResolver

    def describe_caller(self, request: CallerRequest) -> DescribeCallerResponse:
        """Return the name and the grants of the caller."""
        request_as(CallerRequest, request)
        principal = current_caller().principal
        return DescribeCallerResponse(
            name=principal.name,
            authenticated=principal is not ANONYMOUS_ADMIN,
            grants=[
                CallerGrant(namespace=list(grant.namespace), role=grant.role.name.lower()) for grant in principal.grants
            ],
            server_version=__version__,
        )

    def diff_table_versions(self, request: DiffTableVersionsRequest) -> DiffTableVersionsResponse:
        """Compare two versions of a branch: the rows added, removed and updated, the columns and the indices."""
        request = request_as(DiffTableVersionsRequest, request)
        table, branch = self.resolver.table(table_id(request)), check_branch(request.branch)
        older, newer = (
            self.services.datasets.at(table, branch, version) for version in (request.from_version, request.to_version)
        )
        with typed_errors():
            found = {
                "rows_before": older.count_rows(),
                "rows_after": newer.count_rows(),
                **_count_changes(older, newer),
                **compare_schemas(older, newer),
            }
        return DiffTableVersionsResponse.model_validate(
            {"from": request.from_version, "to": request.to_version, **found}
        )

    def get_table_stats(self, request: GetTableStatsRequest) -> GetTableStatsResponse:
        """Return the sizes and row counts of a table, without deleted rows."""
        request = request_as(GetTableStatsRequest, request)
        table = self.resolver.table(table_id(request))
        dataset = self.services.datasets.at(table, check_branch(request.branch), None)
        with typed_errors():
            fragments = dataset.get_fragments()
            lengths = [fragment.physical_rows - fragment.num_deletions for fragment in fragments]
            sizes = [file.file_size_bytes or 0 for fragment in fragments for file in fragment.metadata.files]
            indices = len(dataset.describe_indices())
        return GetTableStatsResponse(
            total_bytes=sum(sizes),
            num_rows=sum(lengths),
            num_indices=indices,
            fragment_stats=FragmentStats(
                num_fragments=len(lengths),
                num_small_fragments=sum(length < _SMALL_ROWS for length in lengths),
                lengths=_summary(lengths),
            ),
        )

    def list_table_fragments(self, request: ListTableFragmentsRequest) -> ListTableFragmentsResponse:
        """List the fragments of a table with their rows and bytes."""
        request = request_as(ListTableFragmentsRequest, request)
        table, branch = self.resolver.table(table_id(request)), check_branch(request.branch)
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_FRAGMENTS, request.page_token, (int,))
        dataset = self.services.datasets.at(table, branch, request.version)
        with typed_errors():
            fragments = sorted(dataset.get_fragments(), key=lambda fragment: fragment.fragment_id)
            found = [
                TableFragment(
                    id=fragment.fragment_id,
                    rows=fragment.physical_rows - fragment.num_deletions,
                    deleted_rows=fragment.num_deletions,
                    files=len(fragment.metadata.files),
                    bytes=sum(file.file_size_bytes or 0 for file in fragment.metadata.files),
                )
                for fragment in fragments
                if key is None or fragment.fragment_id > int(key[0])
            ]
        page = cut_page(_FRAGMENTS, found[: size + 1], size, lambda fragment: (fragment.id,))
        return ListTableFragmentsResponse(version=dataset.version, fragments=page.items, page_token=page.token)


def _count_changes(older: lance.LanceDataset, newer: lance.LanceDataset) -> ChangeCounts:
    """Count the rows that differ in the columns that both versions have."""
    if older.version > newer.version:  # Lance reports changes in the order in which they happened
        found = _count_changes(newer, older)
        if "rows_added" in found:
            found["rows_added"], found["rows_removed"] = found["rows_removed"], found["rows_added"]
        return found
    shared = [item.name for item in older.schema if item.name in newer.schema.names]
    try:
        rows = changes.compare(older, newer, shared)
    except changes.NotComparableError as error:
        return {"exact": False, "reason": str(error)}
    return {
        "exact": True,
        "rows_added": len(rows.added),
        "rows_removed": len(rows.removed),
        "rows_updated": len(rows.changed),
    }


def _summary(lengths: list[int]) -> FragmentSummary:
    values = np.array(lengths or [0])
    quantiles = {f"p{p}": int(np.percentile(values, p)) for p in (25, 50, 75, 99)}
    return FragmentSummary(min=int(values.min()), max=int(values.max()), mean=int(values.mean()), **quantiles)
