"""Adapting definitions of views to a renamed column of a source."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pennon.tables.field_paths import join_path, split_path
from pennon.views.model.definition import Column, Definition, Expansion, FunctionColumn, Source

if TYPE_CHECKING:
    from pennon.catalog.views import Watermark

#: Strings, quoted names, and words that are neither part of a path nor a function call.
_PIECE = re.compile(
    r"'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|\.`[^`]+`|`(?P<quoted>[^`]+)`|(?<![\w.])(?P<word>[^\W\d]\w*)(?!\w|\s*\()"
)


def rename_column(definition: Definition, source_id: str, old: str, new: str) -> Definition | None:
    """Return the definition with a renamed source column; none if that cannot be done safely."""
    if definition.engine != "lance" or "." in old:
        return None
    texts = [*(column.expression for column in definition.columns), definition.where or ""]
    if any(f'"{old}"' in text for text in texts):
        return None  # double quotes mean a string or a name, depending on the parser
    if any(_is_spelled_otherwise(text, old) for text in texts):
        return None  # it means this column unless there is another one in that spelling
    return replace(
        definition,
        sources=tuple(_source(source, source_id, old, new) for source in definition.sources),
        columns=tuple(
            Column(column.name, rename_in_expression(column.expression, old, new)) for column in definition.columns
        ),
        where=None if definition.where is None else rename_in_expression(definition.where, old, new),
        functions=tuple(_function(function, old, new) for function in definition.functions),
        expansion=None if definition.expansion is None else _expansion(definition, definition.expansion, old, new),
    )


def rename_field(watermark: Watermark, source_id: str, old: str, new: str) -> Watermark:
    """Return the watermark with a renamed source column."""
    fields = {
        source: {rename_path(path, old, new) if source == source_id else path: number for path, number in known.items()}
        for source, known in watermark.fields.items()
    }
    return replace(watermark, fields=fields)


def rename_in_expression(expression: str, old: str, new: str) -> str:
    """Rename a column in an expression of Lance's SQL."""

    def piece(found: re.Match[str]) -> str:
        return f"`{new}`" if old in (found["quoted"], found["word"]) else found[0]

    return _PIECE.sub(piece, expression)


def rename_path(path: str, old: str, new: str) -> str:
    """Rename the column at the beginning of a path."""
    first, *inner = split_path(path)
    return join_path([new, *inner]) if first == old else path


def _is_spelled_otherwise(expression: str, name: str) -> bool:
    """Return whether an expression has a name in another case, which Lance resolves to the same column."""
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
        return renamed  # its inputs are columns of the query, whose names do not change
    return replace(renamed, inputs=tuple(rename_path(path, old, new) for path in expansion.inputs))
