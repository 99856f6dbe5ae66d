"""Keyset paging: a page token contains the key of the last item of the previous page."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lance_namespace.errors import InvalidInputError

Item = TypeVar("Item")
Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A page of items and the token of the next page, if there is one."""

    items: list[Item]
    token: str | None


def encode_token(listing: str, key: Key) -> str:
    """Return the token that continues a listing after a key."""
    text = json.dumps([listing, *key], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_token(listing: str, token: str | None, types: tuple[type, ...]) -> Key | None:
    """Return the key in a page token; None for the first page."""
    if not token:
        return None
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        decoded = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidInputError("The page token is invalid; list again without one.") from None
    if not isinstance(decoded, list) or [type(part) for part in decoded[1:]] != list(types) or decoded[0] != listing:
        raise InvalidInputError("The page token belongs to another listing; list again without one.")
    if not all(map(_is_valid_key, decoded[1:])):
        raise InvalidInputError("The page token is invalid; list again without one.")
    return tuple(decoded[1:])


def _is_valid_key(part: str | int) -> bool:
    """Tell whether every database can compare a part of a token with its items."""
    if isinstance(part, int):
        return abs(part) < 2**63
    return "\0" not in part and not any("\ud800" <= char <= "\udfff" for char in part)


def page_size(limit: int | None, largest: int) -> int:
    """Return the maximum number of items in a page; a negative limit is an error."""
    if limit is None:
        return largest
    if limit < 0:
        raise InvalidInputError(f"limit is {limit}; it must be 0 or more.")
    return min(limit, largest)


def cut_page(listing: str, items: Sequence[Item], size: int, key: Callable[[Item], Key]) -> Page[Item]:
    """Return a page of ``size`` items; an item beyond them shows that there is another page."""
    if size == 0 or len(items) <= size:
        return Page(list(items[:size]), None)
    kept = list(items[:size])
    return Page(kept, encode_token(listing, key(kept[-1])))
