"""Parsing of Lance manifests, as far as the commit authority needs it: the version, and the files it names.

Only these fields are declared; protobuf skips the others, so manifests of newer writers can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from google.protobuf import message

from pennon.catalog.versions import Statistics
from pennon.commits.manifest_messages import (
    FieldMessage,
    FragmentFields,
    Fragments,
    IndexMessage,
    ManifestMessage,
    RareMessage,
    TransactionMessage,
    list_fragments,
)
from pennon.commits.statistics import AUTO_CLEANUP, measure_fragments, vector_segments

#: The end of a manifest file: the position of its message, the version of the format, and a mark.
TRAILER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
#: The largest integer that the catalog can store.
_HIGHEST = 2**63 - 1

#: Names that are not file names.
_NOT_FILE_NAMES = frozenset({"", ".", ".."})
_MOST_ROWS, _MOST_ROW_IDS, _MOST_FIELDS = 2**32, 2**63, 100_000
#: The size of an empty message: its tag and its length.
_EMPTY_MESSAGE_BYTES = 2
#: The maximum nesting depth of columns.
_DEEPEST_FIELD = 64
_NESTED = ("struct", "list", "large_list", "fixed_size_list", "map")
_BLOB_KEY, _EXTENSION_KEY = "lance-encoding:blob", "ARROW:extension:name"
_BYTES = frozenset({"binary", "large_binary"})
_V2_PARTS = (("data", "large_binary"), ("uri", "string"), ("position", "uint64"), ("size", "uint64"))

#: Deletion files, stable row ids, the second file format, configuration, several bases, no transaction files.
READABLE_FLAGS = 0b111111


class InvalidManifestError(ValueError):
    """A manifest that is corrupt or unsafe to read; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """The parts of a manifest that the commit authority needs."""

    version: int
    branch: str
    timestamp_millis: int
    reader_flags: int
    fragment_ids: frozenset[int]
    #: File names in the table's own ``data`` folder, each with its fragment; without the files of other bases.
    data_files: Mapping[str, int]
    #: The file in ``_transactions`` with the operation; ``operation`` is set if the manifest contains it.
    transaction_file: str
    operation: str | None
    #: The highest fragment and row ids ever assigned: they only grow, and stay the same if no rows are added.
    counters: tuple[int, int] = (0, 0)
    #: Base paths: folders of the tables that a clone or a branch was created from.
    bases: tuple[str, ...] = ()
    #: Whether the version has files of other bases.
    has_base_files: bool = False
    field_ids: frozenset[int] = frozenset()
    #: The ids of the blob fields, each with its label.
    blob_fields: Mapping[int, str] = field(default_factory=dict)
    #: Names in the table's own ``_deletions`` folder.
    deletion_files: frozenset[str] = frozenset()
    #: Folders in the table's own ``_indices``.
    index_folders: frozenset[str] = frozenset()
    #: The ids of the segments of vector indices.
    vector_segments: frozenset[bytes] = frozenset()
    #: What maintenance needs to know of it; of an open manifest without the indices, which are in another section.
    statistics: Statistics = field(default_factory=Statistics)
    #: Its configuration of Lance's own cleanup.
    auto_cleanup: Mapping[str, str] = field(default_factory=dict)


#: The suffixes of the two kinds of deletion files.
_DELETION_SUFFIXES = {0: "arrow", 1: "bin"}


def parse_manifest(content: bytes) -> Manifest:
    """Parse a manifest file; raises ``InvalidManifestError`` if it is not one."""
    if len(content) < TRAILER.size + _LENGTH.size:
        raise InvalidManifestError(f"it has only {len(content)} bytes")
    position, _, _, magic = TRAILER.unpack_from(content, len(content) - TRAILER.size)
    if magic != _MAGIC:
        raise InvalidManifestError("it does not end like a Lance file")
    body = section(content, position, "manifest")
    parsed: Any = parse_message(body, ManifestMessage, "manifest")
    _check_rare_parts(body, parsed)
    indices: Sequence[Any] = ()
    if parsed.HasField("index_section"):
        listed: Any = _read_section(content, parsed.index_section, IndexMessage, "list of indices")
        indices = listed.indices
    return _manifest(parsed, _inline_operation(content, parsed), indices)


def parse_manifest_message(content: bytes) -> Manifest:
    """Parse the protobuf message of an open manifest; raises ``InvalidManifestError`` if it is unsafe to read."""
    parsed = parse_message(content, ManifestMessage, "manifest")
    _check_rare_parts(content, parsed)
    return _manifest(parsed, None)


