"""Columns of blobs: large values that are kept apart from the rows they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc


def is_blob(field: pa.Field) -> bool:
    """Tell whether a column's values are blobs."""
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    name = getattr(field.type, "extension_name", None) or metadata.get(b"ARROW:extension:name", b"").decode()
    return metadata.get(b"lance-encoding:blob") == b"true" or name.startswith("lance.blob")


def holds_blobs(field: pa.Field) -> bool:
    """Tell whether a column's values are blobs, or have some inside."""
    kind = field.type
    return is_blob(field) or any(holds_blobs(kind.field(index)) for index in range(kind.num_fields))


def with_nulls(blobs: pa.Array) -> pa.Array:
    """Return blobs with a null for each that has neither bytes nor an address: so LanceDB sends nulls from Node.js."""
    stored = blobs.storage if isinstance(blobs, pa.ExtensionArray) else blobs
    if not pa.types.is_struct(stored.type) or not stored.type.num_fields:
        return blobs
    parts = stored.flatten()
    is_null = reduce(pc.and_, map(pc.is_null, parts))
    made = pa.StructArray.from_arrays(parts, fields=list(stored.type), mask=is_null)
    return pa.ExtensionArray.from_storage(blobs.type, made) if isinstance(blobs, pa.ExtensionArray) else made
