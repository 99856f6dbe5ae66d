"""Statements in Spark's SQL: parsing, the tables they read, and edits that keep the rest of the text.

SQL that a parser generates does not always mean what it has parsed. So a statement keeps its own tokens, and only the
edited parts change.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from lance_namespace.errors import InvalidInputError
from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.dialects.dialect import DialectType
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from pennon.core.sql_names import quote_name
from pennon.views.model.definition import SOURCE_ROW
from pennon.views.model.query import TableUse
from pennon.views.sql.simple_select import nesting, parse_int64

SPARK = "spark"
#: Tokens in the error messages of the parser.
_TOKEN = re.compile(r"<Token token_type: \S+, text: (.*?), line.*?>")


def parse(text: str, dialect: DialectType = SPARK) -> exp.Expr:
    """Parse one statement."""
    try:
        statements = sqlglot.parse(text, read=dialect)
    except SqlglotError as error:
        raise unreadable(error) from None
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        # sqlglot builds some functions, such as date_trunc(), from arguments that it takes for granted.
        raise InvalidInputError("The SQL cannot be read: a function lacks arguments or has invalid ones.") from error
    except RecursionError:
        raise InvalidInputError("The SQL is nested too deeply.") from None
    found = [statement for statement in statements if not isinstance(statement, exp.Semicolon)]
    if len(found) != 1 or found[0] is None:
        raise InvalidInputError("The query must be one SELECT.")
    return found[0]


def unreadable(error: SqlglotError) -> InvalidInputError:
    """Return the error for SQL that sqlglot cannot read, without its escape sequences and tokens."""
    details = getattr(error, "errors", None)
    if not details:
        return InvalidInputError(f"The SQL cannot be read: {str(error).split(chr(10), 1)[0][:300]}")
    first = details[0]
    reason = _TOKEN.sub(r"'\1'", str(first["description"]))
    return InvalidInputError(f"The SQL cannot be read: {reason} (line {first['line']}, column {first['col']})")


def find_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables and table functions of a statement, except its common table expressions."""
    defined = {
        id(table)
        for scope in traverse_scope(tree)
        for table in scope.tables
        if not isinstance(scope.sources.get(table.alias_or_name), exp.Table)
    }
    hints = {id(table) for hint in tree.find_all(exp.Hint) for table in hint.find_all(exp.Table)}
    yield from (table for table in tree.find_all(exp.Table) if id(table) not in defined | hints)


def table_use(table: exp.Table) -> TableUse:
    """Return the name and the version of a table."""
    known = table.meta.get("use")
    if isinstance(known, TableUse):
        return known
    version = table.args.get("version")
    use = TableUse(tuple(part.name for part in table.parts), _version_of(version) if version else None)
    table.meta["use"] = use
    return use


def _version_of(version: exp.Version) -> int | str:
    asked = version.args.get("expression")
    if version.name.upper() != "VERSION" or str(version.args.get("kind")).upper() != "AS OF":
        raise InvalidInputError("Write VERSION AS OF with a number or a tag to read an earlier version of a table.")
    found = None
    if isinstance(asked, exp.Literal):
        found = asked.name if asked.is_string else parse_int64(asked.name)
    if found is None:
        raise InvalidInputError("VERSION AS OF takes a whole number, or a tag in quotes.")
    return found


@dataclass(frozen=True)
class Edit:
    """A replacement of the characters from start up to end."""

    start: int
    end: int
    text: str


class Statement:
    """The text of a statement and its tokens; returns edits, and applies them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.tokens: list[Token] = Spark().tokenize(text)
        self._at = {token.start: index for index, token in enumerate(self.tokens)}

    def edited(self, edits: Sequence[Edit]) -> str:
        """Apply edits, remove a semicolon at the end, and return the text."""
        text = self._text
        last = self.tokens[-1]
        if last.token_type == TokenType.SEMICOLON:
            text = text[: last.start] + " " * (last.end + 1 - last.start) + text[last.end + 1 :]
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text.strip()

    def rename(self, table: exp.Table, name: str) -> list[Edit]:
        """Return the edits that rename a table and keep its alias, or its old name as alias."""
        parts = table.parts
        start = parts[0].meta["start"]
        index = self._after_version(self._at[parts[-1].meta["start"]] + 1)
        edits = [Edit(start, self.tokens[index - 1].end + 1, name)]
        if not table.alias:
            end = self.tokens[self._after_sample(index) - 1].end + 1
            edits.append(Edit(end, end, f" AS {quote_name(parts[-1].name)}"))
        return edits

    def shorten(self, column: exp.Column, tables: Container[tuple[str, ...]]) -> list[Edit]:
        """Return the edit that removes the namespace from a qualified column name."""
        parts = column.parts
        above = tuple(part.name.lower() for part in parts[:-1])
        if len(above) < 2 or above not in tables or "start" not in parts[0].meta:
            return []
        return [Edit(parts[0].meta["start"], parts[-2].meta["start"], "")]

    def with_source_row(self, items: Sequence[Sequence[str] | None], table: str) -> list[Edit]:
        """Return the edits that make a SELECT also return the source row id; stars are replaced by their columns."""
        first = next(index for index, token in enumerate(self.tokens) if token.token_type == TokenType.SELECT) + 1
        if self.tokens[first].token_type == TokenType.ALL:
            first += 1
        spans = self._items(first)
        if len(spans) != len(items):
            raise InvalidInputError("The SQL cannot be read: a column between two commas is missing.")
        own = f"{quote_name(table)}.{quote_name(SOURCE_ROW)}"
        edits = [Edit(self.tokens[first].start, self.tokens[first].start, f"{own}, ")]
        for columns, (start, end) in zip(items, spans, strict=True):
            if columns is not None:
                written = ", ".join(f"{quote_name(table)}.{quote_name(name)}" for name in columns)
                edits.append(Edit(self.tokens[start].start, self.tokens[end - 1].end + 1, written))
        return _merge_insertion(edits)

    def _after_version(self, index: int) -> int:
        """Return the index of the token after VERSION AS OF, or the index itself."""
        words = [token.text.upper() for token in self.tokens[index : index + 5]]
        if words[:1] == ["FOR"]:
            words, index = words[1:], index + 1
        return index + 4 if words[:3] == ["VERSION", "AS", "OF"] else index

    def _after_sample(self, index: int) -> int:
        """Return the index of the token after TABLESAMPLE, or the index itself."""
        for word in ("TABLESAMPLE", "REPEATABLE"):
            if index < len(self.tokens) and self.tokens[index].text.upper() == word:
                index = self._closing(index + 1) + 1
        return index

    def _closing(self, index: int) -> int:
        depth = 0
        for at in range(index, len(self.tokens)):
            depth += nesting(self.tokens[at].token_type)
            if depth == 0:
                return at
        return len(self.tokens) - 1

    def _items(self, first: int) -> list[tuple[int, int]]:
        """Return where each item of the SELECT begins and ends, as indices of words."""
        found, start, depth = [], first, 0
        for at in range(first, len(self.tokens) + 1):
            kind = self.tokens[at].token_type if at < len(self.tokens) else TokenType.SEMICOLON
            depth += nesting(kind)
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
