"""Multipart uploads, as LanceDB's remote client sends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace import InsertIntoTableResponse

from pennon.namespace.dependents import Dependents
from pennon.namespace.models.extensions import BeginUploadResponse, CompleteUploadResponse, EmptyResponse
from pennon.namespace.resolver import TableResolver
from pennon.namespace.transaction_records import transaction_recorder
from pennon.services import Services
from pennon.storage.layout import check_branch

if TYPE_CHECKING:
    from pennon.core.identifiers import Identifier
    from pennon.tables.arrow_stream import ArrowSource


@dataclass(frozen=True)
class UploadOperations:
    """Write the parts of an upload, and commit them as one version."""

    services: Services
    resolver: TableResolver
    dependents: Dependents

    def begin_upload(self, identifier: Identifier, branch: str | None) -> BeginUploadResponse:
        """Begin a multipart upload."""
        table, name = self.resolver.writable_table(identifier), check_branch(branch)
        self.services.datasets.newest(table, name)  # raises an error if the branch does not exist
        return BeginUploadResponse(upload_id=self.services.uploads.begin(table, name))

    def add_part(
        self, identifier: Identifier, upload_id: str, part_id: str, source: ArrowSource, mode: str
    ) -> InsertIntoTableResponse:
        """Write one part of an upload; its rows are not visible before the upload is complete."""
        table = self.resolver.writable_table(identifier)
        if mode == "overwrite":
            self.dependents.check_replacement(table, self.services.uploads.branch_of(table, upload_id), source.schema)
        rows = self.services.uploads.add(table, upload_id, part_id, source, overwrite=mode == "overwrite")
        return InsertIntoTableResponse(num_inserted_rows=rows)

    def complete_upload(self, identifier: Identifier, upload_id: str) -> CompleteUploadResponse:
        """Commit all parts of an upload as one version."""
        table = self.resolver.writable_table(identifier)
        written = self.services.uploads.complete(table, upload_id, transaction_recorder("CompleteUpload", table))
        return CompleteUploadResponse(
            version=written.version, num_inserted_rows=written.rows, transaction_id=written.transaction_id
        )

    def abort_upload(self, identifier: Identifier, upload_id: str) -> EmptyResponse:
        """Abort an upload."""
        self.services.uploads.abort(self.resolver.table(identifier), upload_id)
        return EmptyResponse()
