"""Reading a Lance manifest as far as the commit authority must: what it claims to be, and which files it needs.

Only the fields named here are declared; protobuf skips the others, so manifests of newer writers can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

_TRAILER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
#: No catalog counts further.
_LATEST_MILLIS = 2**63 - 1

#: What names a folder, and no file in one.
_NO_FILES = frozenset({"", ".", ".."})
_MOST_ROWS, _MOST_ROW_IDS, _MOST_FIELDS = 2**32, 2**63, 100_000
#: The tag and the length of a message without fields.
_EMPTY_MESSAGE_BYTES = 2
#: As deep as columns may be nested.
_DEEPEST_FIELD = 64
_NESTED = ("struct", "list", "large_list", "fixed_size_list", "map")
_BLOB_KEY, _EXTENSION_KEY = "lance-encoding:blob", "ARROW:extension:name"
_BYTES = frozenset({"binary", "large_binary"})
_V2_PARTS = (("data", "large_binary"), ("uri", "string"), ("position", "uint64"), ("size", "uint64"))

#: Deletion files, stable row ids, the second file format, configuration, several bases, no transaction files.
READABLE_FLAGS = 0b111111

_OPERATIONS = {
    100: "append",
    101: "delete",
    102: "overwrite",
    103: "create_index",
    104: "rewrite",
    105: "merge",
    106: "restore",
    107: "reserve_fragments",
    108: "update",
    109: "project",
    110: "update_config",
    111: "data_replacement",
    112: "update_mem_wal_state",
    113: "clone",
    114: "update_bases",
    115: "data_overlay",
}


class BadManifestError(ValueError):
    """Bytes that are not a manifest; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """What a manifest says of its version."""

    version: int
    branch: str
    timestamp_millis: int
    reader_flags: int
    fragment_ids: frozenset[int]
    #: Names in the table's own ``data`` folder, each with its fragment; files of other bases are not the table's.
    data_files: Mapping[str, int]
    #: The file in ``_transactions`` that tells what was done, or the operation itself where it stands in the manifest.
    transaction_file: str
    operation: str | None
    #: The highest fragment and row ids ever given: they only grow, and stay the same where no rows are added.
    counters: tuple[int, int] = (0, 0)
    #: Where else files of the version are: the tables that a clone or a branch was made from.
    bases: tuple[str, ...] = ()
    #: Whether files of other bases are part of the version.
    has_base_files: bool = False
    field_ids: frozenset[int] = frozenset()
    #: The ids of the fields that hold blobs, each with what they are labelled as.
    blob_fields: Mapping[int, str] = field(default_factory=dict)
    #: Names in the table's own ``_deletions`` folder.
    deletion_files: frozenset[str] = frozenset()
    #: Folders in the table's own ``_indices``.
    index_folders: frozenset[str] = frozenset()


_FIELD = descriptor_pb2.FieldDescriptorProto


def _declare(holder: Any, name: str, fields: Sequence[tuple[str, int, Any, bool, str | None]]) -> None:
    declared = holder.message_type.add(name=name)
    for field_name, number, kind, repeated, type_name in fields:
        declared.field.add(
            name=field_name,
            number=number,
            type=kind,
            label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
            type_name=type_name,
        )


