"""The manifest of an append, built from the manifest before it.

Lance's commit of a small append takes several times as long as this: it reads the newest version, lists versions, and
hands its work from thread to thread. Only plain cases are handled here; Lance commits all others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from google.protobuf.unknown_fields import UnknownFieldSet

from pennon.commits.manifest import TRAILER, Manifest, parse_manifest, parse_message, section
from pennon.commits.manifest_messages import AppendableMessage
from pennon.commits.statistics import AUTO_CLEANUP, add_fragments

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

#: Larger manifests are not kept in memory, so Lance commits appends to them.
MAX_MANIFEST_BYTES = 1024 * 1024
#: Deletion files, stable row ids, the second file format, configuration.
_FLAGS = 0b1111
_STABLE_ROW_IDS = 0b10
_FRAGMENT_IDS = 2**32
#: Most numbers in a manifest are small.
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


@dataclass(frozen=True)
class AppendedVersion:
    """A version that appends fragments to the one before it."""

    manifest: Manifest
    content: bytes
    transaction: bytes


def append_fragments(content: bytes, before: Manifest, fragments: Sequence[FragmentMetadata]) -> AppendedVersion | None:
    """Append new fragments to a manifest with this content; None if Lance must commit them, because it takes more."""
    position, major, minor, magic = TRAILER.unpack_from(content, len(content) - TRAILER.size)
    parsed: Any = parse_message(section(content, position, "manifest"), AppendableMessage, "manifest")
    files = [_encode_files(fragment) for fragment in fragments]
    if not _is_plain(parsed) or not all(files) or parsed.max_fragment_id + len(files) >= _FRAGMENT_IDS:
        return None
    uuid = str(uuid4())
    new = [_field(1, made + _field(4, each.physical_rows)) for made, each in zip(files, fragments, strict=True)]
    transaction = _field(1, parsed.version) + _field(2, uuid.encode()) + _field(100, b"".join(new))
    index_section = b""
    if parsed.HasField("index_section"):
        index_section = _with_length(section(content, parsed.index_section, "list of indices"))
        parsed.index_section = 0
    parsed.transaction_file = f"{parsed.version}-{uuid}.txn"
    parsed.transaction_section = len(index_section)
    _add(parsed, files, fragments, parsed.version + 1)
    parsed.timestamp.seconds, parsed.timestamp.nanos = divmod(time.time_ns(), 10**9)
    message: bytes = parsed.SerializeToString()
    sections = index_section + _with_length(transaction)
    trailer = TRAILER.pack(len(sections), major, minor, magic)
    appended = sections + _with_length(message) + trailer
    # The indices tell how many rows they do not cover.
    manifest = parse_manifest(appended) if index_section else _extend(before, parsed, fragments)
    return AppendedVersion(manifest, appended, transaction)


def _extend(before: Manifest, parsed: Any, fragments: Sequence[FragmentMetadata]) -> Manifest:
    """Return what parsing the new manifest would: parsing it takes the longer, the more fragments it has."""
    first = parsed.max_fragment_id - len(fragments) + 1
    files = {file.path: number for number, each in enumerate(fragments, first) for file in each.files}
    sizes = [sum(file.file_size_bytes or 0 for file in each.files) for each in fragments]
    return replace(
        before,
        version=parsed.version,
        timestamp_millis=parsed.timestamp.seconds * 1000 + parsed.timestamp.nanos // 1_000_000,
        fragment_ids=before.fragment_ids.union(range(first, parsed.max_fragment_id + 1)),
        data_files={**before.data_files, **files},
        transaction_file=parsed.transaction_file,
        operation="append",
        counters=(parsed.max_fragment_id, parsed.next_row_id),
        statistics=add_fragments(before.statistics, sizes, [each.physical_rows for each in fragments]),
    )


def _is_plain(parsed: Any) -> bool:
    """Tell whether a manifest has only parts that an append leaves alone or that are updated here."""
    return (
        not len(UnknownFieldSet(parsed))
        # Lance upgrades manifests that another version of it has written.
        and parsed.writer_version == _writer_version()
        and not (parsed.reader_feature_flags | parsed.writer_feature_flags) & ~_FLAGS
        and bool(parsed.fragments)
        and not any(entry.key.startswith(AUTO_CLEANUP) for entry in parsed.config)
    )


@cache
def _writer_version() -> bytes:
    return _field(1, b"lance") + _field(2, version("pylance").encode())


def _add(parsed: Any, files: Sequence[bytes], fragments: Sequence[FragmentMetadata], number: int) -> None:
    """Add fragments with the next ids, and the next row ids if they are stable."""
    parsed.version = number
    for encoded, fragment in zip(files, fragments, strict=True):
        parsed.max_fragment_id += 1
        rows = fragment.physical_rows
        made = _field(1, parsed.max_fragment_id) + encoded + _field(4, rows)
        if parsed.reader_feature_flags & _STABLE_ROW_IDS:
            made += _field(5, _field(1, _span(parsed.next_row_id, parsed.next_row_id + rows)))
            changed = _field(1, _field(1, _span(0, rows)) + _field(2, number))
            made += _field(7, changed) + _field(9, changed)
            parsed.next_row_id += rows
        parsed.fragments.append(made)


def _encode_files(fragment: FragmentMetadata) -> bytes:
    """Encode the files of a new fragment; empty if the fragment has more than files."""
    if fragment.deletion_file is not None or fragment.row_id_meta is not None or not fragment.physical_rows:
        return b""
    encoded = b""
    for file in fragment.files:
        if file.base_id is not None or min([*file.fields, *file.column_indices], default=0) < 0:
            return b""
        encoded += _field(
            2,
            _field(1, file.path.encode())
            + _field(2, b"".join(map(_varint, file.fields)))
            + _field(3, b"".join(map(_varint, file.column_indices)))
            + _field(4, file.file_major_version)
            + _field(5, file.file_minor_version)
            + _field(6, file.file_size_bytes or 0),
        )
    return encoded


def _span(start: int, end: int) -> bytes:
    """Encode a range of row ids or row offsets."""
    return _field(1, _field(1, start) + _field(2, end))


def _field(number: int, value: int | bytes) -> bytes:
    """Encode one field of a protobuf message; zero is the default and left out."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value) if value else b""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    if value < len(_ONE_BYTE):
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _with_length(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message
