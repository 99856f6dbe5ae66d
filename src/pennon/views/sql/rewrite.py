"""Edits of a statement in Spark's SQL that keep the rest of its text.

SQL that a parser generates does not always mean what it has parsed. So the statement keeps its own normalized tokens,
and only the edited parts change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lance_namespace.errors import InvalidInputError
from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.tokenizer_core import Token, TokenType

from pennon.core.sql_names import quote_name
from pennon.views.model.definition import SOURCE_ROW
from pennon.views.sql.spark_lexer import NormalizedSql, normalize_sql

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_QUOTED = {TokenType.STRING, TokenType.IDENTIFIER, TokenType.HEX_STRING, TokenType.NATIONAL_STRING}


@dataclass(frozen=True)
class Edit:
    """A replacement of the characters from start up to end."""

    start: int
    end: int
    text: str


class Statement:
    """A statement and its tokens."""

    def __init__(self, normal: NormalizedSql) -> None:
        self._text = normal.text
        self._read: list[Token] = Spark().tokenize(normal.text)
        self._at = {token.start: index for index, token in enumerate(self._read)}
        if any(token.token_type == TokenType.PIPE_GT for token in self._read):
            raise InvalidInputError("The query of a view is a SELECT; '|>' is not offered.")
        quoted = [token.end for token in normal.tokens if token.kind in ("string", "name")]
        if quoted != [token.end + 1 for token in self._read if token.token_type in _QUOTED]:
            raise InvalidInputError("The SQL cannot be read: its quotes can be taken in several ways.")

    def edited(self, edits: Sequence[Edit]) -> str:
        """Apply edits, remove a semicolon at the end, and return the normalized text."""
        text = self._text
        last = self._read[-1]
        if last.token_type == TokenType.SEMICOLON:
            text = text[: last.start] + " " * (last.end + 1 - last.start) + text[last.end + 1 :]
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return normalize_sql(text.strip()).text  # a name in the place of a star needs blanks around it

    def rename(self, table: exp.Table, name: str) -> list[Edit]:
        """Return the edits that rename a table and keep its alias, or its old name as alias."""
        parts = table.parts
        start = parts[0].meta["start"]
        index = self._after_version(self._at[parts[-1].meta["start"]] + 1)
        edits = [Edit(start, self._read[index - 1].end + 1, name)]
        if not table.alias:
            end = self._read[self._after_sample(index) - 1].end + 1
            edits.append(Edit(end, end, f" AS {quote_name(parts[-1].name)}"))
        return edits

    def shorten(self, column: exp.Column, tables: Mapping[tuple[str, ...], object]) -> list[Edit]:
        """Return the edit that removes the namespace from a qualified column name."""
        parts = column.parts
        above = tuple(part.name.lower() for part in parts[:-1])
        if len(above) < 2 or above not in tables or "start" not in parts[0].meta:
            return []
        return [Edit(parts[0].meta["start"], parts[-2].meta["start"], "")]

    def with_source_row(self, items: Sequence[Sequence[str] | None], table: str) -> list[Edit]:
        """Return the edits that make a SELECT also return the source row id; stars are replaced by their columns."""
        first = next(index for index, token in enumerate(self._read) if token.token_type == TokenType.SELECT) + 1
        if self._read[first].token_type == TokenType.ALL:
            first += 1
        spans = self._items(first)
        if len(spans) != len(items):
            raise InvalidInputError("The SQL cannot be read: a column between two commas is missing.")
        own = f"{quote_name(table)}.{quote_name(SOURCE_ROW)}"
        edits = [Edit(self._read[first].start, self._read[first].start, f"{own}, ")]
        for columns, (start, end) in zip(items, spans, strict=True):
            if columns is not None:
                written = ", ".join(f"{quote_name(table)}.{quote_name(name)}" for name in columns)
                edits.append(Edit(self._read[start].start, self._read[end - 1].end + 1, written))
        return _merge_insertion(edits)

    def _after_version(self, index: int) -> int:
        """Return the index of the token after VERSION AS OF, or the index itself if there is none."""
        words = [token.text.upper() for token in self._read[index : index + 5]]
        if words[:1] == ["FOR"]:
            words, index = words[1:], index + 1
        return index + 4 if words[:3] == ["VERSION", "AS", "OF"] else index

    def _after_sample(self, index: int) -> int:
        """Return the index of the token after TABLESAMPLE, or the index itself if there is none."""
        for word in ("TABLESAMPLE", "REPEATABLE"):
            if index < len(self._read) and self._read[index].text.upper() == word:
                index = self._closing(index + 1) + 1
        return index

    def _closing(self, index: int) -> int:
        depth = 0
        for at in range(index, len(self._read)):
            kind = self._read[at].token_type
            depth += (kind in _OPEN) - (kind in _CLOSE)
            if depth == 0:
                return at
        return len(self._read) - 1

    def _items(self, first: int) -> list[tuple[int, int]]:
        """Return where each item of the SELECT begins and ends, as indices of words."""
        found, start, depth = [], first, 0
        for at in range(first, len(self._read) + 1):
            kind = self._read[at].token_type if at < len(self._read) else TokenType.SEMICOLON
            depth += (kind in _OPEN) - (kind in _CLOSE)
            ends = kind in (TokenType.FROM, TokenType.WHERE, TokenType.SEMICOLON) or depth < 0
            if depth <= 0 and (ends or kind == TokenType.COMMA):
                found.append((start, at))
                start = at + 1
                if ends:
                    break
        return found


def _merge_insertion(edits: list[Edit]) -> list[Edit]:
    """Merge the insertion, which is the first edit, with a replacement that starts at the same position."""
    first, *others = edits
    same = next((edit for edit in others if edit.start == first.start), None)
    if same is None:
        return edits
    return [Edit(same.start, same.end, first.text + same.text), *(edit for edit in others if edit is not same)]
