"""Blobs of rows, as LanceDB's remote client reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableVersionNotFoundError

from pennon.namespace.queries import Hold, QueryResult
from pennon.namespace.resolver import TableResolver
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.blobs import is_blob, open_blobs
from pennon.tables.field_paths import find_field
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    import lance
    from lance.blob import BlobFile

    from pennon.core.arrow_typing import AnyField
    from pennon.core.identifiers import Identifier


@dataclass(frozen=True)
class BlobRange:
    """A range of the bytes of a blob, and a file positioned at its start; no file if the value is null."""

    file: BlobFile | None
    version: int
    start: int = 0
    #: Exclusive.
    end: int = 0
    #: Of the whole blob.
    size: int = 0
    hold: Hold | None = None


@dataclass(frozen=True)
class BlobOperations:
    """Read blobs, whole or in part."""

    services: Services
    resolver: TableResolver

    def fetch_blobs(
        self, identifier: Identifier, column: str, row_ids: list[int], version: int | None, branch: str | None
    ) -> QueryResult:
        """Return the blobs of rows in the order of the request; each blob is read when its batch is."""
        dataset, hold = self._blob_dataset(identifier, column, version, branch)
        with typed_errors():
            found = open_blobs(dataset, column, row_ids)
        if len(found) < len(row_ids):
            raise InvalidInputError(f"Only {len(found)} of the {len(row_ids)} rows in row_ids exist.")
        fields: list[AnyField] = [pa.field("_rowid", pa.uint64()), pa.field(column, pa.large_binary())]
        schema = pa.schema(fields)
        rows = ({"_rowid": row_id, column: _content(blob)} for row_id, blob in zip(row_ids, found, strict=True))
        batches = (pa.RecordBatch.from_pylist([row], schema) for row in rows)
        return QueryResult(pa.RecordBatchReader.from_batches(schema, batches), dataset.version, hold)

    def read_blob(
        self,
        identifier: Identifier,
        column: str,
        row_id: int,
        start: int,
        end: int | None,
        *,
        version: int | None,
        branch: str | None,
    ) -> BlobRange:
        """Return a range of the bytes of one blob, from start to end (exclusive)."""
        dataset, hold = self._blob_dataset(identifier, column, version, branch)
        with typed_errors():
            found = open_blobs(dataset, column, [row_id])
            if not found:
                raise TableVersionNotFoundError(f"Row {row_id} does not exist.")
            if found[0] is None:
                return BlobRange(None, dataset.version)
            size = found[0].size()
            found[0].seek(min(start, size))
        return BlobRange(found[0], dataset.version, start, size if end is None else min(end, size), size, hold)

    def _blob_dataset(
        self, identifier: Identifier, column: str, version: int | None, branch: str | None
    ) -> tuple[lance.LanceDataset, Hold]:
        """Return the dataset with a blob column, and a function that keeps its files while they are read."""
        table = self.resolver.table(identifier)
        dataset = self.services.datasets.at(table, check_branch(branch), version)
        if not is_blob(find_field(dataset.schema, column)):
            raise InvalidInputError(f"The column {column!r} is not a blob column; read its values with a query.")
        return dataset, partial(self.services.removal.hold, table)


def _content(blob: BlobFile | None) -> bytes | None:
    if blob is None:
        return None
    with blob:
        return bytes(blob.readall())
