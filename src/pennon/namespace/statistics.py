"""The statistics of a table, and going back to an earlier version of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from lance_namespace import GetTableStatsRequest, GetTableStatsResponse, RestoreTableRequest, RestoreTableResponse
from lance_namespace_urllib3_client.models import FragmentStats, FragmentSummary

from pennon.namespace.operations import Operations, request_as, table_id, transaction_recorder
from pennon.storage.layout import check_branch
from pennon.tables.lance_errors import typed_errors

#: Fragments with fewer rows than this gain by compaction.
_SMALL_ROWS = 100_000


class StatisticsOperations(Operations):
    """Tell what a table holds, and restore versions."""

    def get_table_stats(self, request: GetTableStatsRequest) -> GetTableStatsResponse:
        """Return sizes and counts of a table; deleted rows do not count."""
        request = request_as(GetTableStatsRequest, request)
        table = self._table(table_id(request))
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

    def restore_table(self, request: RestoreTableRequest) -> RestoreTableResponse:
        """Make an earlier version the newest one, as a new version."""
        request = request_as(RestoreTableRequest, request)
        table = self._writable(table_id(request))
        branch = check_branch(request.branch)
        version = request.version
        if version is not None:
            self.services.history.find(table, branch, version)

        def work(dataset: Any) -> None:
            if version is not None:
                dataset.checkout_version((branch or None, version) if branch else version).restore()

        _, written = self.services.writer.change(table, branch, transaction_recorder("RestoreTable", table), work)
        transaction_id = written.transaction_id or self._note("RestoreTable", table)
        return RestoreTableResponse(transaction_id=transaction_id)


def _summary(lengths: list[int]) -> FragmentSummary:
    values = np.array(lengths or [0])
    quantiles = {f"p{p}": int(np.percentile(values, p)) for p in (25, 50, 75, 99)}
    return FragmentSummary(min=int(values.min()), max=int(values.max()), mean=int(values.mean()), **quantiles)
