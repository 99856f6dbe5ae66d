"""What the values of columns in a fragment are known by: the names of the files that hold them, which never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pennon.tables.field_files import digest_files, files_digest

if TYPE_CHECKING:
    from pennon.columns.feature_columns import FeatureColumn, Output


def signature(metadata: Any, column: FeatureColumn, output: Output) -> str:
    """Return what the values of a column and of its inputs in a fragment are known by."""
    return files_digest(metadata, column.input_leaves | output.leaves)


def input_signature(metadata: Any, column: FeatureColumn) -> str:
    """Return what the inputs in a fragment are known by."""
    return files_digest(metadata, column.input_leaves)


def signature_after(metadata: Any, column: FeatureColumn, output: Output, file: Mapping[str, Any]) -> str:
    """Return the signature that a fragment will have when a file takes the place of some of its fields."""
    return _digest_after(metadata, column.input_leaves | output.leaves, file)


def input_signature_after(metadata: Any, column: FeatureColumn, file: Mapping[str, Any]) -> str:
    """Return what the inputs in a fragment will be known by then."""
    return _digest_after(metadata, column.input_leaves, file)


def _digest_after(metadata: Any, leaves: frozenset[int], file: Mapping[str, Any]) -> str:
    replaced = frozenset(file["fields"])
    return digest_files(
        metadata.physical_rows,
        [*((old.path, set(old.fields) - replaced) for old in metadata.files), (file["path"], set(replaced))],
        leaves,
    )
