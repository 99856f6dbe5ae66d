"""Columns of blobs: large values that are kept apart from the rows they belong to.

A row holds a descriptor that says where the bytes of its blob are. Whoever writes data files writes descriptors, and
Lance follows them with the rights of the process that reads, so every read of a blob's bytes goes through this module,
which first checks the descriptors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError

from pennon.tables.field_paths import find_field, split_path

EXTENSION_KEY = "ARROW:extension:name"
#: Lance looks whether the key is there, whatever its value.
BLOB_KEY = "lance-encoding:blob"
#: How Lance stores a field and what it takes its values for: what is written under one cannot be read under another.
_STORAGE_KEYS = ("lance-encoding:", "ARROW:extension:")
_V2_PARTS = (
    ("data", pa.large_binary()),
    ("uri", pa.string()),
    ("position", pa.uint64()),
    ("size", pa.uint64()),
)
#: Bytes in the data file itself, in a file shared by several blobs, in a file of the blob's own.
_IN_TABLE_KINDS = pa.array([0, 1, 2], pa.uint8())
#: Bytes in a file of the table, by its path in the table.
_MANAGED_KIND = 4
_MANAGED_PATH = r"^_blobs/[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"
#: Lance plans a read by 64 KiB: 1 TiB takes half a second, and 2^64 bytes end the process.
_MOST_BYTES = 2**40


def is_blob(field: pa.Field) -> bool:
    """Tell whether a column's values are blobs."""
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    return BLOB_KEY.encode() in metadata or _extension_name(field).startswith("lance.blob")


def holds_blobs(field: pa.Field) -> bool:
    """Tell whether a column's values are blobs, or have some inside."""
    kind = _storage_type(field.type)
    return is_blob(field) or any(holds_blobs(kind.field(index)) for index in range(kind.num_fields))


def is_storage_key(key: str) -> bool:
    """Tell whether a key of a field's metadata says how its values are stored, which is fixed when they are written."""
    return key == "packed" or key.startswith(_STORAGE_KEYS)


def check_metadata_change(
    path: str, before: Mapping[str, str], changes: Mapping[str, str | None], *, replace: bool = False
) -> None:
    """Refuse to set, change or remove what says how a field's values are stored; null removes a key."""
    after = {} if replace else dict(before)
    after.update({key: value for key, value in changes.items() if value is not None})
    for key in [key for key, value in changes.items() if value is None]:
        after.pop(key, None)
    for key in sorted(filter(is_storage_key, {*before, *after})):
        if before.get(key) != after.get(key):
            raise InvalidInputError(
                f"The metadata {key!r} of field {path!r} cannot be set, changed or removed: it says how the values "
                "are stored, which is fixed when they are written. Leave it as it is, or write a new column."
            )


def check_blob_field(field: pa.Field) -> None:
    """Refuse a field, or a part of one, that is labelled as blobs but has another type."""
    storage = _storage_type(field.type)
    if is_blob(field):
        plain = BLOB_KEY.encode() in (field.metadata or {}) and not _extension_name(field)
        if not (_is_bytes(storage) if plain else _is_v2(storage)):
            raise TableSchemaValidationError(
                f"The field {field.name!r} is labelled as blobs, but its type is {storage}: blobs are large_binary "
                f"with {BLOB_KEY!r}, or the extension type 'lance.blob.v2'. Take the label from the field's metadata."
            )
        return
    for index in range(storage.num_fields):
        check_blob_field(storage.field(index))


def with_nulls(blobs: pa.Array) -> pa.Array:
    """Return blobs with a null for each that has neither bytes nor an address: so LanceDB sends nulls from Node.js."""
    stored = blobs.storage if isinstance(blobs, pa.ExtensionArray) else blobs
    if not pa.types.is_struct(stored.type) or not stored.type.num_fields:
        return blobs
    parts = stored.flatten()
    is_null = reduce(pc.and_, map(pc.is_null, parts))
    made = pa.StructArray.from_arrays(parts, fields=list(stored.type), mask=is_null)
    return pa.ExtensionArray.from_storage(blobs.type, made) if isinstance(blobs, pa.ExtensionArray) else made


