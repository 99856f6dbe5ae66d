"""Names of namespaces and tables on the command line: ``shop.teas``, because a shell expands ``$``."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import DEFAULT_DELIMITER, ROOT, Identifier, check_identifier, format_identifier


def parse_name(text: str) -> Identifier:
    """Parse a name: parts joined by dots, or by ``$`` if the parts contain dots."""
    if text == DEFAULT_DELIMITER:
        return ROOT
    if DEFAULT_DELIMITER in text:
        return check_identifier(text.removeprefix(DEFAULT_DELIMITER).split(DEFAULT_DELIMITER))
    return check_identifier(text.split("."))


def parse_table(text: str) -> Identifier:
    """Parse the name of a table; reject the root namespace."""
    identifier = parse_name(text)
    if not identifier:
        raise InvalidInputError("'$' is the root namespace, not a table; pass a table name, such as shop.teas.")
    return identifier


def format_name(identifier: Sequence[str]) -> str:
    """Format a name so that it can be parsed again: with dots, unless a part contains one."""
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
