"""Operations on versions: the commit protocol of Lance's clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance_namespace as ln
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableVersionNotFoundError,
)
from lance_namespace_urllib3_client.models import CreateTableVersionEntry, TableVersion, VersionRange

from pennon.catalog import versions
from pennon.commits.history import manifest_path, stored_versions
from pennon.commits.staging import Proposal
from pennon.core.identifiers import common_namespace, format_identifier
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.namespace.requests import request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import record_after, record_transaction, transaction_recorder
from pennon.services import Services
from pennon.storage import refs
from pennon.storage.layout import check_branch, versions_folder
from pennon.views import pins

if TYPE_CHECKING:
    import lance

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version

_LISTING = {False: "versions", True: "versions_descending"}


@dataclass(frozen=True)
class VersionOperations:
    """Create, list, describe, delete and restore versions."""

    services: Services
    resolver: TableResolver

    def create_table_version(self, request: ln.CreateTableVersionRequest) -> ln.CreateTableVersionResponse:
        """Commit a version whose manifest the client has staged."""
        request = request_as(ln.CreateTableVersionRequest, request)
        table = self.resolver.table(table_id(request))
        (version,) = self.services.authority.commit(
            [(table, proposal_of(request))],
            lambda connection: record_transaction(connection, "CreateTableVersion", table.identifier),
            by_client=True,
        )
        return ln.CreateTableVersionResponse(
            transaction_id=version.transaction_id, version=self.version_model(table, version)
        )

    def batch_create_table_versions(
        self, request: ln.BatchCreateTableVersionsRequest
    ) -> ln.BatchCreateTableVersionsResponse:
        """Commit versions of several tables: all of them, or none."""
        request = request_as(ln.BatchCreateTableVersionsRequest, request)
        if not request.entries:
            raise InvalidInputError("The batch is empty.")
        entries = [(self.resolver.table(table_id(entry)), proposal_of(entry)) for entry in request.entries]
        check_distinct(entries)
        common = common_namespace([table.identifier for table, _ in entries])
        ids: list[str] = []

        def record(connection: Connection) -> str:
            ids[:] = [record_transaction(connection, "BatchCreateTableVersions", common)]
            return ids[0]

        committed = self.services.authority.commit(entries, record, by_client=True)
        return ln.BatchCreateTableVersionsResponse(
            transaction_id=ids[0] if ids else committed[0].transaction_id,
            versions=[self.version_model(table, v) for (table, _), v in zip(entries, committed, strict=True)],
        )

    def list_table_versions(self, request: ln.ListTableVersionsRequest) -> ln.ListTableVersionsResponse:
        """List the versions of a table, oldest first by default."""
        request = request_as(ln.ListTableVersionsRequest, request)
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        descending = bool(request.descending)
        size = page_size(request.limit, self.services.settings.page_limit)
        listing = _LISTING[descending]
        key = decode_token(listing, request.page_token, (int,))
        after = int(key[0]) if key else None
        # One version more than the page holds shows whether another page follows.
        found = self.services.history.page(table, branch, after=after, descending=descending, limit=size + 1)
        page = cut_page(listing, found, size, lambda version: (version.version,))
        return ln.ListTableVersionsResponse(
            versions=[self.version_model(table, version) for version in page.items], page_token=page.token
        )

    def describe_table_version(self, request: ln.DescribeTableVersionRequest) -> ln.DescribeTableVersionResponse:
        """Return one version, by default the newest."""
        request = request_as(ln.DescribeTableVersionRequest, request)
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        if request.version is not None:
            found = self.services.history.find(table, branch, request.version)
        else:
            newest = self.services.history.latest(table, branch)
            if newest is None:
                name = format_identifier(table.identifier)
                raise TableVersionNotFoundError(f"Table {name!r} has no version yet.")
            found = newest
        return ln.DescribeTableVersionResponse(version=self.version_model(table, found))

    def batch_delete_table_versions(
        self, request: ln.BatchDeleteTableVersionsRequest
    ) -> ln.BatchDeleteTableVersionsResponse:
        """Delete the records and manifests of old versions, but never of a version that is still needed."""
        request = request_as(ln.BatchDeleteTableVersionsRequest, request)
        # Locked, so that nobody tags a version that is being deleted.
        with self.services.writer.lock(self.resolver.table(table_id(request))):
            table, branch, to_delete = self.plan_deletion(request)
            if table.managed:
                transaction_id = self.services.database.write(
                    lambda connection: self.delete_records(connection, table, branch, to_delete)
                )
            else:
                transaction_id = self.services.database.write(
                    lambda connection: record_transaction(connection, "BatchDeleteTableVersions", table.identifier)
                )
            self.delete_manifests(table, to_delete)
        return ln.BatchDeleteTableVersionsResponse(deleted_count=len(to_delete), transaction_id=transaction_id)

    def restore_table(self, request: ln.RestoreTableRequest) -> ln.RestoreTableResponse:
        """Commit the content of an earlier version as the newest version."""
        request = request_as(ln.RestoreTableRequest, request)
        table = self.resolver.writable_table(table_id(request))
        branch = check_branch(request.branch)
        version = request.version
        if version is not None:
            self.services.datasets.at(table, branch, version)  # raises an error if it is missing or cannot be read

        def work(dataset: lance.LanceDataset) -> None:
            if version is not None:
                dataset.checkout_version((branch, version) if branch else version).restore()  # type: ignore[no-untyped-call]

        _, written = self.services.writer.change(table, branch, transaction_recorder("RestoreTable", table), work)
        transaction_id = written.transaction_id or record_after(self.services.database, "RestoreTable", table)
        return ln.RestoreTableResponse(transaction_id=transaction_id)

    def plan_deletion(self, request: ln.BatchDeleteTableVersionsRequest) -> tuple[Table, str, list[Version]]:
        """Return the versions that a request deletes, or raise the error that names those that are still needed."""
        table = self.resolver.table(table_id(request))
        branch = check_branch(request.branch)
        if not request.ranges:
            raise InvalidInputError("ranges is empty; name at least one range of versions.")
        if any(bounds.start_version < 0 or bounds.end_version < -1 for bounds in request.ranges):
            raise InvalidInputError("A range of versions starts at 0 or later and ends at -1 (all) or later.")
        if any(-1 != bounds.end_version < bounds.start_version for bounds in request.ranges):
            raise InvalidInputError("A range of versions ends before it starts; swap start_version and end_version.")
        newest = self.services.history.latest(table, branch)
        known = self._known_versions(table, branch)
        numbers = {n for bounds in request.ranges for n in known if _covers(bounds, n)}
        kept = self._needed(table, branch)
        if newest is not None:
            kept.setdefault(newest.version, []).append("it is the latest version")
        clashes = [f"{n} ({', '.join(kept[n])})" for n in sorted(numbers & kept.keys())]
        if clashes:
            raise InvalidTableStateError(f"These versions are still needed: {'; '.join(clashes)}.")
        return table, branch, [known[number] for number in sorted(numbers)]

    def delete_records(self, connection: Connection, table: Table, branch: str, to_delete: Sequence[Version]) -> str:
        """Delete the records of versions inside a transaction, and return the transaction's id."""
        versions.delete_numbers(connection, table.id, branch, [version.version for version in to_delete])
        return record_transaction(connection, "BatchDeleteTableVersions", table.identifier)

    def delete_manifests(self, table: Table, to_delete: Sequence[Version]) -> None:
        """Delete the manifests of versions whose records are deleted."""
        folder = self.resolver.folder(table)
        for version in to_delete:
            folder.remove(f"{versions_folder(version.branch)}/{version.manifest}")

    def version_model(self, table: Table, version: Version) -> TableVersion:
        """Return a version as the specification describes it."""
        return TableVersion(
            version=version.version,
            manifest_path=manifest_path(version, self.resolver.folder(table)),
            manifest_size=version.size,
            e_tag=version.e_tag,
            timestamp_millis=version.created_at,
            metadata=version.metadata or None,
        )

    def _known_versions(self, table: Table, branch: str) -> dict[int, Version]:
        if table.managed:
            rows = self.services.database.read(
                lambda connection: versions.in_range(connection, table.id, branch, 0, None)
            )
        else:
            rows = stored_versions(self.resolver.folder(table), table.id, branch)
        return {version.version: version for version in rows}

    def _needed(self, table: Table, branch: str) -> dict[int, list[str]]:
        needed: dict[int, list[str]] = {}
        folder = self.resolver.folder(table)
        found = [*refs.all_tags(folder), *refs.branches(folder)]
        for ref in self.services.database.read(lambda connection: pins.describe_pins(connection, found)):
            if ref.branch == branch:
                needed.setdefault(ref.version, []).append(str(ref))
        return needed


def proposal_of(request: ln.CreateTableVersionRequest | CreateTableVersionEntry) -> Proposal:
    """Return the commit that a request proposes."""
    if request.version > versions.HIGHEST:
        raise InvalidInputError(f"version is {request.version}; it must be at most {versions.HIGHEST}.")
    return Proposal(
        version=request.version,
        manifest_path=request.manifest_path,
        branch=check_branch(request.branch),
        manifest_size=request.manifest_size,
        e_tag=request.e_tag,
        naming_scheme=request.naming_scheme,
        metadata=request.metadata or {},
    )


def check_distinct(entries: Sequence[tuple[Table, Proposal]]) -> None:
    """Refuse a batch that names one version twice."""
    keys = [(table.id, proposal.branch, proposal.version) for table, proposal in entries]
    if len(set(keys)) < len(keys):
        raise InvalidInputError("The batch names the same version of a table twice.")


def _covers(bounds: VersionRange, number: int) -> bool:
    start, end = bounds.start_version, bounds.end_version
    return start <= number and (end == -1 or number < end)
