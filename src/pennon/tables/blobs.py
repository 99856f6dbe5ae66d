"""Blob columns: large values that are stored outside of their rows.

A row has a descriptor with the location of its blob's bytes. A client that writes data files writes descriptors, and
Lance follows them with the permissions of the reading process. Every read of blob bytes therefore goes through this
module, which checks the descriptors first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError

from pennon.tables.field_paths import find_field, split_path

if TYPE_CHECKING:
    from typing import NotRequired, Unpack

    from lance import BlobFile, LanceDataset
    from lance.dataset import LanceScanner
    from lance.fragment import LanceFragment

    from pennon.core.arrow_typing import AnyArray, AnyField


class BlobScanOptions(TypedDict):
    """The options of ``scan_with_blobs``, as in ``LanceDataset.scanner``."""

    filter: NotRequired[str | None]
    fragments: NotRequired[Iterable[LanceFragment] | None]
    offset: NotRequired[int | None]
    limit: NotRequired[int | None]
    batch_size: NotRequired[int | None]
    batch_size_bytes: NotRequired[int | None]
    batch_readahead: NotRequired[int | None]
    io_buffer_size: NotRequired[int | None]
    scan_in_order: NotRequired[bool | None]
    with_row_id: NotRequired[bool | None]
    with_row_address: NotRequired[bool | None]
    include_deleted_rows: NotRequired[bool | None]


EXTENSION_KEY = "ARROW:extension:name"
#: Lance checks for the key alone, not for its value.
BLOB_KEY = "lance-encoding:blob"
#: Metadata that decides how Lance encodes and interprets a field: values written with it cannot be read without it.
_STORAGE_KEYS = ("lance-encoding:", "ARROW:extension:")
_V2_PARTS = (("data", pa.large_binary()), ("uri", pa.string()), ("position", pa.uint64()), ("size", pa.uint64()))
#: The bytes are in the data file itself, in a file shared by several blobs, or in the blob's own file.
_IN_TABLE_KINDS = pa.array([0, 1, 2], pa.uint8())
#: The bytes are in a file at a path inside the table.
_MANAGED_KIND = pa.scalar(4)
_MANAGED_PATH = r"^_blobs/[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"
#: Lance plans reads in units of 64 KiB: planning 1 TiB takes half a second, and 2^64 bytes kill the process.
_MAX_BLOB_BYTES = 2**40


def is_blob(field: AnyField) -> bool:
    """Return whether a column is a blob column."""
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    return BLOB_KEY.encode() in metadata or _extension_name(field).startswith("lance.blob")


def has_blobs(field: AnyField) -> bool:
    """Return whether a column is a blob column, or has one inside."""
    return is_blob(field) or any(has_blobs(part) for part in _children(_storage_type(field.type)))


def is_storage_key(key: str) -> bool:
    """Return whether a metadata key of a field decides how its values are stored, which cannot change later."""
    return key == "packed" or key.startswith(_STORAGE_KEYS)


def check_metadata_change(
    path: str, before: Mapping[str, str], changes: Mapping[str, str | None], *, replace: bool = False
) -> None:
    """Reject a change of metadata that decides how a field's values are stored; null removes a key."""
    after = {} if replace else dict(before)
    after.update({key: value for key, value in changes.items() if value is not None})
    for key in [key for key, value in changes.items() if value is None]:
        after.pop(key, None)
    for key in sorted(filter(is_storage_key, {*before, *after})):
        if before.get(key) != after.get(key):
            raise InvalidInputError(
                f"The metadata {key!r} of field {path!r} cannot be set, changed or removed: it decides how the values "
                "are stored, which is fixed once they are written. Leave it unchanged, or write a new column."
            )


def check_blob_field(field: AnyField) -> None:
    """Reject a field whose metadata declares blobs, itself or inside, but whose type cannot hold them."""
    storage = _storage_type(field.type)
    if is_blob(field):
        is_v1 = BLOB_KEY.encode() in (field.metadata or {}) and not _extension_name(field)
        if not (_is_bytes(storage) if is_v1 else _is_v2(storage)):
            raise TableSchemaValidationError(
                f"The field {field.name!r} is declared as a blob column, but its type is {storage}: blobs are "
                f"large_binary with {BLOB_KEY!r}, or the extension type 'lance.blob.v2'. Remove the key from the "
                "field's metadata, or change the type."
            )
        return
    for part in _children(storage):
        check_blob_field(part)


def null_empty_blobs(blobs: AnyArray) -> AnyArray:
    """Replace blobs without bytes and address by nulls: LanceDB for Node.js sends nulls that way."""
    stored = _storage(blobs)
    if not isinstance(stored, pa.StructArray) or not stored.type.num_fields:
        return blobs
    parts = stored.flatten()
    is_null = reduce(pc.and_, map(pc.is_null, parts))
    made = pa.StructArray.from_arrays(parts, fields=list(stored.type), mask=is_null)
    return pa.ExtensionArray.from_storage(blobs.type, made) if isinstance(blobs, pa.ExtensionArray) else made


