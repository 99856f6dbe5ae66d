"""The protobuf messages of Lance manifests, as far as Pennon reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

if TYPE_CHECKING:
    _FieldType: TypeAlias = descriptor_pb2.FieldDescriptorProto.Type.ValueType

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


class DataFileFields(Protocol):
    """The fields of a data file's message."""

    path: str
    fields: Sequence[int]
    file_size_bytes: int

    def HasField(self, name: str) -> bool:  # noqa: N802 (protobuf's name, as below)
        """Tell whether a field is set."""


class _DeletionFileFields(Protocol):
    file_type: int
    read_version: int
    id: int
    num_deleted_rows: int

    def HasField(self, name: str) -> bool: ...  # noqa: N802


class FragmentFields(Protocol):
    """The fields of a fragment's message."""

    id: int
    files: Sequence[DataFileFields]
    deletion_file: _DeletionFileFields
    physical_rows: int

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Tell whether a field is set."""


@dataclass(frozen=True)
class Fragments:
    """The fragments of a manifest by field: reading each field of a thousand messages once saves milliseconds."""

    ids: Sequence[int]
    rows: Sequence[int]
    files: Sequence[Sequence[DataFileFields]]
    #: The deletion files, by fragment.
    deletions: Mapping[int, _DeletionFileFields]


def list_fragments(messages: Sequence[FragmentFields]) -> Fragments:
    """Return the fields of fragments."""
    held = list(messages)
    return Fragments(
        ids=[fragment.id for fragment in held],
        rows=[fragment.physical_rows for fragment in held],
        files=[list(fragment.files) for fragment in held],
        deletions={fragment.id: fragment.deletion_file for fragment in held if fragment.HasField("deletion_file")},
    )


_FIELD = descriptor_pb2.FieldDescriptorProto


def _declare(
    holder: descriptor_pb2.FileDescriptorProto,
    name: str,
    fields: Sequence[tuple[str, int, _FieldType, bool, str | None]],
) -> None:
    declared = holder.message_type.add(name=name)
    for field_name, number, kind, repeated, type_name in fields:
        declared.field.add(
            name=field_name,
            number=number,
            type=kind,
            label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
            type_name=type_name,
        )


def _declare_parts(
    file: descriptor_pb2.FileDescriptorProto, number: _FieldType, text: _FieldType, nested: _FieldType, blob: _FieldType
) -> None:
    """Declare the messages that a manifest contains."""
    signed = _FIELD.TYPE_INT32
    _declare(
        file,
        "DataFile",
        [
            ("path", 1, text, False, None),
            ("fields", 2, signed, True, None),
            ("file_size_bytes", 6, number, False, None),
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
    # Parts that few fragments have are parsed separately: asking each of a thousand fragments takes milliseconds.
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
    _declare(file, "Details", [("type_url", 1, text, False, None)])
    _declare(file, "Uuid", [("uuid", 1, blob, False, None)])
    _declare(
        file,
        "Index",
        [
            ("uuid", 1, nested, False, ".pennon.Uuid"),
            ("name", 3, text, False, None),
            ("fragment_bitmap", 5, blob, False, None),
            ("details", 6, nested, False, ".pennon.Details"),
            ("files", 10, nested, True, ".pennon.IndexFile"),
        ],
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
            ("config", 16, nested, True, ".pennon.Entry"),
            ("base_paths", 18, nested, True, ".pennon.Base"),
            ("branch", 20, text, False, None),
            ("old_transaction_section", 21, number, False, None),
            ("fragment_tree", 22, blob, False, None),
            ("transaction_section", 23, number, False, None),
        ],
    )
    _declare(
        file,
        "Appendable",
        [
            ("fields", 1, blob, True, None),
            ("fragments", 2, blob, True, None),
            ("version", 3, number, False, None),
            ("schema_metadata", 5, blob, True, None),
            ("index_section", 6, number, False, None),
            ("timestamp", 7, nested, False, ".pennon.Time"),
            ("reader_feature_flags", 9, number, False, None),
            ("writer_feature_flags", 10, number, False, None),
            ("max_fragment_id", 11, number, False, None),
            ("transaction_file", 12, text, False, None),
            ("writer_version", 13, blob, False, None),
            ("next_row_id", 14, number, False, None),
            ("data_format", 15, blob, False, None),
            ("config", 16, nested, True, ".pennon.Entry"),
            ("table_metadata", 19, blob, True, None),
            ("transaction_section", 23, number, False, None),
        ],
    )
    operations = [(name, number, blob, False, None) for number, name in _OPERATIONS.items()]
    _declare(file, "Transaction", operations)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Manifest", "Transaction", "IndexSection", "RareManifest", "Field", "Appendable")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"pennon.{name}")) for name in names]


ManifestMessage, TransactionMessage, IndexMessage, RareMessage, FieldMessage, AppendableMessage = _build_messages()
