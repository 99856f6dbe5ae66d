"""Operations on branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_namespace import (
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
)
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
)
from lance_namespace_urllib3_client.models import BranchContents

from pennon.catalog import column_states, column_writes, versions
from pennon.catalog.tables import Table
from pennon.core.errors import suggest
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.namespace.operations import Operations, request_as, table_id, transaction_recorder
from pennon.storage import refs
from pennon.storage.layout import branch_folder, check_branch
from pennon.views import pins

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.storage.file_io import FileIO

_LISTING = "branches"


class BranchOperations(Operations):
    """Create, list and delete branches."""

    def list_table_branches(self, request: ListTableBranchesRequest) -> ListTableBranchesResponse:
        """List the branches of a table by name."""
        request = request_as(ListTableBranchesRequest, request)
        table = self._table(table_id(request))
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_LISTING, request.page_token, (str,))
        after = str(key[0]) if key else ""
        found = sorted(self._branches(table).values(), key=lambda ref: ref.name)
        ahead = [ref for ref in found if ref.name > after]
        page = cut_page(_LISTING, ahead[: size + 1], size, lambda ref: (ref.name,))
        branches = {ref.name: _contents(ref) for ref in page.items}
        return ListTableBranchesResponse(branches=branches, page_token=page.token)

    def create_table_branch(self, request: CreateTableBranchRequest) -> CreateTableBranchResponse:
        """Create a branch from a version, by default the newest of main."""
        request = request_as(CreateTableBranchRequest, request)
        table = self._table(table_id(request))
        name = check_branch(request.name)
        if not name:
            raise InvalidInputError("'main' is the branch every table has; name another one.")
        source = check_branch(request.from_branch)
        with self._not_found_if_dropped(table):
            start = self.services.datasets.at(table, source, request.from_version).version

        def work(opened: Any) -> None:
            if name in self._branches(table):
                raise TableBranchAlreadyExistsError(f"Branch {name!r} already exists; name another.")
            opened.create_branch(name, (source or None, start))

        _, written = self.services.writer.change(
            table, "", transaction_recorder("CreateTableBranch", table), work, alone=True
        )
        return CreateTableBranchResponse(transaction_id=written.transaction_id)

    def delete_table_branch(self, request: DeleteTableBranchRequest) -> DeleteTableBranchResponse:
        """Delete a branch that nothing points into."""
        request = request_as(DeleteTableBranchRequest, request)
        table = self._table(table_id(request))
        name = check_branch(request.name)
        folder = self.services.storage_root.folder(table.location)

        def forget(connection: Connection) -> None:
            versions.delete_branch(connection, table.id, name)
            column_states.delete_branch(connection, table.id, name)
            column_writes.delete_branch(connection, table.id, name)

        def work(opened: Any) -> None:
            known = self._branches(table)
            if refs.remove_malformed(folder, name, "branch"):
                _remove_remains(folder, name)
                self._write(forget)
                return
            if name not in known:
                raise TableBranchNotFoundError(f"The table has no branch {request.name!r}.{suggest(name, known)}")
            if unread := refs.malformed(folder):
                raise InvalidInputError(f"The file of {unread[0]} in _refs is malformed; delete that one first.")
            found = [*refs.all_tags(folder), *known.values()]
            held = self._read(lambda connection: pins.name_views(connection, found))
            needed = [str(ref) for ref in held if ref.branch == name and ref.kind != "job"]  # a job fails, and says so
            if needed:
                raise InvalidTableStateError(
                    f"The branch {name!r} is needed by {', '.join(needed)}; delete those first."
                )
            pins.release_jobs(folder, name)  # Lance deletes no branch that a tag is on
            opened.branches.delete(name)
            _remove_remains(folder, name)
            self._write(forget)

        self.services.writer.change(table, "", transaction_recorder("DeleteTableBranch", table), work, alone=True)
        return DeleteTableBranchResponse(transaction_id=self._note("DeleteTableBranch", table))

    def _branches(self, table: Table) -> dict[str, refs.Ref]:
        return {ref.name: ref for ref in refs.branches(self.services.storage_root.folder(table.location))}


def _remove_remains(folder: FileIO, branch: str) -> None:
    """Remove what Lance leaves of a branch while the name of another begins with its own: it would be found again."""
    for place in ("_versions", "_transactions", "_deletions", "data"):
        for file in list(folder.files(f"{branch_folder(branch)}{place}")):
            folder.remove(file.path)


def _contents(ref: refs.Ref) -> BranchContents:
    return BranchContents(
        parentBranch=ref.branch or None,
        parentVersion=ref.version,
        createAt=int(ref.content.get("createAt") or 0),
        manifestSize=int(ref.content.get("manifestSize") or 0),
        metadata=ref.content.get("metadata") or None,
    )
