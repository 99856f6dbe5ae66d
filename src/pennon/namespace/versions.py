"""Operations on versions: the commit protocol as clients know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lance_namespace import (
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
)
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
from pennon.namespace.operations import Operations, record_transaction, request_as, table_id
from pennon.storage import refs
from pennon.storage.layout import check_branch, versions_folder
from pennon.views import pins

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version

_LISTING = {False: "versions", True: "versions_descending"}


class VersionOperations(Operations):
    """Create, list, describe and delete versions."""

    def create_table_version(self, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
        """Commit a version whose manifest the client staged."""
        request = request_as(CreateTableVersionRequest, request)
        table = self._table(table_id(request))
        (version,) = self.services.authority.commit(
            [(table, proposal_of(request))],
            lambda connection: record_transaction(connection, "CreateTableVersion", table.identifier),
            by_client=True,
        )
        return CreateTableVersionResponse(
            transaction_id=version.transaction_id, version=self.version_model(table, version)
        )

    def batch_create_table_versions(self, request: BatchCreateTableVersionsRequest) -> BatchCreateTableVersionsResponse:
        """Commit versions of several tables: all of them, or none."""
        request = request_as(BatchCreateTableVersionsRequest, request)
        if not request.entries:
            raise InvalidInputError("The batch is empty.")
        entries = [(self._table(table_id(entry)), proposal_of(entry)) for entry in request.entries]
        check_distinct(entries)
        common = common_namespace([table.identifier for table, _ in entries])
        ids: list[str] = []

        def note(connection: Connection) -> str:
            ids[:] = [record_transaction(connection, "BatchCreateTableVersions", common)]
            return ids[0]

        committed = self.services.authority.commit(entries, note, by_client=True)
        return BatchCreateTableVersionsResponse(
            transaction_id=ids[0] if ids else committed[0].transaction_id,
            versions=[self.version_model(table, v) for (table, _), v in zip(entries, committed, strict=True)],
        )

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        """List the versions of a table, oldest first unless told otherwise."""
        request = request_as(ListTableVersionsRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        descending = bool(request.descending)
        size = page_size(request.limit, self.services.settings.page_limit)
        listing = _LISTING[descending]
        key = decode_token(listing, request.page_token, (int,))
        after = int(key[0]) if key else None
        # One version more than asked tells whether a page follows.
        found = self.services.history.page(table, branch, after=after, descending=descending, limit=size + 1)
        page = cut_page(listing, found, size, lambda version: (version.version,))
        return ListTableVersionsResponse(
            versions=[self.version_model(table, version) for version in page.items], page_token=page.token
        )

    def describe_table_version(self, request: DescribeTableVersionRequest) -> DescribeTableVersionResponse:
        """Return one version, by default the newest."""
        request = request_as(DescribeTableVersionRequest, request)
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        if request.version is not None:
            found = self.services.history.find(table, branch, request.version)
        else:
            newest = self.services.history.latest(table, branch)
            if newest is None:
                name = format_identifier(table.identifier)
                raise TableVersionNotFoundError(f"Table {name!r} has no version yet.")
            found = newest
        return DescribeTableVersionResponse(version=self.version_model(table, found))

    def batch_delete_table_versions(self, request: BatchDeleteTableVersionsRequest) -> BatchDeleteTableVersionsResponse:
        """Delete old versions: their records and manifests, never one that is still needed."""
        request = request_as(BatchDeleteTableVersionsRequest, request)
        with self.services.writer.turn(self._table(table_id(request))):  # nobody gives a name to what goes
            table, branch, doomed = self.plan_deletion(request)
            if table.managed:
                transaction_id = self._write(lambda connection: self.delete_records(connection, table, branch, doomed))
            else:
                transaction_id = self._write(
                    lambda connection: record_transaction(connection, "BatchDeleteTableVersions", table.identifier)
                )
            self.delete_manifests(table, doomed)
        return BatchDeleteTableVersionsResponse(deleted_count=len(doomed), transaction_id=transaction_id)

    def plan_deletion(self, request: BatchDeleteTableVersionsRequest) -> tuple[Table, str, list[Version]]:
        """Return the versions a request would delete, or raise the error that names those that must stay."""
        table = self._table(table_id(request))
        branch = check_branch(request.branch)
        if not request.ranges:
            raise InvalidInputError("The request names no range of versions.")
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

    def delete_records(self, connection: Connection, table: Table, branch: str, doomed: Sequence[Version]) -> str:
        """Delete the records of versions inside a transaction and return that transaction's id."""
        versions.delete_numbers(connection, table.id, branch, [version.version for version in doomed])
        return record_transaction(connection, "BatchDeleteTableVersions", table.identifier)

    def delete_manifests(self, table: Table, doomed: Sequence[Version]) -> None:
        """Delete the manifests of versions whose records are gone."""
        folder = self.services.storage_root.folder(table.location)
        for version in doomed:
            folder.remove(f"{versions_folder(version.branch)}/{version.manifest}")

    def version_model(self, table: Table, version: Version) -> TableVersion:
        """Return a version as the protocol shows it."""
        return TableVersion(
            version=version.version,
            manifest_path=manifest_path(version, self.services.storage_root.folder(table.location)),
            manifest_size=version.size,
            e_tag=version.e_tag,
            timestamp_millis=version.created_at,
            metadata=version.metadata or None,
        )

    def _known_versions(self, table: Table, branch: str) -> dict[int, Version]:
        if table.managed:
            rows = self._read(lambda connection: versions.in_range(connection, table.id, branch, 0, None))
        else:
            rows = stored_versions(self.services.storage_root.folder(table.location), table.id, branch)
        return {version.version: version for version in rows}

    def _needed(self, table: Table, branch: str) -> dict[int, list[str]]:
        needed: dict[int, list[str]] = {}
        folder = self.services.storage_root.folder(table.location)
        found = [*refs.all_tags(folder), *refs.branches(folder)]
        for ref in self._read(lambda connection: pins.name_views(connection, found)):
            if ref.branch == branch:
                needed.setdefault(ref.version, []).append(str(ref))
        return needed


def proposal_of(request: CreateTableVersionRequest | CreateTableVersionEntry) -> Proposal:
    """Return what a request proposes to commit."""
    if request.version > versions.HIGHEST:
        raise InvalidInputError(f"version is {request.version}; no table gets that far.")
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
