"""Reading a Lance manifest as far as the commit authority must: what it claims to be, and which files it needs.

Only the fields named here are declared; protobuf skips the others, so manifests of newer writers can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

_TRAILER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
#: No catalog counts further.
_LATEST_MILLIS = 2**63 - 1

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
    #: Names in the table's own ``data`` folder; files of other bases are not the table's.
    data_files: frozenset[str]
    #: The file in ``_transactions`` that tells what was done, or the operation itself where it stands in the manifest.
    transaction_file: str
    operation: str | None
    #: The highest fragment and row ids ever given: they only grow, and stay the same where no rows are added.
    counters: tuple[int, int] = (0, 0)


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


def _build_messages() -> tuple[type[message.Message], type[message.Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="pennon/manifest.proto", package="pennon", syntax="proto2")
    number, text, nested, blob = (
        _FIELD.TYPE_UINT64,
        _FIELD.TYPE_STRING,
        _FIELD.TYPE_MESSAGE,
        _FIELD.TYPE_BYTES,
    )
    _declare(
        file,
        "DataFile",
        [
            ("path", 1, text, False, None),
            ("fields", 2, _FIELD.TYPE_INT32, True, None),
            ("base_id", 7, number, False, None),
        ],
    )
    _declare(file, "DeletionFile", [("num_deleted_rows", 4, number, False, None)])
    _declare(
        file,
        "Fragment",
        [
            ("id", 1, number, False, None),
            ("files", 2, nested, True, ".pennon.DataFile"),
            ("deletion_file", 3, nested, False, ".pennon.DeletionFile"),
        ],
    )
    _declare(file, "Time", [("seconds", 1, number, False, None), ("nanos", 2, number, False, None)])
    _declare(
        file,
        "Manifest",
        [
            ("fragments", 2, nested, True, ".pennon.Fragment"),
            ("version", 3, number, False, None),
            ("timestamp", 7, nested, False, ".pennon.Time"),
            ("reader_feature_flags", 9, number, False, None),
            ("max_fragment_id", 11, number, False, None),
            ("transaction_file", 12, text, False, None),
            ("next_row_id", 14, number, False, None),
            ("branch", 20, text, False, None),
            ("transaction_section", 21, number, False, None),
        ],
    )
    operations = [(name, number, blob, False, None) for number, name in _OPERATIONS.items()]
    _declare(file, "Transaction", operations)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described = [pool.FindMessageTypeByName(f"pennon.{name}") for name in ("Manifest", "Transaction")]
    manifest, transaction = (message_factory.GetMessageClass(descriptor) for descriptor in described)
    return manifest, transaction


_ManifestMessage, _TransactionMessage = _build_messages()


def parse_manifest(content: bytes) -> Manifest:
    """Read a manifest file; raises ``BadManifestError`` for anything else."""
    if len(content) < _TRAILER.size + _LENGTH.size:
        raise BadManifestError(f"it has only {len(content)} bytes")
    position, _, _, magic = _TRAILER.unpack_from(content, len(content) - _TRAILER.size)
    if magic != _MAGIC:
        raise BadManifestError("it does not end as a Lance file does")
    parsed: Any = _read_section(content, position, _ManifestMessage, "manifest")
    if not parsed.version:
        raise BadManifestError("it names no version")
    timestamp_millis = parsed.timestamp.seconds * 1000 + parsed.timestamp.nanos // 1_000_000
    if timestamp_millis > _LATEST_MILLIS:
        raise BadManifestError("it is of no time that there can be")
    return Manifest(
        version=parsed.version,
        branch=parsed.branch,
        timestamp_millis=timestamp_millis,
        reader_flags=parsed.reader_feature_flags,
        fragment_ids=frozenset(fragment.id for fragment in parsed.fragments),
        data_files=frozenset(
            file.path for fragment in parsed.fragments for file in fragment.files if not file.HasField("base_id")
        ),
        transaction_file=parsed.transaction_file,
        operation=_inline_operation(content, parsed),
        counters=(parsed.max_fragment_id, parsed.next_row_id),
    )


def read_fragments(content: bytes) -> Sequence[Any]:
    """Return the fragments of a manifest that was parsed before, with their files and the fields in them."""
    position, *_ = _TRAILER.unpack_from(content, len(content) - _TRAILER.size)
    parsed: Any = _read_section(content, position, _ManifestMessage, "manifest")
    fragments: Sequence[Any] = parsed.fragments
    return fragments


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
    end = len(content) - _TRAILER.size
    if position + _LENGTH.size > end:
        raise BadManifestError(f"its {name} lies outside the file")
    (length,) = _LENGTH.unpack_from(content, position)
    start = position + _LENGTH.size
    if start + length > end:
        raise BadManifestError(f"its {name} is cut off")
    parsed = kind()
    try:
        parsed.ParseFromString(content[start : start + length])
    except (message.DecodeError, ValueError) as error:
        raise BadManifestError(f"its {name} cannot be decoded") from error
    return parsed
