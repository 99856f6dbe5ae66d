"""Operations on branches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NotRequired, TypedDict

import lance_namespace as ln
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableBranchAlreadyExistsError,
)
from lance_namespace_urllib3_client.models import BranchContents

from pennon.catalog import column_states, column_writes, maintenance_state, removals, versions
from pennon.catalog.tables import Table
from pennon.core.paging import cut_page
from pennon.namespace.requests import name_cursor, request_as, table_id
from pennon.namespace.resolver import TableResolver, missing_branch
from pennon.namespace.transaction_records import record_after, transaction_recorder
from pennon.services import Services
from pennon.storage import refs
from pennon.storage.layout import branch_folder, check_branch
from pennon.tables.comparison import compare, merge_branch
from pennon.tables.lance_errors import typed_errors
from pennon.views import pins

if TYPE_CHECKING:
    import lance

    from pennon.catalog import Connection
    from pennon.core.identifiers import Identifier
    from pennon.storage.file_io import FileIO
    from pennon.tables.comparison import Comparison

Json = dict[str, object]

_LISTING = "branches"


class CherryPickResult(TypedDict):
    """The outcome of a cherry-pick, as LanceDB's client reads it."""

    status: str
    diff: Json
    preview: dict[str, list[str]]
    mainVersionAfter: NotRequired[int]