def _declare_parts(file: Any, number: Any, text: Any, nested: Any, blob: Any) -> None:
    """Declare the messages that a manifest is made of."""
    signed = _FIELD.TYPE_INT32
    _declare(
        file,
        "DataFile",
        [
            ("path", 1, text, False, None),
            ("fields", 2, signed, True, None),
            ("base_id", 7, number, False, None),
        ],
    )
    _declare(
        file,
        "DeletionFile",
        [
            ("file_type", 1, number, False, None),
            ("read_version", 2, number, False, None),
            ("id", 3, number, False, None),
            ("num_deleted_rows", 4, number, False, None),
            ("base_id", 7, number, False, None),
        ],
    )
    _declare(file, "Overlay", [("data_file", 1, nested, False, ".pennon.DataFile")])
    _declare(
        file,
        "Fragment",
        [
            ("id", 1, number, False, None),
            ("files", 2, nested, True, ".pennon.DataFile"),
            ("deletion_file", 3, nested, False, ".pennon.DeletionFile"),
            ("physical_rows", 4, number, False, None),
        ],
    )
    # What hardly any fragment has is read apart: to ask each of a thousand for it takes milliseconds.
    external = [(f"external_{position}", position, blob, False, None) for position in (6, 8, 10)]
    _declare(file, "RareParts", [*external, ("overlays", 11, nested, True, ".pennon.Overlay")])
    _declare(file, "RareManifest", [("fragments", 2, nested, True, ".pennon.RareParts")])
    _declare(file, "Entry", [("key", 1, text, False, None), ("value", 2, blob, False, None)])
    _declare(
        file,
        "Field",
        [
            ("name", 2, text, False, None),
            ("id", 3, signed, False, None),
            ("parent_id", 4, signed, False, None),
            ("logical_type", 5, text, False, None),
            ("metadata", 10, nested, True, ".pennon.Entry"),
        ],
    )
    _declare(file, "Base", [("path", 4, text, False, None)])
    _declare(file, "IndexFile", [("path", 1, text, False, None)])
    _declare(file, "Uuid", [("uuid", 1, blob, False, None)])
    _declare(
        file,
        "Index",
        [("uuid", 1, nested, False, ".pennon.Uuid"), ("files", 10, nested, True, ".pennon.IndexFile")],
    )
    _declare(file, "IndexSection", [("indices", 1, nested, True, ".pennon.Index")])
    _declare(file, "Time", [("seconds", 1, number, False, None), ("nanos", 2, number, False, None)])


