"""The tokens of Spark SQL, written so that every parser reads the same ones.

Two parsers that disagree about where a comment, a string or a hint ends read two different statements. So the text of a
request never reaches a parser: it is split into tokens by the rules of Spark's own lexer, and each token is written
again in a form that has one reading only. Comments and hints are blanked out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lance_namespace.errors import InvalidInputError

from pennon.core.sql_names import quote_name

_BLANK = re.compile(r"\s+")
#: A backslash before the end of the line continues a comment, as it does in Spark.
_LINE_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
_COMMENT_MARK = re.compile(r"/\*(?!\+)|\*/")
_QUOTED = {
    "'": re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL),
    '"': re.compile(r'"((?:[^"\\]|\\.|"")*)"', re.DOTALL),
    "`": re.compile(r"`((?:[^`]|``)*)`", re.DOTALL),
}
#: Only whole numbers without an exponent are of a type such as BIGINT (1L).
_NUMBER = re.compile(
    r"(?:\d+[lsy]|(?:\d+\.\d*|\.\d+|\d+)(?:e[+-]?\d+)?(?:bd|[fd])?)(?![a-z0-9_])", re.ASCII | re.IGNORECASE
)
_WORD = re.compile(r"\w+")
_WORD_END = re.compile(r"[\w`]")
_SYMBOL = re.compile(r"[()\[\],.;<>=!+\-*/%&|^~:?]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
#: Escapes in strings of Spark; after a backslash, any other character stands for itself.
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_WRITTEN = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: Spark would replace it by settings or environment variables of the worker.
_SUBSTITUTION = "${"

Kind = Literal["string", "name", "word", "number", "symbol"]


@dataclass(frozen=True)
class Token:
    """A token of a statement: its value, and the position of its normalized form."""

    kind: Kind
    #: The value of a string or a quoted name; anything else as it is written.
    value: str
    start: int
    end: int


@dataclass(frozen=True)
class NormalizedSql:
    """A statement that every parser splits into the same tokens."""

    text: str
    tokens: tuple[Token, ...]

    def calls(self) -> Iterator[str]:
        """Yield every name before an opening parenthesis, in lower case; that includes all function calls."""
        for token, after in zip(self.tokens, self.tokens[1:], strict=False):
            if token.kind in ("word", "name") and after.value == "(" and after.kind == "symbol":
                yield token.value.lower()

    def qualified_call(self) -> str | None:
        """Return the first qualified name before an opening parenthesis."""
        for qualifier, dot, token, after in zip(
            self.tokens, self.tokens[1:], self.tokens[2:], self.tokens[3:], strict=False
        ):
            is_dot = dot.kind == "symbol" and dot.value == "." and qualifier.kind in ("word", "name")
            if is_dot and token.kind in ("word", "name") and after.kind == "symbol" and after.value == "(":
                return f"{qualifier.value}.{token.value}"
        return None


def normalize_sql(text: str) -> NormalizedSql:
    """Remove comments and hints from a statement, and write strings and quoted names in one form.

    The operation is idempotent.
    """
    pieces: list[str] = []
    tokens: list[Token] = []
    length = 0
    for kind, value, written in _joined(_split(text)):
        if kind is not None:
            tokens.append(Token(kind, value, length, length + len(written)))
        pieces.append(written)
        length += len(written)
    normal = "".join(pieces)
    if _SUBSTITUTION in text or _SUBSTITUTION in normal:
        raise InvalidInputError("The query may not contain '${': variables are not substituted.")
    return NormalizedSql(normal, tuple(tokens))


_Piece = tuple[Kind | None, str, str]


def _split(text: str) -> Iterator[_Piece]:
    """Yield the tokens of a text and the blanks between them, each with its normalized form."""
    at, is_joined = 0, False
    while at < len(text):
        end = _end_of_blank(text, at)
        if end > at:
            yield None, "", "".join(char if char == "\n" else " " for char in text[at:end])
            at, is_joined = end, False
            continue
        kind, value, end = _token(text, at)
        if is_joined and kind != "symbol":  # `a`1b is two names, but `a``1b` would be one
            yield None, "", " "
        yield kind, value, _write(kind, value)
        at, is_joined = end, kind != "symbol"


def _joined(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Concatenate adjacent strings, as Spark does."""
    held: _Piece | None = None
    blanks = ""
    for piece in pieces:
        kind, value, written = piece
        if held is not None and kind is None:
            blanks += written
        elif held is not None and kind == "string":
            held = (kind, held[1] + value, _write(kind, held[1] + value))
        else:
            if held is not None:
                yield held
                yield None, "", blanks
            held, blanks = (piece, "") if kind == "string" else (None, "")
            if kind != "string":
                yield piece
    if held is not None:
        yield held
        yield None, "", blanks


