"""A check of the column names in SQL, made before Lance resolves them.

Lance looks for names similar to an unknown one: it compares that name with the names of all columns, letter by letter.
For a name of 1,000 letters and 500 columns with names of that length, this takes 1.4 s that nothing can interrupt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import TableColumnNotFoundError

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.core.arrow_typing import AnyField

#: Names up to this length are compared fast enough. Longer words are names of columns: SQL and its types have none.
_MAX_COMPARED_LENGTH = 64
_LONG_WORD = re.compile(r"[\w$@\#]{65}|`[^`]{65}")
#: Names, and what may have words that are no names: texts and comments.
_NAME = re.compile(
    r"""'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\n]*|/\*.*?\*/|(?P<name>`(?:[^`]|``)*+`|[^\W\d][\w$@\#]*+)""", re.DOTALL
)


def check_long_names(dataset: LanceDataset, *expressions: str | None) -> None:
    """Raise ``TableColumnNotFoundError`` if an expression has a long name that no column or nested field has."""
    used = {name for sql in expressions if sql and _LONG_WORD.search(sql) for name in _long_names(sql)}
    if not used:
        return
    known = set(_field_names(dataset.schema))
    for name in used:
        if name.lower() not in known:
            raise TableColumnNotFoundError(f"There is no column {name[:50] + '…'!r} of {len(name)} letters.")


def _long_names(sql: str) -> Iterator[str]:
    for match in _NAME.finditer(sql):
        name = match["name"]
        if name is not None and len(name) > _MAX_COMPARED_LENGTH:
            yield name[1:-1].replace("``", "`") if name[0] == "`" else name


def _field_names(fields: Iterable[AnyField]) -> Iterator[str]:
    for field in fields:
        yield field.name.lower()
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        yield from _field_names(kind.field(index) for index in range(kind.num_fields))