def without_addresses(values: pa.Array, field: pa.Field) -> pa.Array:
    """Return values that are to be stored in a field, unless a blob among them names an address for its bytes.

    Lance refuses such addresses by the label of the values, which a client may leave out.
    """
    stored = values.storage if isinstance(values, pa.ExtensionArray) else values
    kind = _storage_type(field.type)
    if pa.types.is_struct(stored.type):
        parts = {part.name: part_values for part, part_values in zip(stored.type, stored.flatten(), strict=True)}
        if is_blob(field):
            addresses = parts.get("uri")
            if addresses is not None and addresses.null_count < len(addresses):
                raise InvalidInputError(
                    f"A blob of the field {field.name!r} names an external blob by its 'uri'. Pennon does not store "
                    "or read external blobs; write the bytes themselves."
                )
        elif pa.types.is_struct(kind):
            for part in kind:
                if part.name in parts:
                    without_addresses(parts[part.name], part)
    elif hasattr(stored, "values") and kind.num_fields == 1:
        without_addresses(stored.values, kind.field(0))
    return values


def open_blobs(dataset: Any, column: str, row_ids: Sequence[int]) -> list[Any]:
    """Return files over the blobs of rows, none for a null; fewer than asked for where rows are missing."""
    if holds_blobs(find_field(dataset.schema, column)):
        # By ids, as take_blobs has them; pylance has no public function for it.
        _check_batches(dataset._take_rows(list(row_ids), columns=[column]).to_batches())  # noqa: SLF001
    files: list[Any] = dataset.take_blobs(column, ids=list(row_ids))
    return files


def scan_with_blobs(dataset: Any, columns: list[str] | dict[str, str], **options: Any) -> Any:
    """Return a scanner that reads blobs as bytes, after a look at the descriptors of all that it may read."""
    read = _blobs_read(dataset, columns, options.get("filter"))
    if read:
        named = ("fragments", "include_deleted_rows", "with_row_id")
        looked_at = {name: options[name] for name in named if name in options}
        if options.get("filter") is None:
            looked_at |= {name: options[name] for name in ("offset", "limit") if name in options}
        _check_batches(dataset.scanner(columns=read, **looked_at).to_batches())
    return dataset.scanner(columns=columns, blob_handling="all_binary", **options)


def schema_with_blobs(dataset: Any, columns: list[str]) -> pa.Schema:
    """Return the types in which columns are read when blobs are read as bytes."""
    return dataset.scanner(columns=columns, blob_handling="all_binary").projected_schema


def _blobs_read(dataset: Any, columns: list[str] | dict[str, str], condition: str | None) -> list[str]:
    """Return the columns with blobs that a scan may read; expressions and conditions may name any of them."""
    found = [field.name for field in dataset.schema if holds_blobs(field)]
    if isinstance(columns, dict) or condition is not None:
        return found
    roots = {name if name in found else split_path(name)[0] for name in columns}
    return [name for name in found if name in roots]


def _check_batches(batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> None:
    for batch in batches:
        for values in batch.columns:
            _check_descriptors(values)


def _check_descriptors(values: pa.Array) -> None:
    """Refuse descriptors of bytes outside the table, at any depth."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        _check_descriptors(values.storage)
    elif pa.types.is_struct(kind):
        names = [part.name for part in kind]
        parts = dict(zip(names, values.flatten(), strict=True))
        if {"position", "size"} <= set(names):
            _check_range(parts["position"], parts["size"])
        if {"kind", "blob_uri"} <= set(names):
            _check_locations(parts["kind"], parts["blob_uri"])
        for part in parts.values():
            _check_descriptors(part)
    elif hasattr(values, "values") and kind.num_fields:
        _check_descriptors(values.values)


def _check_locations(kinds: pa.Array, addresses: pa.Array) -> None:
    managed = pc.and_kleene(pc.equal(kinds, _MANAGED_KIND), pc.match_substring_regex(addresses, _MANAGED_PATH))
    inside = pc.or_(pc.is_in(kinds, _IN_TABLE_KINDS), pc.fill_null(managed, False))
    if not pc.all(pc.or_(pc.is_null(kinds), inside), min_count=0).as_py():
        raise InvalidInputError(
            "A blob's bytes are not in this table: its descriptor names an address outside. Pennon does not read "
            "external blobs; write the bytes themselves."
        )


def _check_range(positions: pa.Array, sizes: pa.Array) -> None:
    if not pa.types.is_integer(sizes.type) or not pa.types.is_integer(positions.type):
        return
    largest = pc.max(sizes).as_py() or 0
    if largest > _MOST_BYTES or (pc.max(positions).as_py() or 0) > 2**63:
        raise InvalidInputError("A blob's descriptor names more bytes than a file can have: the data file is corrupt.")


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are stored: pyarrow shows no fields of an extension type."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def _extension_name(field: pa.Field) -> str:
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
