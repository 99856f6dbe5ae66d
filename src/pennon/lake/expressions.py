"""SQL of callers, looked at before Lance reads it: some kinds of it would end the whole process, or a thread of it."""

from __future__ import annotations

import re

from lance_namespace.errors import InvalidInputError

#: Lance walks an expression by calling itself: one operator applied to the result of another, and so on, this often.
_DEEPEST = 250
#: Conditions that AND and OR connect are walked with less.
_MOST_CONDITIONS = 10_000
#: What is no longer than this cannot be too deep.
_SHORT = 2 * _DEEPEST
#: Literals and placeholders that Lance can read, but not evaluate; also the beginnings of comments.
_SUSPECT = re.compile(r"[$?:]|[bnrx]'", re.IGNORECASE)
#: Texts are taken whole (*+): to be able to give back one character after the other takes two hundred times their size.
_TOKEN = re.compile(
    r"""
      (?P<comment> --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<unknown> \b[bnrx]'(?:[^']|'')*+' | \$\w* | \? | (?<!:):(?=[a-z_]) )
    | (?P<operand> '(?:[^']|'')*+' | "(?:[^"]|"")*+" | `[^`]*` | \d+(?:\.\d+)?(?:e[+-]?\d+)? )
    | (?P<open> [(\[] | \bCASE\b )
    | (?P<close> [)\]] | \bEND\b )
    | (?P<comma> , )
    | (?P<condition> \b(?:AND|OR)\b )
    | (?P<between> \bBETWEEN\b )
    | (?P<operator> \b(?:NOT|IS|IN|LIKE|ILIKE|SIMILAR|RLIKE|REGEXP|DIV|XOR|COLLATE|AT)\b | [-+*/%=<>!|&^~\#@:.]+ )
    | \w+
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def check_expression(sql: str) -> str:
    """Return an SQL expression or filter, or raise the error that tells why Lance must not get to see it."""
    long = len(sql) > _SHORT
    if long or _SUSPECT.search(sql):
        _check(sql, long=long)
    return sql


def _check(sql: str, *, long: bool) -> None:
    # How many operators are waiting for each other, at each level of parentheses.
    waiting, between, conditions = [0], 0, 0
    for token in _TOKEN.finditer(sql):
        kind = token.lastgroup
        if kind == "unknown":
            raise InvalidInputError(f"The SQL cannot be read at {token[0][:20]!r}: write values out, without a prefix.")
        if kind == "comment" and long:
            raise InvalidInputError("SQL that is this long may not have comments.")
        if kind == "open":
            waiting.append(1)
        elif kind == "close" and len(waiting) > 1:
            inner = waiting.pop()
            waiting[-1] += inner
        elif kind == "condition" and between:
            between -= 1
        elif kind in {"comma", "condition"}:
            waiting[-1] = 0
            conditions += kind == "condition"
        elif kind in {"operator", "between"}:
            waiting[-1] += 1
            between += kind == "between"
        if long and (conditions > _MOST_CONDITIONS or sum(waiting) > _DEEPEST):
            raise InvalidInputError(
                f"The SQL is too deep: at most {_DEEPEST} operators in a chain and {_MOST_CONDITIONS} conditions are "
                "read. Write long lists of values as IN (…)."
            )