def _manifest(parsed: Any, operation: str | None, indices: Sequence[Any] = ()) -> Manifest:
    if not parsed.version:
        raise InvalidManifestError("it has no version")
    if parsed.HasField("fragment_tree"):
        raise InvalidManifestError("its fragments are in a fragment tree, which is not supported")
    timestamp_millis = parsed.timestamp.seconds * 1000 + parsed.timestamp.nanos // 1_000_000
    if timestamp_millis > _HIGHEST:
        raise InvalidManifestError("its timestamp is out of range")
    config = _auto_cleanup(parsed)
    fragments = list_fragments(parsed.fragments)
    holders = {
        file.path: number for number, files in zip(fragments.ids, fragments.files, strict=True) for file in files
    }
    _check_names([*holders, parsed.transaction_file or "none"])
    _check_names([path.removesuffix(".lance") for path in holders] or ["none"])  # the folders of their blobs
    foreign = _foreign_files(fragments) if parsed.base_paths else frozenset()
    fragment_ids = frozenset(fragments.ids)
    _check_counts(parsed, fragments)
    schema = _schema_of(tuple(parsed.fields))
    index_folders = _index_folders(indices)  # checks the names of indices, which are used after it
    statistics = measure_fragments(fragments, indices, config)
    if statistics.data_bytes > _HIGHEST:
        raise InvalidManifestError("its data files have 2^63 bytes or more")
    return Manifest(
        version=parsed.version,
        branch=parsed.branch,
        timestamp_millis=timestamp_millis,
        reader_flags=parsed.reader_feature_flags,
        fragment_ids=fragment_ids,
        data_files={path: holder for path, holder in holders.items() if path not in foreign} if foreign else holders,
        transaction_file=parsed.transaction_file,
        operation=operation,
        counters=(parsed.max_fragment_id, parsed.next_row_id),
        bases=tuple(_joined([base.path]) for base in parsed.base_paths),
        has_base_files=bool(foreign),
        field_ids=schema[0],
        blob_fields=schema[1],
        deletion_files=frozenset(
            f"{number}-{file.read_version}-{file.id}.{_DELETION_SUFFIXES.get(file.file_type, 'bin')}"
            for number, file in fragments.deletions.items()
            if not file.HasField("base_id")
        ),
        index_folders=index_folders,
        vector_segments=vector_segments(indices),
        statistics=statistics,
        auto_cleanup=config,
    )


def _foreign_files(fragments: Fragments) -> frozenset[str]:
    return frozenset(file.path for files in fragments.files for file in files if file.HasField("base_id"))


def manifest_message(content: bytes) -> bytes:
    """Return the protobuf message of a manifest file that was parsed before."""
    position, *_ = TRAILER.unpack_from(content, len(content) - TRAILER.size)
    return section(content, position, "manifest")


def read_fragments(content: bytes) -> Sequence[FragmentFields]:
    """Return the fragments of a manifest that was parsed before, with their files and fields."""
    position, *_ = TRAILER.unpack_from(content, len(content) - TRAILER.size)
    parsed: Any = _read_section(content, position, ManifestMessage, "manifest")
    fragments: Sequence[FragmentFields] = parsed.fragments
    return fragments


def _check_counts(parsed: Any, fragments: Fragments) -> None:
    """Refuse impossible fragments: a row address has 32 bits for the fragment and 32 bits for the offset in it."""
    if len(set(fragments.ids)) < len(fragments.ids) or max(fragments.ids, default=0) >= _MOST_ROWS:
        raise InvalidManifestError("its fragment ids are not unique, or out of range")
    rows = dict(zip(fragments.ids, fragments.rows, strict=True)) if fragments.deletions else {}
    if max(fragments.rows, default=0) >= _MOST_ROWS or any(
        file.num_deleted_rows > rows[number] for number, file in fragments.deletions.items()
    ):
        raise InvalidManifestError("a fragment has 2^32 rows or more, or more deleted rows than rows")
    if parsed.next_row_id >= _MOST_ROW_IDS:
        raise InvalidManifestError("its next row id is out of range")


def _check_names(names: Sequence[str]) -> None:
    """Refuse file names that lead out of the folder of their kind."""
    text = _joined(names)
    if "/" in text or "\\" in text or not text.isprintable() or not _NOT_FILE_NAMES.isdisjoint(names):
        raise InvalidManifestError("it names a file outside the table's own folders")


def _check_rare_parts(content: bytes, parsed: Any) -> None:
    rare: Any = parse_message(content, RareMessage, "manifest")
    rare.DiscardUnknownFields()
    if rare.ByteSize() <= _EMPTY_MESSAGE_BYTES * len(parsed.fragments):
        return
    for fragment in rare.fragments:
        _check_names([overlay.data_file.path for overlay in fragment.overlays] or ["none"])
        if any(fragment.HasField(f"external_{position}") for position in (6, 8, 10)):
            raise InvalidManifestError("it has row ids in external files, which is not supported")


def _joined(names: Sequence[str]) -> str:
    """Join names; protobuf returns bytes for names that are not valid text."""
    try:
        return "".join(names)
    except TypeError:
        raise InvalidManifestError("it has a name that is not valid UTF-8") from None


def _auto_cleanup(parsed: Any) -> dict[str, str]:
    """Return the configuration of Lance's own cleanup."""
    found = {entry.key: entry.value for entry in parsed.config}
    _joined(list(found))
    return {key: value.decode(errors="replace") for key, value in found.items() if key.startswith(AUTO_CLEANUP)}


