"""Identifiers of namespaces and tables: parsing, validation, and their canonical key.

An identifier is a tuple of names; the empty tuple is the root namespace. Clients join the names by a delimiter of their
choice. The catalog joins them by a character that is not allowed in names, so that the key of an identifier is unique.
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
#: A key must fit into an index of PostgreSQL, whose entries have at most 2,704 bytes.
MAX_IDENTIFIER_BYTES = 2048
_KEY_SEPARATOR = "\x1f"
#: Separators of paths and identifiers, and control characters.
_FORBIDDEN = re.compile(r"[/\\$\x00-\x1f\x7f-\x9f]")
#: Sorts after every key, because no name is as long.
_HIGHEST_KEY = "\U0010ffff" * (MAX_NAME_BYTES // 4 + 1)


def parse_identifier(text: str, delimiter: str = DEFAULT_DELIMITER) -> Identifier:
    """Split a delimited identifier and validate its names; the delimiter alone is the root namespace."""
    if not delimiter:
        raise InvalidInputError("The delimiter is empty; leave it out to use '$'.")
    if text == delimiter:
        return ROOT
    return check_identifier(text.split(delimiter))


def check_identifier(parts: Sequence[str]) -> Identifier:
    """Validate the names of an identifier, and return it as a tuple."""
    return _check(tuple(parts))


# Cached, because most requests name one of the same few thousand tables.
@lru_cache(maxsize=16384)
def _check(identifier: Identifier) -> Identifier:
    for name in identifier:
        check_name(name)
    size = len(key_of(identifier).encode())
    if size > MAX_IDENTIFIER_BYTES:
        raise InvalidInputError(f"The identifier has {size} bytes; at most {MAX_IDENTIFIER_BYTES} are allowed.")
    return identifier


def check_name(name: str) -> str:
    """Return a valid name; raises an error that says why it is invalid."""
    if not name:
        raise InvalidInputError("A name in the identifier is empty.")
    if name in {".", ".."}:
        raise InvalidInputError(f"Invalid name {name!r}: '.' and '..' are not allowed.")
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInputError("A name in the identifier is not valid Unicode.") from None
    if size > MAX_NAME_BYTES:
        raise InvalidInputError(f"The name {name[:20]!r}… has {size} bytes; at most {MAX_NAME_BYTES} are allowed.")
    if _FORBIDDEN.search(name):
        raise InvalidInputError(f"Invalid name {name!r}: '/', '\\', '$' and control characters are not allowed.")
    return name


def is_valid_name(name: str) -> bool:
    """Return whether a namespace or a table may have a name."""
    try:
        check_name(name)
    except InvalidInputError:
        return False
    return True


def format_identifier(identifier: Sequence[str], delimiter: str = DEFAULT_DELIMITER) -> str:
    """Join an identifier for users and clients; the root namespace is the delimiter itself."""
    return delimiter.join(identifier) if identifier else delimiter


def key_of(identifier: Sequence[str]) -> str:
    """Return the canonical key of an identifier, as the catalog stores it."""
    return _KEY_SEPARATOR.join(identifier)


def identifier_of(key: str) -> Identifier:
    """Return the identifier of a canonical key."""
    return tuple(key.split(_KEY_SEPARATOR)) if key else ROOT


def child_key_range(key: str) -> tuple[str, str]:
    """Return the half-open range of the keys strictly below a key."""
    if not key:
        return ("", _HIGHEST_KEY)
    return (key + _KEY_SEPARATOR, key + chr(ord(_KEY_SEPARATOR) + 1))


def is_within(identifier: Sequence[str], ancestor: Sequence[str]) -> bool:
    """Tell whether an identifier is the ancestor or below it."""
    return tuple(identifier[: len(ancestor)]) == tuple(ancestor)


def common_namespace(tables: Sequence[Identifier]) -> Identifier:
    """Return the deepest common namespace of tables."""
    common: Identifier = tables[0][:-1]
    while not all(is_within(table[:-1], common) for table in tables):
        common = common[:-1]
    return common


def new_id() -> str:
    """Return a new id; later ids sort after earlier ones."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"  # not milliseconds: ids of the same one would not be ordered
