"""What the values of columns in a fragment are known by: the names of the files that hold them, which never change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.lake.feature_columns import FeatureColumn, Output


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
    return _digest_of(
        metadata.physical_rows,
        [*((old.path, set(old.fields) - replaced) for old in metadata.files), (file["path"], set(replaced))],
        leaves,
    )


def files_digest(metadata: Any, leaves: frozenset[int]) -> str:
    """Return what the values of fields in a fragment are known by: the files that hold them."""
    return _digest_of(metadata.physical_rows, [(file.path, set(file.fields)) for file in metadata.files], leaves)


def _digest_of(rows: int, files: Iterable[tuple[str, set[int]]], leaves: frozenset[int]) -> str:
    held = sorted((path, sorted(leaves & fields)) for path, fields in files if leaves & fields)
    return hashlib.sha256(json.dumps([rows, held]).encode()).hexdigest()[:40]
