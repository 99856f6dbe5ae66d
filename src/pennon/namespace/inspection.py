"""Operations for those who look at tables: who am I, what changed, what lies on storage, what fills a column."""

from __future__ import annotations

from typing import Any

from lance_namespace.errors import InvalidInputError

from pennon import __version__
from pennon.columns.feature_columns import find_feature_column
from pennon.core.caller import ANONYMOUS_ADMIN, current_caller
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.functions.envelope import Envelope
from pennon.namespace.feature_columns import BackfillOperations
from pennon.namespace.models.inspection import (
    CallerGrant,
    CallerRequest,
    DescribeCallerResponse,
    DescribeColumnFunctionRequest,
    DescribeColumnFunctionResponse,
    DiffTableVersionsRequest,
    DiffTableVersionsResponse,
    ListTableFragmentsRequest,
    ListTableFragmentsResponse,
    TableFragment,
)
from pennon.namespace.operations import request_as, table_id
from pennon.storage.layout import check_branch
from pennon.tables.comparison import compare_schemas
from pennon.tables.lance_errors import typed_errors
from pennon.views.refresh import changes

_FRAGMENTS = "fragments"


class InspectionOperations(BackfillOperations):
    """Tell what a table is made of, and the caller who it is."""

    def describe_caller(self, request: CallerRequest) -> DescribeCallerResponse:
        """Return who calls and what it may do."""
        request_as(CallerRequest, request)
        principal = current_caller().principal
        return DescribeCallerResponse(
            name=principal.name,
            recognised_by_key=principal is not ANONYMOUS_ADMIN,
            grants=[
                CallerGrant(namespace=list(grant.namespace), role=grant.role.name.lower()) for grant in principal.grants
            ],
            server_version=__version__,
        )

    def diff_table_versions(self, request: DiffTableVersionsRequest) -> DiffTableVersionsResponse:
        """Count the rows that one version of a branch has added, removed and updated since another."""
        request = request_as(DiffTableVersionsRequest, request)
        table, branch = self._table(table_id(request)), check_branch(request.branch)
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

    def list_table_fragments(self, request: ListTableFragmentsRequest) -> ListTableFragmentsResponse:
        """List the fragments of a table with their rows and bytes."""
        request = request_as(ListTableFragmentsRequest, request)
        table, branch = self._table(table_id(request)), check_branch(request.branch)
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

    def describe_column_function(self, request: DescribeColumnFunctionRequest) -> DescribeColumnFunctionResponse:
        """Return what fills a column, without loading it."""
        request = request_as(DescribeColumnFunctionRequest, request)
        if not request.column:
            raise InvalidInputError("The request names no column.")
        table, branch = self._table(table_id(request)), check_branch(request.branch)
        column = find_feature_column(self.services.datasets.at(table, branch, None), request.column)
        envelope = self._envelope_of(table, column)
        answer = DescribeColumnFunctionResponse(
            column=request.column,
            columns=[output.path for output in column.outputs],
            inputs=list(column.inputs),
            name=column.name,
            version=column.version,
            digest=column.digest,
            kind="expression",
            expression=column.expression,
            auto_backfill=column.auto_backfill,
        )
        return answer if envelope is None else answer.model_copy(update=known_of(envelope))


def known_of(envelope: Envelope) -> dict[str, Any]:
    """Return what is told of a function, wherever it is used."""
    return {
        "digest": envelope.digest,
        "kind": envelope.kind,
        "stateful": envelope.stateful,
        "python": envelope.python,
        "packages": dict(envelope.packages),
        "options": envelope.options.to_json(),
        "source": envelope.source,
    }


def _count_changes(older: Any, newer: Any) -> dict[str, Any]:
    """Count the rows that differ, as far as the columns tell that both versions have."""
    if older.version > newer.version:  # changes are told in the order in which they happened
        found = _count_changes(newer, older)
        if found["exact"]:
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
        "rows_removed": len(rows.gone),
        "rows_updated": len(rows.changed),
    }