def _build_messages() -> list[type[message.Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="pennon/manifest.proto", package="pennon", syntax="proto2")
    number, text, nested, blob = (
        _FIELD.TYPE_UINT64,
        _FIELD.TYPE_STRING,
        _FIELD.TYPE_MESSAGE,
        _FIELD.TYPE_BYTES,
    )
    _declare_parts(file, number, text, nested, blob)
    _declare(
        file,
        "Manifest",
        [
            ("fields", 1, blob, True, None),
            ("fragments", 2, nested, True, ".pennon.Fragment"),
            ("version", 3, number, False, None),
            ("index_section", 6, number, False, None),
            ("timestamp", 7, nested, False, ".pennon.Time"),
            ("reader_feature_flags", 9, number, False, None),
            ("max_fragment_id", 11, number, False, None),
            ("transaction_file", 12, text, False, None),
            ("next_row_id", 14, number, False, None),
            ("base_paths", 18, nested, True, ".pennon.Base"),
            ("branch", 20, text, False, None),
            ("transaction_section", 21, number, False, None),
        ],
    )
    operations = [(name, number, blob, False, None) for number, name in _OPERATIONS.items()]
    _declare(file, "Transaction", operations)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Manifest", "Transaction", "IndexSection", "RareManifest", "Field")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"pennon.{name}")) for name in names]


_ManifestMessage, _TransactionMessage, _IndexMessage, _RareMessage, _FieldMessage = _build_messages()
#: The suffixes of the two kinds of deletion files.
_DELETION_SUFFIXES = {0: "arrow", 1: "bin"}


def parse_manifest(content: bytes) -> Manifest:
    """Read a manifest file; raises ``BadManifestError`` for anything else."""
    if len(content) < _TRAILER.size + _LENGTH.size:
        raise BadManifestError(f"it has only {len(content)} bytes")
    position, _, _, magic = _TRAILER.unpack_from(content, len(content) - _TRAILER.size)
    if magic != _MAGIC:
        raise BadManifestError("it does not end as a Lance file does")
    body = _section(content, position, "manifest")
    parsed: Any = _parse(body, _ManifestMessage, "manifest")
    _check_rare_parts(body, parsed)
    folders: frozenset[str] = frozenset()
    if parsed.HasField("index_section"):
        folders = _index_folders(_read_section(content, parsed.index_section, _IndexMessage, "list of indices"))
    return _manifest(parsed, _inline_operation(content, parsed), folders)


def parse_opened(content: bytes) -> Manifest:
    """Read the message of a manifest that is open; raises ``BadManifestError`` for one that cannot be read safely."""
    parsed = _parse(content, _ManifestMessage, "manifest")
    _check_rare_parts(content, parsed)
    return _manifest(parsed, None)


def _manifest(parsed: Any, operation: str | None, index_folders: frozenset[str] = frozenset()) -> Manifest:
    if not parsed.version:
        raise BadManifestError("it names no version")
    timestamp_millis = parsed.timestamp.seconds * 1000 + parsed.timestamp.nanos // 1_000_000
    if timestamp_millis > _LATEST_MILLIS:
        raise BadManifestError("it is of no time that there can be")
    files = [file for fragment in parsed.fragments for file in fragment.files]
    holders = {file.path: fragment.id for fragment in parsed.fragments for file in fragment.files}
    _check_names([*holders, parsed.transaction_file or "none"])
    foreign = frozenset(file.path for file in files if file.HasField("base_id")) if parsed.base_paths else frozenset()
    fragment_ids = frozenset(fragment.id for fragment in parsed.fragments)
    _check_counts(parsed, fragment_ids)
    schema = _schema_of(tuple(parsed.fields))
    return Manifest(
        version=parsed.version,
        branch=parsed.branch,
        timestamp_millis=timestamp_millis,
        reader_flags=parsed.reader_feature_flags,
        fragment_ids=fragment_ids,
        data_files={path: holder for path, holder in holders.items() if path not in foreign},
        transaction_file=parsed.transaction_file,
        operation=operation,
        counters=(parsed.max_fragment_id, parsed.next_row_id),
        bases=tuple(_joined([base.path]) for base in parsed.base_paths),
        has_base_files=bool(foreign),
        field_ids=schema[0],
        blob_fields=schema[1],
        deletion_files=frozenset(
            f"{fragment.id}-{file.read_version}-{file.id}.{_DELETION_SUFFIXES.get(file.file_type, 'bin')}"
            for fragment in parsed.fragments
            if fragment.HasField("deletion_file") and not (file := fragment.deletion_file).HasField("base_id")
        ),
        index_folders=index_folders,
    )


def read_fragments(content: bytes) -> Sequence[Any]:
    """Return the fragments of a manifest that was parsed before, with their files and the fields in them."""
    position, *_ = _TRAILER.unpack_from(content, len(content) - _TRAILER.size)
    parsed: Any = _read_section(content, position, _ManifestMessage, "manifest")
    fragments: Sequence[Any] = parsed.fragments
    return fragments


def _check_counts(parsed: Any, fragment_ids: frozenset[int]) -> None:
    """Refuse fragments that cannot be: a row's address has 32 bits for its fragment, and 32 for its place there."""
    fragments = parsed.fragments
    if len(fragment_ids) < len(fragments) or max(fragment_ids, default=0) >= _MOST_ROWS:
        raise BadManifestError("its fragments have ids that they cannot have")
    deleted = [fragment for fragment in fragments if fragment.HasField("deletion_file")]
    if max((fragment.physical_rows for fragment in fragments), default=0) >= _MOST_ROWS or any(
        fragment.deletion_file.num_deleted_rows > fragment.physical_rows for fragment in deleted
    ):
        raise BadManifestError("a fragment of it has more rows than it can have, or more that were deleted than it has")
    if parsed.next_row_id >= _MOST_ROW_IDS:
        raise BadManifestError("it has given more row ids than there are")


def _check_names(names: Sequence[str]) -> None:
    """Refuse a manifest that names a file anywhere but in the folder of its kind."""
    text = _joined(names)
    if "/" in text or "\\" in text or not text.isprintable() or not _NO_FILES.isdisjoint(names):
        raise BadManifestError("it names a file that is not in the table's own folders")


def _check_rare_parts(content: bytes, parsed: Any) -> None:
    rare: Any = _parse(content, _RareMessage, "manifest")
    rare.DiscardUnknownFields()
    if rare.ByteSize() <= _EMPTY_MESSAGE_BYTES * len(parsed.fragments):
        return
    for fragment in rare.fragments:
        _check_names([overlay.data_file.path for overlay in fragment.overlays] or ["none"])
        if any(fragment.HasField(f"external_{position}") for position in (6, 8, 10)):
            raise BadManifestError("it keeps row ids in files of their own, which no reader here can read")


def _joined(names: Sequence[Any]) -> str:
    """Return names as one text; protobuf gives bytes for what is not text."""
    try:
        return "".join(names)
    except TypeError:
        raise BadManifestError("it has a name that is not text") from None


def _index_folders(section: Any) -> frozenset[str]:
    """Return the folders of a manifest's indices; refuse one that names a file elsewhere."""
    _check_names([file.path for index in section.indices for file in index.files] or ["none"])
    ids = [index.uuid.uuid for index in section.indices]
    return frozenset(str(UUID(bytes=each)) for each in ids if len(each) == 16)


# A table's commits have the same few schemas: to read two hundred fields takes a millisecond.
@lru_cache(maxsize=64)
def _schema_of(fields: tuple[bytes, ...]) -> tuple[frozenset[int], Mapping[int, str]]:
    """Return the ids of fields, and those of them that hold blobs with what they are labelled as."""
    if len(fields) > _MOST_FIELDS:
        raise BadManifestError(f"it has more than {_MOST_FIELDS} fields")
    parsed: list[Any] = [_parse(content, _FieldMessage, "schema") for content in fields]
    return frozenset(one.id for one in parsed), _blob_fields(parsed)


def _blob_fields(fields: Sequence[Any]) -> dict[int, str]:
    """Return which fields hold blobs; refuse labels on other types, and fields that are not a tree of bounded depth."""
    depths: dict[int, int] = {-1: 0}
    labels: dict[int, str] = {}
    if len({(one.parent_id, one.name) for one in fields}) < len(fields):
        raise BadManifestError("it has two fields of one name")  # Lance panics when it reads them
    for one in fields:
        depth = depths.get(one.parent_id)
        if depth is None or one.id in depths or depth >= _DEEPEST_FIELD:
            raise BadManifestError(f"its field {one.name!r} has no place among the others, or one too deep")
        depths[one.id] = depth + 1
        _joined([one.name, one.logical_type, *(entry.key for entry in one.metadata)])
        label = _label_of({entry.key: entry.value for entry in one.metadata}) if one.metadata else ""
        if label:
            labels[one.id] = label
    parents = {one.parent_id for one in fields}
    if any(one.id in parents and not one.logical_type.startswith(_NESTED) for one in fields):
        raise BadManifestError("it has fields inside of a field that can have none")
    for one in fields if labels else ():
        parts = [(part.name, part.logical_type) for part in fields if part.parent_id == one.id]
        if one.id in labels and not _is_blob_type(labels[one.id], one.logical_type, parts):
            raise BadManifestError(f"its field {one.name!r} is labelled as blobs, but holds other values")
    return labels


def _label_of(metadata: Mapping[str, bytes]) -> str:
    extension = metadata.get(_EXTENSION_KEY, b"").decode(errors="replace")
    return extension if extension.startswith("lance.blob") else _BLOB_KEY if _BLOB_KEY in metadata else ""


def _is_blob_type(label: str, kind: str, parts: Sequence[tuple[str, str]]) -> bool:
    if label == _BLOB_KEY:
        return kind in _BYTES
    return kind == "struct" and len(parts) in {2, 4} and tuple(parts) == _V2_PARTS[: len(parts)]


def parse_operation(content: bytes) -> str | None:
    """Return the operation that a transaction file tells of; none when it is one Pennon does not know."""
    transaction = _TransactionMessage()
    try:
        transaction.ParseFromString(content)
    except (message.DecodeError, ValueError) as error:
        raise BadManifestError("its transaction cannot be decoded") from error
    return _operation(transaction)


def _inline_operation(content: bytes, parsed: Any) -> str | None:
    if not parsed.HasField("transaction_section"):
        return None
    return _operation(_read_section(content, parsed.transaction_section, _TransactionMessage, "transaction"))


def _operation(transaction: message.Message) -> str | None:
    return next((field.name for field, _ in transaction.ListFields()), None)


def _read_section(content: bytes, position: int, kind: type[message.Message], name: str) -> message.Message:
    return _parse(_section(content, position, name), kind, name)


def _section(content: bytes, position: int, name: str) -> bytes:
    end = len(content) - _TRAILER.size
    if position + _LENGTH.size > end:
        raise BadManifestError(f"its {name} lies outside the file")
    (length,) = _LENGTH.unpack_from(content, position)
    start = position + _LENGTH.size
    if start + length > end:
        raise BadManifestError(f"its {name} is cut off")
    return content[start : start + length]


def _parse(content: bytes, kind: type[message.Message], name: str) -> message.Message:
    parsed = kind()
    try:
        parsed.ParseFromString(content)
    except (message.DecodeError, ValueError) as error:
        raise BadManifestError(f"its {name} cannot be decoded") from error
    return parsed
