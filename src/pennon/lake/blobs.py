"""Columns of blobs: large values that are kept apart from the rows they belong to."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa


def is_blob(field: pa.Field) -> bool:
    """Tell whether a column's values are blobs."""
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    name = getattr(field.type, "extension_name", None) or metadata.get(b"ARROW:extension:name", b"").decode()
    return metadata.get(b"lance-encoding:blob") == b"true" or name.startswith("lance.blob")


def holds_blobs(field: pa.Field) -> bool:
    """Tell whether a column's values are blobs, or have some inside."""
    kind = field.type
    return is_blob(field) or any(holds_blobs(kind.field(index)) for index in range(kind.num_fields))
