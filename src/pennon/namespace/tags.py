"""Operations on tags."""

from __future__ import annotations

from dataclasses import dataclass

import lance_namespace as ln
from lance_namespace.errors import TableTagAlreadyExistsError
from lance_namespace_urllib3_client.models import TagContents

from pennon.core.paging import cut_page
from pennon.namespace.requests import name_cursor, request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import record_after
from pennon.services import Services
from pennon.storage import refs
from pennon.storage.layout import check_branch

_LISTING = "tags"


@dataclass(frozen=True)
class TagOperations:
    """Create, list, update and delete tags. A tag is one file, so only one of several concurrent creates succeeds."""

    services: Services
    resolver: TableResolver

    def list_table_tags(self, request: ln.ListTableTagsRequest) -> ln.ListTableTagsResponse:
        """List the tags of a table by name."""
        request = request_as(ln.ListTableTagsRequest, request)
        table = self.resolver.table(table_id(request))
        size, after = name_cursor(_LISTING, request, self.services.settings.page_limit)
        found = sorted(refs.tags(self.resolver.folder(table)), key=lambda ref: ref.name)
        ahead = [ref for ref in found if ref.name > after]
        page = cut_page(_LISTING, ahead[: size + 1], size, lambda ref: (ref.name,))
        return ln.ListTableTagsResponse(tags={ref.name: _contents(ref) for ref in page.items}, page_token=page.token)

    def get_table_tag_version(self, request: ln.GetTableTagVersionRequest) -> ln.GetTableTagVersionResponse:
        """Return the version a tag points to."""
        request = request_as(ln.GetTableTagVersionRequest, request)
        found = self.resolver.tag(self.resolver.table(table_id(request)), request.tag)
        return ln.GetTableTagVersionResponse(version=found.version, branch=found.branch or None)

    def create_table_tag(self, request: ln.CreateTableTagRequest) -> ln.CreateTableTagResponse:
        """Create a tag on an existing version."""
        request = request_as(ln.CreateTableTagRequest, request)
        table = self.resolver.table(table_id(request))
        path = refs.tag_path(request.tag)
        branch = check_branch(request.branch)
        # The lock keeps the version from being deleted before it has the tag.
        with self.resolver.not_found_if_dropped(table), self.services.writer.lock(table):
            version = self.services.history.find(table, branch, request.version)
            content = refs.tag_content(branch, version.version, version.size)
            if self.resolver.folder(table).put_if_absent(path, content) is None:
                raise TableTagAlreadyExistsError(f"Tag {request.tag!r} already exists; update it, or name another.")
        return ln.CreateTableTagResponse(transaction_id=record_after(self.services.database, "CreateTableTag", table))

    def update_table_tag(self, request: ln.UpdateTableTagRequest) -> ln.UpdateTableTagResponse:
        """Move a tag to another existing version."""
        request = request_as(ln.UpdateTableTagRequest, request)
        table = self.resolver.table(table_id(request))
        path = refs.tag_path(request.tag)
        branch = check_branch(request.branch)
        with self.resolver.not_found_if_dropped(table), self.services.writer.lock(table):
            before = self.resolver.tag(table, request.tag)
            version = self.services.history.find(table, branch, request.version)
            content = refs.tag_content(branch, version.version, version.size, before)
            self.resolver.folder(table).replace(path, content)
        return ln.UpdateTableTagResponse(transaction_id=record_after(self.services.database, "UpdateTableTag", table))

    def delete_table_tag(self, request: ln.DeleteTableTagRequest) -> ln.DeleteTableTagResponse:
        """Delete a tag; its version stays."""
        request = request_as(ln.DeleteTableTagRequest, request)
        table = self.resolver.table(table_id(request))
        path = refs.tag_path(request.tag)
        with self.resolver.not_found_if_dropped(table), self.services.writer.lock(table):
            folder = self.resolver.folder(table)
            if not refs.remove_malformed(folder, request.tag, "tag"):
                self.resolver.tag(table, request.tag)
                folder.remove(path)
        return ln.DeleteTableTagResponse(transaction_id=record_after(self.services.database, "DeleteTableTag", table))


def _contents(ref: refs.Ref) -> TagContents:
    return TagContents(
        branch=ref.branch or None, version=ref.version, manifestSize=int(ref.content.get("manifestSize") or 0)
    )