def _index_folders(indices: Sequence[Any]) -> frozenset[str]:
    """Return the folders of a manifest's indices; refuse an index that names a file elsewhere."""
    _check_names([file.path for index in indices for file in index.files] or ["none"])
    _joined([name for index in indices for name in (index.name, index.details.type_url)])
    ids = [index.uuid.uuid for index in indices]
    return frozenset(str(UUID(bytes=each)) for each in ids if len(each) == 16)


# Cached, because a table has few schemas, and parsing two hundred fields takes a millisecond.
@lru_cache(maxsize=64)
def _schema_of(fields: tuple[bytes, ...]) -> tuple[frozenset[int], Mapping[int, str]]:
    """Return the ids of all fields, and the blob fields with their labels."""
    if len(fields) > _MOST_FIELDS:
        raise InvalidManifestError(f"it has more than {_MOST_FIELDS} fields")
    parsed: list[Any] = [parse_message(content, FieldMessage, "schema") for content in fields]
    return frozenset(one.id for one in parsed), _blob_fields(parsed)


def _blob_fields(fields: Sequence[Any]) -> dict[int, str]:
    """Return the blob fields; refuse blob labels on other types, and fields that are not a tree of bounded depth."""
    depths: dict[int, int] = {-1: 0}
    labels: dict[int, str] = {}
    if len({(one.parent_id, one.name) for one in fields}) < len(fields):
        raise InvalidManifestError("it has two fields of the same name")  # Lance panics when it reads them
    for one in fields:
        depth = depths.get(one.parent_id)
        if depth is None or one.id in depths or depth >= _DEEPEST_FIELD:
            raise InvalidManifestError(
                f"its field {one.name!r} has an unknown parent, a duplicate id or too many levels"
            )
        depths[one.id] = depth + 1
        _joined([one.name, one.logical_type, *(entry.key for entry in one.metadata)])
        label = _label_of({entry.key: entry.value for entry in one.metadata}) if one.metadata else ""
        if label:
            labels[one.id] = label
    parents = {one.parent_id for one in fields}
    if any(one.id in parents and not one.logical_type.startswith(_NESTED) for one in fields):
        raise InvalidManifestError("it has a field inside a field of a type without children")
    for one in fields if labels else ():
        parts = [(part.name, part.logical_type) for part in fields if part.parent_id == one.id]
        if one.id in labels and not _is_blob_type(labels[one.id], one.logical_type, parts):
            raise InvalidManifestError(f"its field {one.name!r} is labelled as a blob, but has another type")
    return labels


def _label_of(metadata: Mapping[str, bytes]) -> str:
    extension = metadata.get(_EXTENSION_KEY, b"").decode(errors="replace")
    return extension if extension.startswith("lance.blob") else _BLOB_KEY if _BLOB_KEY in metadata else ""


def _is_blob_type(label: str, kind: str, parts: Sequence[tuple[str, str]]) -> bool:
    if label == _BLOB_KEY:
        return kind in _BYTES
    return kind == "struct" and len(parts) in {2, 4} and tuple(parts) == _V2_PARTS[: len(parts)]


def parse_operation(content: bytes) -> str | None:
    """Return the operation in a transaction file; None if it is unknown."""
    transaction = TransactionMessage()
    try:
        transaction.ParseFromString(content)
    except (message.DecodeError, ValueError) as error:
        raise InvalidManifestError("its transaction cannot be decoded") from error
    return _operation(transaction)


def _inline_operation(content: bytes, parsed: Any) -> str | None:
    """Return the operation of the transaction inside a manifest; Lance before version 14 names it by another field."""
    operation = None
    for name in ("old_transaction_section", "transaction_section"):
        if parsed.HasField(name):
            operation = _operation(_read_section(content, getattr(parsed, name), TransactionMessage, "transaction"))
    return operation


def _operation(transaction: message.Message) -> str | None:
    return next((field.name for field, _ in transaction.ListFields()), None)


def _read_section(content: bytes, position: int, kind: type[message.Message], name: str) -> message.Message:
    return parse_message(section(content, position, name), kind, name)


def section(content: bytes, position: int, name: str) -> bytes:
    """Return a part of a manifest file that begins with its length."""
    end = len(content) - TRAILER.size
    if position + _LENGTH.size > end:
        raise InvalidManifestError(f"its {name} is outside the file")
    (length,) = _LENGTH.unpack_from(content, position)
    start = position + _LENGTH.size
    if start + length > end:
        raise InvalidManifestError(f"its {name} is cut off")
    return content[start : start + length]


def parse_message(content: bytes, kind: type[message.Message], name: str) -> message.Message:
    """Parse a protobuf message; raises ``InvalidManifestError`` if it is not one."""
    parsed = kind()
    try:
        parsed.ParseFromString(content)
    except (message.DecodeError, ValueError) as error:
        raise InvalidManifestError(f"its {name} cannot be decoded") from error
    return parsed