def reject_external_blobs(values: AnyArray, field: AnyField) -> AnyArray:
    """Return values to be stored in a field; raises ``InvalidInputError`` if a blob among them has an address.

    Lance rejects such addresses only if the values are declared as blobs, which a client may leave out.
    """
    stored = _storage(values)
    kind = _storage_type(field.type)
    if isinstance(stored, pa.StructArray):
        parts = {part.name: part_values for part, part_values in zip(stored.type, stored.flatten(), strict=True)}
        if is_blob(field):
            addresses = parts.get("uri")
            if addresses is not None and addresses.null_count < len(addresses):
                raise InvalidInputError(
                    f"A blob of the field {field.name!r} refers to an external blob by its 'uri'. Pennon neither "
                    "stores nor reads external blobs; write the bytes themselves."
                )
        elif pa.types.is_struct(kind):
            for part in kind:
                if part.name in parts:
                    reject_external_blobs(parts[part.name], part)
    elif hasattr(stored, "values") and kind.num_fields == 1:
        reject_external_blobs(stored.values, _children(kind)[0])
    return values


def open_blobs(dataset: LanceDataset, column: str, row_ids: Sequence[int]) -> list[BlobFile | None]:
    """Return a file for each row's blob, None for a null; the list is shorter if rows are missing."""
    if has_blobs(find_field(dataset.schema, column)):
        # By row id, as in take_blobs; pylance has no public function for it.
        _check_batches(dataset._take_rows(list(row_ids), columns=[column]).to_batches())  # noqa: SLF001
    return dataset.take_blobs(column, ids=list(row_ids))


def scan_with_blobs(
    dataset: LanceDataset, columns: list[str] | dict[str, str], **options: Unpack[BlobScanOptions]
) -> LanceScanner:
    """Return a scanner that reads blobs as bytes, after checking the descriptors of all blobs it may read."""
    blob_columns = _blob_columns(dataset, columns, options.get("filter"))
    if blob_columns:
        is_filtered = options.get("filter") is not None  # limits then count other rows
        checked = dataset.scanner(
            columns=blob_columns,
            fragments=options.get("fragments"),
            include_deleted_rows=options.get("include_deleted_rows"),
            with_row_id=options.get("with_row_id"),
            offset=None if is_filtered else options.get("offset"),
            limit=None if is_filtered else options.get("limit"),
        )
        _check_batches(checked.to_batches())
    return dataset.scanner(columns=columns, blob_handling="all_binary", **options)


def schema_with_blobs(dataset: LanceDataset, columns: list[str]) -> pa.Schema:
    """Return the types of columns when blobs are read as bytes."""
    schema: pa.Schema = dataset.scanner(columns=columns, blob_handling="all_binary").projected_schema
    return schema


def _blob_columns(dataset: LanceDataset, columns: list[str] | dict[str, str], condition: str | None) -> list[str]:
    """Return the columns with blobs that a scan may read: any of them, if it has expressions or a condition."""
    found = [field.name for field in dataset.schema if has_blobs(field)]
    if isinstance(columns, dict) or condition is not None:
        return found
    roots = {name if name in found else split_path(name)[0] for name in columns}
    return [name for name in found if name in roots]


def _check_batches(batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        for values in batch.columns:
            _check_descriptors(values)


def _check_descriptors(values: AnyArray) -> None:
    """Reject descriptors of bytes outside the table, at any depth."""
    if isinstance(values, pa.ExtensionArray):
        _check_descriptors(values.storage)
    elif isinstance(values, pa.StructArray):
        names = [part.name for part in values.type]
        parts = dict(zip(names, values.flatten(), strict=True))
        if {"position", "size"} <= set(names):
            _check_range(parts["position"], parts["size"])
        if {"kind", "blob_uri"} <= set(names):
            _check_locations(parts["kind"], parts["blob_uri"])
        for part in parts.values():
            _check_descriptors(part)
    elif hasattr(values, "values") and values.type.num_fields:
        _check_descriptors(values.values)


def _check_locations(kinds: AnyArray, addresses: AnyArray) -> None:
    is_managed = pc.and_kleene(pc.equal(kinds, _MANAGED_KIND), pc.match_substring_regex(addresses, _MANAGED_PATH))
    is_inside = pc.or_(
        pc.is_in(kinds, _IN_TABLE_KINDS), cast("pa.BooleanArray", pc.coalesce(is_managed, pa.scalar(False)))
    )
    if not pc.all(pc.or_(pc.is_null(kinds), is_inside), min_count=0).as_py():
        raise InvalidInputError(
            "A blob's bytes are not in this table: its descriptor has an address outside. Pennon does not read "
            "external blobs; write the bytes themselves."
        )


def _check_range(positions: AnyArray, sizes: AnyArray) -> None:
    if not pa.types.is_integer(sizes.type) or not pa.types.is_integer(positions.type):
        return
    largest = pc.max(sizes).as_py() or 0
    if largest > _MAX_BLOB_BYTES or (pc.max(positions).as_py() or 0) > 2**63:
        raise InvalidInputError("A blob's descriptor has more bytes than a file can have: the data file is corrupt.")


def _storage(values: AnyArray) -> AnyArray:
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are stored: pyarrow does not expose the fields of an extension type."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def _children(kind: pa.DataType) -> list[AnyField]:
    """Return the fields of a nested type; empty for other types."""
    return [cast("pa.StructType", kind).field(index) for index in range(kind.num_fields)]


def _extension_name(field: AnyField) -> str:
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    name = getattr(field.type, "extension_name", None) or metadata.get(EXTENSION_KEY.encode(), b"").decode(
        errors="replace"
    )
    return str(name)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_v2(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or kind.num_fields not in {2, 4}:
        return False
    return all((part.name, part.type) == wanted for part, wanted in zip(kind, _V2_PARTS, strict=False))
