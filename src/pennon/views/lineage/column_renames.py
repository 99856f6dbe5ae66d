"""Following a column of a source that got another name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pennon.tables.field_paths import join_path, split_path
from pennon.views.model.definition import Column, Definition, Expansion, FunctionColumn, Source

if TYPE_CHECKING:
    from pennon.catalog.views import Watermark

#: Texts, quoted names, and words with what stands around them that makes them something else than a column.
_PIECE = re.compile(
    r"'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|\.`[^`]+`|`(?P<quoted>[^`]+)`|(?<![\w.])(?P<word>[^\W\d]\w*)(?!\w|\s*\()"
)


def rename_column(definition: Definition, source_id: str, old: str, new: str) -> Definition | None:
    """Return a definition that reads a column by its new name; none when that cannot be done safely."""
    if definition.engine != "lance" or "." in old:
        return None
    texts = [*(column.expression for column in definition.columns), definition.where or ""]
    if any(f'"{old}"' in text for text in texts):
        return None  # a text or a name, depending on who reads it
    if any(_is_spelled_otherwise(text, old) for text in texts):
        return None  # this column, unless there is one of that very name
    return replace(
        definition,
        sources=tuple(_source(source, source_id, old, new) for source in definition.sources),
        columns=tuple(Column(column.name, rename_in(column.expression, old, new)) for column in definition.columns),
        where=None if definition.where is None else rename_in(definition.where, old, new),
        functions=tuple(_function(function, old, new) for function in definition.functions),
        expansion=None if definition.expansion is None else _expansion(definition, definition.expansion, old, new),
    )


def rename_field(watermark: Watermark, source_id: str, old: str, new: str) -> Watermark:
    """Return a watermark that knows a column by its new name: it is the same column."""
    fields = {
        source: {rename_path(path, old, new) if source == source_id else path: number for path, number in known.items()}
        for source, known in watermark.fields.items()
    }
    return replace(watermark, fields=fields)


def rename_in(expression: str, old: str, new: str) -> str:
    """Return an SQL expression of Lance that names a column by its new name."""

    def piece(found: re.Match[str]) -> str:
        return f"`{new}`" if old in (found["quoted"], found["word"]) else found[0]

    return _PIECE.sub(piece, expression)


def rename_path(path: str, old: str, new: str) -> str:
    """Return the path of a column, or of a field inside of it, when the column has its new name."""
    first, *inner = split_path(path)
    return join_path([new, *inner]) if first == old else path


def _is_spelled_otherwise(expression: str, name: str) -> bool:
    """Tell whether an expression has a name in letters of another case, in which Lance finds a column, too."""
    words = {found["word"] or "" for found in _PIECE.finditer(expression)}
    return any(word.lower() == name.lower() for word in words - {name})


def _source(source: Source, source_id: str, old: str, new: str) -> Source:
    if source.table_id != source_id:
        return source
    return replace(source, columns=tuple(rename_path(path, old, new) for path in source.columns))


def _function(function: FunctionColumn, old: str, new: str) -> FunctionColumn:
    return replace(function, inputs=tuple(rename_path(path, old, new) for path in function.inputs))


def _expansion(definition: Definition, expansion: Expansion, old: str, new: str) -> Expansion:
    indexed = expansion.partition_by_indexed_column
    renamed = replace(expansion, partition_by_indexed_column=indexed and rename_path(indexed, old, new))
    if definition.kind == "udtf" or expansion.inputs is None:
        return renamed  # it takes the columns of its query, whose names stay
    return replace(renamed, inputs=tuple(rename_path(path, old, new) for path in expansion.inputs))
