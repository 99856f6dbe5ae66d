"""Filters on job events, as LanceDB's client sends them: comparisons of columns and strings, joined by AND and OR."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lance_namespace.errors import InvalidInputError

#: The columns that a filter can name.
COLUMNS = ("kind", "unit", "state", "claim_entity", "updated_by", "job_id")
_TEXT = r"'(?:[^']|'')*+'"
_TERM = re.compile(
    rf"\s*(?P<column>\w+)\s*(?:(?P<operator>=|!=|<>)\s*(?P<text>{_TEXT})"
    rf"|(?P<not>not\s+)?in\s*\((?P<list>\s*{_TEXT}\s*(?:,\s*{_TEXT}\s*)*)\))\s*(?P<next>and\b|or\b|$)",
    re.IGNORECASE,
)

Predicate = Callable[[Mapping[str, object]], bool]


def parse_filter(text: str | None) -> Predicate:
    """Return the predicate of a filter; without a filter, every row passes."""
    if text is None or not text.strip():
        return lambda _: True
    choices: list[list[Predicate]] = [[]]
    at, joint = 0, "and"
    while joint:
        term = _TERM.match(text, at)
        if term is None:
            raise InvalidInputError(
                f"Invalid filter at character {at}: write comparisons such as state = 'done' or "
                "claim_entity IN ('a', 'b'), joined by AND and OR."
            )
        choices[-1].append(_comparison(term))
        at, joint = term.end(), term["next"].lower()
        if joint == "or":
            choices.append([])
    return lambda row: any(all(matches(row) for matches in choice) for choice in choices)


def _comparison(term: re.Match[str]) -> Predicate:
    column = term["column"].lower()
    if column not in COLUMNS:
        raise InvalidInputError(f"Unknown column {column[:64]!r} in the filter; it can name {', '.join(COLUMNS)}.")
    wanted = {_unquoted(found) for found in re.findall(_TEXT, term["text"] or term["list"])}
    negated = bool(term["not"]) or term["operator"] in ("!=", "<>")
    return lambda row: (row[column] in wanted) is not negated and row[column] is not None


def _unquoted(literal: str) -> str:
    return literal[1:-1].replace("''", "'")
