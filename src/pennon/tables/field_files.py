"""The data files with the values of a field: Lance never rewrites a file, so their names identify the values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pennon.tables.field_paths import find_field, split_path

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.fragment import FragmentMetadata
    from lance.lance.schema import LanceField


def lance_field(dataset: LanceDataset, path: str) -> LanceField:
    """Return Lance's field at a path, which has an id; raises ``TableColumnNotFoundError`` otherwise."""
    find_field(dataset.schema, path)
    first, *rest = split_path(path)
    field = next(field for field in dataset.lance_schema.fields() if field.name() == first)
    for name in rest:
        field = next(child for child in field.children() if child.name() == name)
    return field


def field_ids_of(field: LanceField) -> set[int]:
    """Return the ids of a field and of all fields inside it."""
    found = {field.id()}
    for child in field.children():
        found |= field_ids_of(child)
    return found


def files_digest(metadata: FragmentMetadata, field_ids: frozenset[int]) -> str:
    """Return the identity of the values of fields in a fragment: a digest of their files."""
    return digest_files(metadata.physical_rows, [(file.path, set(file.fields)) for file in metadata.files], field_ids)


def digest_files(rows: int, files: Iterable[tuple[str, set[int]]], field_ids: frozenset[int]) -> str:
    """Return the digest of the row count and of the files of some fields of a fragment."""
    relevant = sorted((path, sorted(field_ids & fields)) for path, fields in files if field_ids & fields)
    return hashlib.sha256(json.dumps([rows, relevant]).encode()).hexdigest()[:40]
