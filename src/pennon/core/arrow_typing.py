"""Names for generic types of pyarrow whose parameters are not known where they are used.

For annotations alone: the classes of pyarrow take no parameters at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing import Any

    import pyarrow as pa

    #: An array of any type.
    AnyArray: TypeAlias = pa.Array[Any]
    #: A chunked array of any type.
    AnyChunkedArray: TypeAlias = pa.ChunkedArray[Any]
    #: A field of any type.
    AnyField: TypeAlias = pa.Field[Any]
    #: A scalar of any type.
    AnyScalar: TypeAlias = pa.Scalar[Any]
