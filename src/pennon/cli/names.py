"""Names of namespaces and tables as people type them: ``shop.teas``, because a shell keeps ``$`` for itself."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier, check_identifier, format_identifier


def parse_name(text: str) -> Identifier:
    """Return the identifier that a text names: parts joined by dots, or by ``$`` where names have dots themselves."""
    if text == DEFAULT_DELIMITER:
        return ROOT
    if DEFAULT_DELIMITER in text:
        return check_identifier(text.removeprefix(DEFAULT_DELIMITER).split(DEFAULT_DELIMITER))
    return check_identifier(text.split("."))


def parse_table(text: str) -> Identifier:
    """Return the identifier of a table; the root namespace is none."""
    identifier = parse_name(text)
    if not identifier:
        raise InvalidInputError("'$' is the root namespace; name a table, such as shop.teas.")
    return identifier


def spell(identifier: Sequence[str]) -> str:
    """Return a name that can be typed again: with dots, unless a name has one."""
    if not identifier or not any("." in name for name in identifier):
        return ".".join(identifier) or DEFAULT_DELIMITER
    return DEFAULT_DELIMITER + DEFAULT_DELIMITER.join(identifier)


def table_route(identifier: Identifier, verb: str) -> str:
    """Return the path of an operation on a table."""
    return f"/v1/table/{_segment(identifier)}/{verb}"


def namespace_route(identifier: Identifier, verb: str) -> str:
    """Return the path of an operation on a namespace."""
    return f"/v1/namespace/{_segment(identifier)}/{verb}"


def _segment(identifier: Identifier) -> str:
    return quote(format_identifier(identifier), safe=DEFAULT_DELIMITER)
