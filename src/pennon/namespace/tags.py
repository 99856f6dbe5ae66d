"""Operations on tags."""

from __future__ import annotations

from lance_namespace import (
    CreateTableTagRequest,
    CreateTableTagResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)
from lance_namespace.errors import TableTagAlreadyExistsError, TableTagNotFoundError
from lance_namespace_urllib3_client.models import TagContents

from pennon.catalog.tables import Table
from pennon.core.errors import suggest
from pennon.core.identifiers import format_identifier
from pennon.core.paging import cut_page, decode_token, page_size
from pennon.namespace.operations import Operations, request_as, table_id
from pennon.storage import refs
from pennon.storage.layout import check_branch

_LISTING = "tags"


class TagOperations(Operations):
    """Name versions, and move or remove their names. A tag is one file: whoever creates it first has it."""

    def list_table_tags(self, request: ListTableTagsRequest) -> ListTableTagsResponse:
        """List the tags of a table by name."""
        request = request_as(ListTableTagsRequest, request)
        table = self._table(table_id(request))
        size = page_size(request.limit, self.services.settings.page_limit)
        key = decode_token(_LISTING, request.page_token, (str,))
        after = str(key[0]) if key else ""
        found = sorted(refs.tags(self.services.storage_root.folder(table.location)), key=lambda ref: ref.name)
        ahead = [ref for ref in found if ref.name > after]
        page = cut_page(_LISTING, ahead[: size + 1], size, lambda ref: (ref.name,))
        return ListTableTagsResponse(tags={ref.name: _contents(ref) for ref in page.items}, page_token=page.token)

    def get_table_tag_version(self, request: GetTableTagVersionRequest) -> GetTableTagVersionResponse:
        """Return the version a tag points to."""
        request = request_as(GetTableTagVersionRequest, request)
        found = self._tag(self._table(table_id(request)), request.tag)
        return GetTableTagVersionResponse(version=found.version, branch=found.branch or None)

    def create_table_tag(self, request: CreateTableTagRequest) -> CreateTableTagResponse:
        """Create a tag on a version that exists."""
        request = request_as(CreateTableTagRequest, request)
        table = self._table(table_id(request))
        path = refs.tag_path(request.tag)
        branch = check_branch(request.branch)
        with (
            self._not_found_if_dropped(table),
            self.services.writer.turn(table),
        ):  # the version stays until the tag is there
            version = self.services.history.find(table, branch, request.version)
            content = refs.tag_content(branch, version.version, version.size)
            if self.services.storage_root.folder(table.location).put_if_absent(path, content) is None:
                raise TableTagAlreadyExistsError(f"Tag {request.tag!r} already exists; update it, or name another.")
        return CreateTableTagResponse(transaction_id=self._note("CreateTableTag", table))

    def update_table_tag(self, request: UpdateTableTagRequest) -> UpdateTableTagResponse:
        """Move a tag to another version that exists."""
        request = request_as(UpdateTableTagRequest, request)
        table = self._table(table_id(request))
        path = refs.tag_path(request.tag)
        branch = check_branch(request.branch)
        with self._not_found_if_dropped(table), self.services.writer.turn(table):
            before = self._tag(table, request.tag)
            version = self.services.history.find(table, branch, request.version)
            content = refs.tag_content(branch, version.version, version.size, before)
            self.services.storage_root.folder(table.location).replace(path, content)
        return UpdateTableTagResponse(transaction_id=self._note("UpdateTableTag", table))

    def delete_table_tag(self, request: DeleteTableTagRequest) -> DeleteTableTagResponse:
        """Remove a tag; the version it pointed to stays."""
        request = request_as(DeleteTableTagRequest, request)
        table = self._table(table_id(request))
        path = refs.tag_path(request.tag)
        with self._not_found_if_dropped(table), self.services.writer.turn(table):
            folder = self.services.storage_root.folder(table.location)
            if not refs.remove_malformed(folder, request.tag, "tag"):
                self._tag(table, request.tag)
                folder.remove(path)
        return DeleteTableTagResponse(transaction_id=self._note("DeleteTableTag", table))

    def _tag(self, table: Table, name: str) -> refs.Ref:
        known = {ref.name: ref for ref in refs.tags(self.services.storage_root.folder(table.location))}
        if name not in known:
            shown = format_identifier(table.identifier)
            raise TableTagNotFoundError(f"Table {shown!r} has no tag {name!r}.{suggest(name, known)}")
        return known[name]


def _contents(ref: refs.Ref) -> TagContents:
    return TagContents(
        branch=ref.branch or None, version=ref.version, manifestSize=int(ref.content.get("manifestSize") or 0)
    )
