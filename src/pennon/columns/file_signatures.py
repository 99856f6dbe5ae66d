"""Signatures of the values of columns in a fragment: digests of their data files, which are immutable."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from pennon.tables.field_files import digest_files, files_digest

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

    from pennon.columns.feature_columns import ColumnOutput, FeatureColumn


class NewFile(TypedDict):
    """A data file and the ids of its fields."""

    path: str
    fields: list[int]


def signature(metadata: FragmentMetadata, column: FeatureColumn, output: ColumnOutput) -> str:
    """Return the signature of a column's values and of its inputs in a fragment."""
    return files_digest(metadata, column.input_field_ids | output.field_ids)


def input_signature(metadata: FragmentMetadata, column: FeatureColumn) -> str:
    """Return the signature of a column's inputs in a fragment."""
    return files_digest(metadata, column.input_field_ids)


def signature_after(metadata: FragmentMetadata, column: FeatureColumn, output: ColumnOutput, file: NewFile) -> str:
    """Return the signature of a fragment after a file has replaced some of its fields."""
    return _digest_after(metadata, column.input_field_ids | output.field_ids, file)


def input_signature_after(metadata: FragmentMetadata, column: FeatureColumn, file: NewFile) -> str:
    """Return the signature of the inputs after a file has replaced some fields of a fragment."""
    return _digest_after(metadata, column.input_field_ids, file)


def _digest_after(metadata: FragmentMetadata, field_ids: frozenset[int], file: NewFile) -> str:
    replaced = frozenset(file["fields"])
    return digest_files(
        metadata.physical_rows,
        [*((old.path, set(old.fields) - replaced) for old in metadata.files), (file["path"], set(replaced))],
        field_ids,
    )
