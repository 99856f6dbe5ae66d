"""Parsing of the simple SELECT on one table that LanceDB's client writes; its expressions stay unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lance_namespace.errors import InvalidInputError
from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from pennon.core.sql_names import quote_name
from pennon.views.model.definition import Column
from pennon.views.model.query import StructuredQuery, TableUse
from pennon.views.sql.spark_functions import AGGREGATES, GENERATORS, POSITION_COLUMNS, VOLATILE

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_CLAUSES = ("SELECT", "FROM", "WHERE", "LIMIT", "OFFSET")
_MULTI_ROW_WORDS = {"over", "distinct", "group", "having", "order", "union", "intersect", "except", "join", "with"}


class LanceDialect(Dialect):
    """SQL with identifiers in double quotes or backticks."""

    class Tokenizer(tokens.Tokenizer):
        """Accepts both kinds of quotes."""

        IDENTIFIERS = ['"', "`"]  # noqa: RUF012 (as its base class has it)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a statement or an expression."""
    try:
        return LanceDialect().tokenize(text)
    except TokenError:
        raise InvalidInputError("The SQL cannot be read: a quote or a comment is not closed.") from None


def nesting(kind: TokenType) -> int:
    """Return by how much a token changes the depth of brackets."""
    return (kind in _OPEN) - (kind in _CLOSE)


def find_volatile_name(text: str) -> str | None:
    """Return the first function or column in an expression whose value does not depend on the row alone."""
    read = tokenize(text)
    for token, after in zip(read, [*read[1:], None], strict=True):
        name = token.text.lower()
        called = after is not None and after.token_type == TokenType.L_PAREN
        bare = name.startswith(("current_", "localtime")) and token.token_type != TokenType.IDENTIFIER
        if token.token_type != TokenType.STRING and (
            (name in VOLATILE and (called or bare)) or (name in POSITION_COLUMNS and not called)
        ):
            return f"{name}()" if called else name
    return None


def find_multi_row_call(text: str) -> str | None:
    """Return the first function in an expression that takes or returns several rows."""
    read = tokenize(text)
    for token, after in pairwise(read):
        is_name = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        name = token.text.lower()
        if is_name and after.token_type == TokenType.L_PAREN and name in AGGREGATES | GENERATORS:
            return f"{name}()"
    return None


def parse_int64(text: str) -> int | None:
    """Parse a non-negative number of at most 63 bits; none for any other text."""
    is_short = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_short and int(text) < 2**63 else None


def parse_simple_select(text: str) -> StructuredQuery | None:
    """Parse a SELECT on one table that maps each row to at most one row; none for any other query."""
    read = [token for token in tokenize(text) if token.token_type != TokenType.SEMICOLON]
    clauses = _clauses(read)
    if clauses is None or _has_multi_row_clause(read) or find_multi_row_call(text) is not None:
        return None
    source = _table(clauses["FROM"])
    if source is None:
        return None
    where = clauses.get("WHERE")
    return StructuredQuery(
        source=source,
        columns=_columns(text, clauses["SELECT"]),
        where=_written(text, where) if where else None,
        limit=_count("LIMIT", clauses.get("LIMIT")),
        offset=_count("OFFSET", clauses.get("OFFSET")),
    )


def is_readable_by_client(text: str) -> bool:
    """Return whether LanceDB's client can parse a query: one table with WHERE, GROUP BY and LIMIT."""
    read = tokenize(text)
    words = {t.text.lower() for t in read if t.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)}
    is_simple = not words & (_MULTI_ROW_WORDS - {"group", "over"})
    return is_simple and sum(token.token_type == TokenType.SELECT for token in read) == 1


def _clauses(read: Sequence[Token]) -> dict[str, list[Token]] | None:
    """Return the tokens of each clause; none if there are other clauses, or in another order."""
    found: dict[str, list[Token]] = {}
    current = ""
    for token, depth in _with_depth(read):
        word = token.text.upper() if token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING) else ""
        if depth == 0 and word in _CLAUSES:
            if found and _CLAUSES.index(word) <= _CLAUSES.index(current):
                return None
            current = word
            found[word] = []
        elif not current:
            return None
        else:
            found[current].append(token)
    return found if all(found.get(name) for name in ("SELECT", "FROM")) and "" not in found else None


def _has_multi_row_clause(read: Sequence[Token]) -> bool:
    """Return whether a query has clauses that involve several rows or tables."""
    words = {t.text.lower() for t in read if t.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)}
    return bool(words & _MULTI_ROW_WORDS) or sum(token.token_type == TokenType.SELECT for token in read) > 1


def _with_depth(read: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    depth = 0
    for token in read:
        change = nesting(token.token_type)
        depth += min(change, 0)
        yield token, depth
        depth += max(change, 0)


def _table(read: Sequence[Token]) -> TableUse | None:
    names, dots = read[::2], read[1::2]
    if len(read) % 2 == 0 or any(token.token_type != TokenType.DOT for token in dots):
        return None
    if any(token.token_type in (TokenType.STRING, TokenType.NUMBER) for token in names):
        return None
    return TableUse(tuple(token.text for token in names))


def _columns(text: str, read: Sequence[Token]) -> tuple[Column, ...] | None:
    items: list[list[Token]] = [[]]
    for token, depth in _with_depth(read):
        if depth == 0 and token.token_type == TokenType.COMMA:
            items.append([])
        else:
            items[-1].append(token)
    if len(items) == 1 and len(items[0]) == 1 and items[0][0].token_type == TokenType.STAR:
        return None
    return tuple(_column(text, item) for item in items)


def _column(text: str, item: Sequence[Token]) -> Column:
    if len(item) >= 3 and item[-2].text.upper() == "AS" and item[-2].token_type != TokenType.IDENTIFIER:
        return Column(item[-1].text, _written(text, item[:-2]))
    if len(item) == 1 and item[0].token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        return Column(item[0].text, quote_name(item[0].text))
    if item and item[-1].token_type == TokenType.STAR:
        raise InvalidInputError("'*' must be the only item of the SELECT; name the columns to add others.")
    shown = text[item[0].start : item[-1].end + 1] if item else ""
    raise InvalidInputError(f"The column {shown!r} has no name; write 'AS' and a name after it.")


def _written(text: str, read: Sequence[Token]) -> str:
    """Return the text of an expression, with names quoted in backticks, which Lance accepts."""
    pieces, at = [], read[0].start
    for token in read:
        if token.token_type == TokenType.IDENTIFIER:
            pieces += [text[at : token.start], quote_name(token.text)]
            at = token.end + 1
    return "".join([*pieces, text[at : read[-1].end + 1]])


def _count(clause: str, read: Sequence[Token] | None) -> int | None:
    if read is None:
        return None
    number = parse_int64(read[0].text) if len(read) == 1 else None
    if number is None:
        raise InvalidInputError(f"{clause} must be a whole number of at most 63 bits.")
    return number
