"""Identifiers of namespaces and tables: parsing, checking, and their canonical key.

An identifier is a tuple of names; the empty tuple is the root namespace. Outside, its parts are joined by a delimiter
that the client chooses. Inside, they are joined by a character no name may hold, so that two identifiers never share
a key whatever delimiter was used.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from functools import lru_cache

from lance_namespace.errors import InvalidInputError

Identifier = tuple[str, ...]

ROOT: Identifier = ()
DEFAULT_DELIMITER = "$"
MAX_NAME_BYTES = 200
#: A key has to fit into an index, whose entries PostgreSQL limits to 2,704 bytes.
MAX_IDENTIFIER_BYTES = 2048
_KEY_SEPARATOR = "\x1f"
#: Separators of paths and identifiers, and control characters.
_FORBIDDEN = re.compile(r"[/\\$\x00-\x1f\x7f-\x9f]")
#: Sorts after every key, because no name can be as long.
_HIGHEST_KEY = "\U0010ffff" * (MAX_NAME_BYTES // 4 + 1)


def parse_identifier(text: str, delimiter: str = DEFAULT_DELIMITER) -> Identifier:
    """Split a delimited identifier and check each of its names; the delimiter alone is the root namespace."""
    if not delimiter:
        raise InvalidInputError("The delimiter is empty; leave it out to use '$'.")
    if text == delimiter:
        return ROOT
    return check_identifier(text.split(delimiter))


def check_identifier(parts: Sequence[str]) -> Identifier:
    """Check each name of an identifier and return it as a tuple."""
    return _check(tuple(parts))


# Every request names something, mostly one of the same few thousand tables.
@lru_cache(maxsize=16384)
def _check(identifier: Identifier) -> Identifier:
    for name in identifier:
        check_name(name)
    size = len(key_of(identifier).encode())
    if size > MAX_IDENTIFIER_BYTES:
        raise InvalidInputError(f"The identifier has {size} bytes; {MAX_IDENTIFIER_BYTES} are allowed.")
    return identifier


def check_name(name: str) -> str:
    """Return the name, or raise an error that says why it cannot name anything."""
    if not name:
        raise InvalidInputError("A name in the identifier is empty.")
    if name in {".", ".."}:
        raise InvalidInputError(f"{name!r} cannot be a name.")
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInputError("A name in the identifier is not valid Unicode.") from None
    if size > MAX_NAME_BYTES:
        raise InvalidInputError(f"The name {name[:20]!r}… has {size} bytes; {MAX_NAME_BYTES} are allowed.")
    if _FORBIDDEN.search(name):
        raise InvalidInputError(f"The name {name!r} holds '/', '\\', '$' or a control character.")
    return name


def format_identifier(identifier: Sequence[str], delimiter: str = DEFAULT_DELIMITER) -> str:
    """Join an identifier for people and clients; the root namespace is the delimiter itself."""
    return delimiter.join(identifier) if identifier else delimiter


def key_of(identifier: Sequence[str]) -> str:
    """Return the canonical key under which the catalog stores an identifier."""
    return _KEY_SEPARATOR.join(identifier)


def identifier_of(key: str) -> Identifier:
    """Return the identifier that a canonical key stands for."""
    return tuple(key.split(_KEY_SEPARATOR)) if key else ROOT


def child_key_range(key: str) -> tuple[str, str]:
    """Return the half-open range of keys that lie strictly below a key."""
    if not key:
        return ("", _HIGHEST_KEY)
    return (key + _KEY_SEPARATOR, key + chr(ord(_KEY_SEPARATOR) + 1))


def is_within(identifier: Sequence[str], ancestor: Sequence[str]) -> bool:
    """Tell whether an identifier is the ancestor itself or lies below it."""
    return tuple(identifier[: len(ancestor)]) == tuple(ancestor)


def common_namespace(tables: Sequence[Identifier]) -> Identifier:
    """Return the deepest namespace that holds all of some tables."""
    common: Identifier = tables[0][:-1]
    while not all(is_within(table[:-1], common) for table in tables):
        common = common[:-1]
    return common


def new_id() -> str:
    """Return a fresh id for a table, transaction or key; later ids sort after earlier ones."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"  # within a millisecond, ids would have no order
