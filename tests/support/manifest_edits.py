"""Manifests of Lance, taken apart, changed and put together again, as a client with a will of its own would."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TRAILER = struct.Struct("<QHH4s")
_KIND = descriptor_pb2.FieldDescriptorProto
_NUMBER, _SIGNED, _TEXT, _BYTES = _KIND.TYPE_UINT64, _KIND.TYPE_INT32, _KIND.TYPE_STRING, _KIND.TYPE_BYTES
#: Every message with its fields: name, number, type, and whether it is repeated. Others are kept as they are.
_MESSAGES: dict[str, list[tuple[str, int, Any, bool]]] = {
    "DataFile": [
        ("path", 1, _TEXT, False),
        ("file_size_bytes", 6, _NUMBER, False),
        ("base_id", 7, _NUMBER, False),
    ],
    "Overlay": [("data_file", 1, "DataFile", False)],
    "ExternalFile": [("path", 1, _TEXT, False), ("offset", 2, _NUMBER, False), ("size", 3, _NUMBER, False)],
    "Deletion": [
        ("file_type", 1, _NUMBER, False),
        ("read_version", 2, _NUMBER, False),
        ("id", 3, _NUMBER, False),
        ("num_deleted_rows", 4, _NUMBER, False),
        ("base_id", 7, _NUMBER, False),
    ],
    "Fragment": [
        ("id", 1, _NUMBER, False),
        ("files", 2, "DataFile", True),
        ("deletion_file", 3, "Deletion", False),
        ("physical_rows", 4, _NUMBER, False),
        ("inline_row_ids", 5, _BYTES, False),
        ("external_row_ids", 6, "ExternalFile", False),
        ("overlays", 11, "Overlay", True),
    ],
    "Entry": [("key", 1, _TEXT, False), ("value", 2, _BYTES, False)],
    "Field": [
        ("name", 2, _TEXT, False),
        ("id", 3, _SIGNED, False),
        ("parent_id", 4, _SIGNED, False),
        ("logical_type", 5, _TEXT, False),
        ("metadata", 10, "Entry", True),
    ],
    "Base": [("id", 1, _NUMBER, False), ("is_dataset_root", 3, _NUMBER, False), ("path", 4, _TEXT, False)],
    "Manifest": [
        ("fields", 1, "Field", True),
        ("fragments", 2, "Fragment", True),
        ("version", 3, _NUMBER, False),
        ("index_section", 6, _NUMBER, False),
        ("reader_feature_flags", 9, _NUMBER, False),
        ("writer_feature_flags", 10, _NUMBER, False),
        ("max_fragment_id", 11, _NUMBER, False),
        ("transaction_file", 12, _TEXT, False),
        ("next_row_id", 14, _NUMBER, False),
        ("base_paths", 18, "Base", True),
        ("old_transaction_section", 21, _NUMBER, False),
        ("fragment_tree", 22, _BYTES, False),
        ("transaction_section", 23, _NUMBER, False),
    ],
}


def _manifest_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="tests/manifest.proto", package="edits", syntax="proto2")
    for name, fields in _MESSAGES.items():
        declared = file.message_type.add(name=name)
        for field_name, number, kind, repeated in fields:
            nested = isinstance(kind, str)
            declared.field.add(
                name=field_name,
                number=number,
                type=_KIND.TYPE_MESSAGE if nested else kind,
                label=_KIND.LABEL_REPEATED if repeated else _KIND.LABEL_OPTIONAL,
                type_name=f".edits.{kind}" if nested else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("edits.Manifest"))


Manifest = _manifest_class()


def read_manifest(path: Path) -> bytes:
    """Return the content of a manifest."""
    return path.read_bytes()


def pad_manifest(content: bytes, size: int) -> bytes:
    """Return a manifest that says the same in more bytes: as many as another one has whose place it takes."""
    position, *versions = _TRAILER.unpack(content[-_TRAILER.size :])
    added, moved = 0, content
    while len(moved) + added != size:  # a larger number may take another byte
        added = size - len(moved)
        moved = edit_manifest(content, partial(_move_sections, added=added))
    return bytes(added) + moved[: -_TRAILER.size] + _TRAILER.pack(position + added, *versions)


def _move_sections(manifest: Any, *, added: int) -> None:
    for section in ("index_section", "old_transaction_section", "transaction_section"):
        if manifest.HasField(section):
            setattr(manifest, section, getattr(manifest, section) + added)


def edit_manifest(content: bytes, edit: Callable[[Any], None]) -> bytes:
    """Return a manifest with a change of its message; sections before it stay where they are."""
    position, *_ = _TRAILER.unpack_from(content, len(content) - _TRAILER.size)
    (length,) = struct.unpack_from("<I", content, position)
    manifest = Manifest()
    manifest.ParseFromString(content[position + 4 : position + 4 + length])
    edit(manifest)
    body = manifest.SerializeToString()
    return b"".join((content[:position], struct.pack("<I", len(body)), body, content[-_TRAILER.size :]))
