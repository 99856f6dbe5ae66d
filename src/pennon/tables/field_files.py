"""The data files that hold the values of a field: Lance never rewrites one, so their names identify the values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from pennon.tables.field_paths import find_field, split_path


def lance_field(dataset: Any, path: str) -> Any:
    """Return the field at a path as Lance knows it, with its id."""
    find_field(dataset.schema, path)  # names what is missing
    first, *rest = split_path(path)
    field = next(field for field in dataset.lance_schema.fields() if field.name() == first)
    for name in rest:
        field = next(child for child in field.children() if child.name() == name)
    return field


def leaves_of(field: Any) -> set[int]:
    """Return the ids under which files hold a field."""
    found = {field.id()}
    for child in field.children():
        found |= leaves_of(child)
    return found


def files_digest(metadata: Any, leaves: frozenset[int]) -> str:
    """Return what the values of fields in a fragment are known by: the files that hold them."""
    return digest_files(metadata.physical_rows, [(file.path, set(file.fields)) for file in metadata.files], leaves)


def digest_files(rows: int, files: Iterable[tuple[str, set[int]]], leaves: frozenset[int]) -> str:
    """Return the digest of a fragment's rows and of the files that hold some of its fields."""
    held = sorted((path, sorted(leaves & fields)) for path, fields in files if leaves & fields)
    return hashlib.sha256(json.dumps([rows, held]).encode()).hexdigest()[:40]