def _end_of_blank(text: str, at: int) -> int:
    """Return the end of the white space, comment or hint at a position, or the position itself."""
    found = _BLANK.match(text, at) or _LINE_COMMENT.match(text, at)
    if found:
        return found.end()
    return _end_of_comment(text, at) if text.startswith("/*", at) else at


def _end_of_comment(text: str, start: int) -> int:
    """Return the end of a comment or hint. Comments nest, but a hint inside is part of the comment."""
    if text.startswith("/*+", start):
        closing = text.find("*/", start)
        if closing >= 0:
            return closing + 2
    else:
        depth = 0
        for found in _COMMENT_MARK.finditer(text, start):
            depth += 1 if found[0] == "/*" else -1
            if depth == 0:
                return found.end()
    raise InvalidInputError("The SQL cannot be read: a comment is not closed.")


def _token(text: str, at: int) -> tuple[Kind, str, int]:
    char = text[at]
    if char in _QUOTED:
        return _quoted(text, at)
    found = _NUMBER.match(text, at)
    if found:
        if text.startswith(".", found.end()):  # lexers disagree about where such a number ends
            raise InvalidInputError(f"The SQL cannot be read: {text[at : found.end() + 10]!r} is not a number.")
        if char == "." and at and _WORD_END.match(text[at - 1]):  # Spark reads a.5d as a column of a
            raise InvalidInputError(
                f"The SQL cannot be read: quote the name after the point in {text[at - 1 :][:10]!r}."
            )
        return "number", found[0], found.end()
    found = _WORD.match(text, at)
    if found:
        return _word(text, found)
    found = _SYMBOL.match(text, at)
    if found:
        return "symbol", char, found.end()
    raise InvalidInputError(f"The SQL cannot be read: {char!r} is not allowed outside of quotes.")


def _quoted(text: str, at: int) -> tuple[Kind, str, int]:
    mark = text[at]
    found = _QUOTED[mark].match(text, at)
    if not found:
        raise InvalidInputError("The SQL cannot be read: a quote is not closed.")
    if mark == "`":
        return "name", found[1].replace("``", "`"), found.end()
    return "string", _unescaped(found[1].replace(mark * 2, mark)), found.end()


def _word(text: str, found: re.Match[str]) -> tuple[Kind, str, int]:
    word = found[0]
    if not word.isascii():
        raise InvalidInputError(f"The name {word!r} must be quoted in backticks, as Spark requires.")
    if word in ("r", "R") and text[found.end() : found.end() + 1] in ("'", '"'):
        raise InvalidInputError("Raw strings (r'…') are not supported in the query of a view; write plain strings.")
    if text.startswith("://", found.end()):  # Spark may parse it as one name with what follows
        raise InvalidInputError(f"The query of a view cannot contain '{word}://…' outside of quotes; name a table.")
    # Some parsers read a name that begins with a digit as a hexadecimal number, or as a number with a unit.
    return ("name" if word[0].isdigit() else "word"), word, found.end()


def _unescaped(text: str) -> str:
    def piece(found: re.Match[str]) -> str:
        short, long, octal, char = found.groups()
        if char is not None:
            return _ESCAPED.get(char, char)
        code = int(short or long, 16) if octal is None else int(octal, 8)
        if code > 0x10FFFF:
            raise InvalidInputError(f"The SQL cannot be read: {found[0]!r} is not a character.")
        return chr(code)

    # Two surrogates, each written as an escape, make one character.
    return _ESCAPE.sub(piece, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _write(kind: Kind, value: str) -> str:
    if kind == "name":
        return quote_name(value)
    return f"'{''.join(map(_written, value))}'" if kind == "string" else value


def _written(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    return f"\\u{ord(char):04x}" if ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or _is_surrogate(char) else char


def _is_surrogate(char: str) -> bool:
    """Return whether a character is a surrogate."""
    return 0xD800 <= ord(char) < 0xE000
