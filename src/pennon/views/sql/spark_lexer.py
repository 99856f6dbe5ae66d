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

_BLANK = re.compile(r"\s+")
#: A backslash before the end of the line continues a comment, as it does in Spark.
_LINE_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
_COMMENT_MARK = re.compile(r"/\*(?!\+)|\*/")
_QUOTED = {
    "'": re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL),
    '"': re.compile(r'"((?:[^"\\]|\\.|"")*)"', re.DOTALL),
    "`": re.compile(r"`((?:[^`]|``)*)`", re.DOTALL),
}
_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LSYFDlsyfd])?(?![A-Za-z0-9_])", re.ASCII)
_WORD = re.compile(r"\w+")
_SYMBOL = re.compile(r"[()\[\],.;<>=!+\-*/%&|^~:?]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
#: What follows a backslash in a string of Spark's; any other character stands for itself.
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_WRITTEN = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: Spark would put settings and environment variables of the worker in its place.
_SUBSTITUTION = "${"

Kind = Literal["string", "name", "word", "number", "symbol"]


@dataclass(frozen=True)
class Token:
    """A token of a statement: what it means, and where its normalised form stands."""

    kind: Kind
    #: The value of a string or a quoted name; anything else as it is written.
    value: str
    start: int
    end: int


@dataclass(frozen=True)
class Normalised:
    """A statement whose text has one reading."""

    text: str
    tokens: tuple[Token, ...]

    def calls(self) -> Iterator[str]:
        """Yield what is followed by an opening bracket, in lower case: every function that is called is among it."""
        for token, after in zip(self.tokens, self.tokens[1:], strict=False):
            if token.kind in ("word", "name") and after.value == "(" and after.kind == "symbol":
                yield token.value.lower()

    def qualified_call(self) -> str | None:
        """Return the first name with a qualifier that is followed by an opening bracket, if there is one."""
        for qualifier, dot, token, after in zip(
            self.tokens, self.tokens[1:], self.tokens[2:], self.tokens[3:], strict=False
        ):
            is_dot = dot.kind == "symbol" and dot.value == "." and qualifier.kind in ("word", "name")
            if is_dot and token.kind in ("word", "name") and after.kind == "symbol" and after.value == "(":
                return f"{qualifier.value}.{token.value}"
        return None


def normalise(text: str) -> Normalised:
    """Return a statement without comments and hints, its strings and quoted names written in one way.

    Normalising what is normal changes nothing.
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
        raise InvalidInputError("The query may not hold '${': variables are not put in place here.")
    return Normalised(normal, tuple(tokens))


_Piece = tuple[Kind | None, str, str]


def _split(text: str) -> Iterator[_Piece]:
    """Yield the tokens of a text and the blanks between them, each with the form it is written in."""
    at = 0
    while at < len(text):
        end = _end_of_blank(text, at)
        if end > at:
            yield None, "", "".join(char if char == "\n" else " " for char in text[at:end])
            at = end
            continue
        kind, value, end = _token(text, at)
        yield kind, value, _write(kind, value)
        at = end


def _joined(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Yield pieces with strings that follow one another made one string, as Spark does."""
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
    """Return where white space, a comment or a hint ends that begins at a place; the place itself if none does."""
    found = _BLANK.match(text, at) or _LINE_COMMENT.match(text, at)
    if found:
        return found.end()
    return _end_of_comment(text, at) if text.startswith("/*", at) else at


def _end_of_comment(text: str, start: int) -> int:
    """Return where a comment or a hint ends: comments nest, but an inner hint is a part of the comment."""
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
        if text.startswith(".", found.end()):  # what follows decides where the number ends
            raise InvalidInputError(f"The SQL cannot be read: {text[at : found.end() + 10]!r} is not a number.")
        return "number", found[0], found.end()
    found = _WORD.match(text, at)
    if found:
        return _word(text, found)
    found = _SYMBOL.match(text, at)
    if found:
        return "symbol", char, found.end()
    raise InvalidInputError(f"The SQL cannot be read: there is no place for {char!r} outside of quotes.")


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
        raise InvalidInputError(f"The name {word!r} has to stand in backticks: Spark asks for that.")
    if word in ("r", "R") and text[found.end() : found.end() + 1] in ("'", '"'):
        raise InvalidInputError("The query of a view has no raw strings (r'…'); write plain ones.")
    if text.startswith("://", found.end()):  # Spark may take it for one name with what follows
        raise InvalidInputError(f"The query of a view cannot hold '{word}://…' outside of quotes: name a table.")
    # Some take a name that begins with a digit for a number in another base, or with a unit.
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

    # Two halves of a character, each written as an escape, make one.
    return _ESCAPE.sub(piece, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _write(kind: Kind, value: str) -> str:
    if kind == "name":
        return "`" + value.replace("`", "``") + "`"
    return f"'{''.join(map(_written, value))}'" if kind == "string" else value


def _written(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    return f"\\u{ord(char):04x}" if ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or _is_half(char) else char


def _is_half(char: str) -> bool:
    """Return whether a character is one half of a pair that only together make a character."""
    return 0xD800 <= ord(char) < 0xE000