@dataclass(frozen=True)
class BranchOperations:
    """Create, list, compare, cherry-pick and delete branches."""

    services: Services
    resolver: TableResolver

    def list_table_branches(self, request: ln.ListTableBranchesRequest) -> ln.ListTableBranchesResponse:
        """List the branches of a table by name."""
        request = request_as(ln.ListTableBranchesRequest, request)
        table = self.resolver.table(table_id(request))
        size, after = name_cursor(_LISTING, request, self.services.settings.page_limit)
        found = sorted(self.resolver.branches(table).values(), key=lambda ref: ref.name)
        ahead = [ref for ref in found if ref.name > after]
        page = cut_page(_LISTING, ahead[: size + 1], size, lambda ref: (ref.name,))
        branches = {ref.name: _contents(ref) for ref in page.items}
        return ln.ListTableBranchesResponse(branches=branches, page_token=page.token)

    def create_table_branch(self, request: ln.CreateTableBranchRequest) -> ln.CreateTableBranchResponse:
        """Create a branch from a version, by default the newest of main."""
        request = request_as(ln.CreateTableBranchRequest, request)
        table = self.resolver.table(table_id(request))
        name = check_branch(request.name)
        if not name:
            raise InvalidInputError("Every table has the branch 'main'; choose another name.")
        source = check_branch(request.from_branch)
        with self.resolver.not_found_if_dropped(table):
            start = self.services.datasets.at(table, source, request.from_version).version

        def work(dataset: lance.LanceDataset) -> None:
            if name in self.resolver.branches(table):
                raise TableBranchAlreadyExistsError(f"Branch {name!r} already exists; name another.")
            self.services.history.find(table, source, start)  # a cleanup may have removed it before the lock was held
            dataset.create_branch(name, (source or None, start))

        _, written = self.services.writer.change(
            table, "", transaction_recorder("CreateTableBranch", table), work, exclusive=True
        )
        return ln.CreateTableBranchResponse(transaction_id=written.transaction_id)

    def delete_table_branch(self, request: ln.DeleteTableBranchRequest) -> ln.DeleteTableBranchResponse:
        """Delete a branch that no tag, branch or view refers to."""
        request = request_as(ln.DeleteTableBranchRequest, request)
        table = self.resolver.table(table_id(request))
        name = check_branch(request.name)
        folder = self.resolver.folder(table)

        def delete_records(connection: Connection) -> None:
            versions.delete_branch(connection, table.id, name)
            column_states.delete_branch(connection, table.id, name)
            column_writes.delete_branch(connection, table.id, name)
            maintenance_state.delete_branch(connection, table.id, name)
            removals.delete_branch(connection, table.id, name)

        def work(dataset: lance.LanceDataset) -> None:
            known = self.resolver.branches(table)
            if refs.remove_malformed(folder, name, "branch"):
                _remove_leftovers(folder, name)
                self.services.database.write(delete_records)
                return
            if name not in known:
                raise missing_branch(request.name, known)
            if malformed := refs.malformed(folder):
                raise InvalidInputError(f"The file of {malformed[0]} in _refs is malformed; delete that one first.")
            found = [*refs.all_tags(folder), *known.values()]
            held = self.services.database.read(lambda connection: pins.describe_pins(connection, found))
            # Jobs do not hold a branch: they fail, and say why.
            needed = [str(ref) for ref in held if ref.branch == name and ref.kind != "job"]
            if needed:
                raise InvalidTableStateError(
                    f"The branch {name!r} is needed by {', '.join(needed)}; delete those first."
                )
            pins.release_job_pins(folder, name)  # Lance does not delete a branch that has a tag
            dataset.branches.delete(name)
            _remove_leftovers(folder, name)
            self.services.database.write(delete_records)

        self.services.writer.change(table, "", transaction_recorder("DeleteTableBranch", table), work, exclusive=True)
        return ln.DeleteTableBranchResponse(
            transaction_id=record_after(self.services.database, "DeleteTableBranch", table)
        )

    def diff_branch(self, identifier: Identifier, branch: str) -> Json:
        """Compare a branch with main."""
        return _comparison_json(self._compare(self.resolver.table(identifier), branch))

    def cherry_pick(self, identifier: Identifier, branch: str, *, dry_run: bool) -> CherryPickResult:
        """Copy the columns and rows that a branch adds to main, or return why that is not possible."""
        table = self.resolver.writable_table(identifier)
        comparison = self._compare(table, branch)
        promoted = [] if comparison.blockers else [column.name for column in comparison.added]
        response: CherryPickResult = {
            "status": "failed" if comparison.blockers else "ready",
            "diff": _comparison_json(comparison),
            "preview": {"promotedColumns": promoted},
        }
        if comparison.blockers or dry_run:
            return response

        def work(main: lance.LanceDataset) -> None:
            merge_branch(main, comparison)

        _, written = self.services.writer.change(
            table, "", transaction_recorder("CherryPick", table), work, exclusive=True
        )
        return {**response, "status": "cherryPicked", "mainVersionAfter": written.version}

    def _compare(self, table: Table, branch: str) -> Comparison:
        name = check_branch(branch)
        known = self.resolver.branches(table)
        if name not in known:
            raise missing_branch(branch, known)
        if known[name].branch:
            raise InvalidInputError(f"The branch {name!r} starts from {known[name].branch!r}, not from main.")
        main = self.services.datasets.at(table, "", None)
        other = self.services.datasets.at(table, name, None)
        with typed_errors():
            return compare(main, other, name, known[name].version, partial(self.services.datasets.at, table, ""))


def _remove_leftovers(folder: FileIO, branch: str) -> None:
    """Remove the files that Lance leaves when the name of another branch begins with the name of this one."""
    for kind in ("_versions", "_transactions", "_deletions", "data"):
        for file in list(folder.files(f"{branch_folder(branch)}{kind}")):
            folder.remove(file.path)


def _contents(ref: refs.Ref) -> BranchContents:
    return BranchContents(
        parentBranch=ref.branch or None,
        parentVersion=ref.version,
        createAt=int(ref.content.get("createAt") or 0),
        manifestSize=int(ref.content.get("manifestSize") or 0),
        metadata=ref.content.get("metadata") or None,
    )


def _comparison_json(found: Comparison) -> Json:
    """Return a comparison as LanceDB's clients read it; the client for Node.js reads the last two fields."""
    return {**found.to_json(), "mergeable": not found.blockers, "mergeBlockers": found.blockers}
