"""SQL expressions of callers, checked before Lance reads them.

Lance evaluates expressions inside the process that asks. Some would end it: a deep one overflows the stack, and a short
one such as ``repeat(word, 100000000000)`` asks for more memory than there is. So every expression is read here first:
only functions of a list may be called, and each call has a bound on what it makes of its arguments. What has no bound,
or a high one, is told by ``Expression.demanding``: queries run it in a process of its own, writes refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from lance_namespace.errors import InvalidInputError

from pennon.tables.query.sql_functions import FUNCTIONS, KEYWORDS, Growth, Literal, argument_literal, grow

#: Lance walks an expression by calling itself: one operator applied to the result of another, and so on, this often.
_DEEPEST = 250
#: Conditions that AND and OR connect are walked with less.
_MOST_CONDITIONS = 10_000
#: What is no longer than this cannot be too deep, and is remembered.
_SHORT = 2 * _DEEPEST
#: Literals take about 0.7 KB each while Lance plans, and conditions are evaluated one by one: queries with more of them
#: run in a process of their own, which ends when its client leaves.
_MOST_LITERALS_HERE = 10_000
_MOST_CONDITIONS_HERE = 1_000
#: What a query may make of each row inside the API process, where many run at once; a batch has 8192 rows.
_QUERY_COPIES, _QUERY_BYTES = 16, 4096
#: What a write or a stored expression may make of each row; of these, one runs at a time for each table.
_WRITE_COPIES, _WRITE_BYTES = 64, 16 * 1024
#: What the expressions of one request may make together is so many times that.
_SEVERAL = 4
#: Lance writes in batches of so many rows, of which one may have so many bytes of literals.
_BATCH_ROWS, _MOST_BATCH_BYTES = 8192, 256 * 1024 * 1024
#: Everything is matched as the parser inside Lance does: texts in either quotes, names in backticks, letters of any
#: language in names. Texts are taken whole (*+), or each of their characters would be kept to go back to. Runs of
#: literals, such as long lists have, are one token: 100,000 of them take 20 ms instead of 300.
_TOKEN = re.compile(
    r"""
      (?P<space> \s+ )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<unknown> [bnr]'(?:[^']|'')*+' | [br]"(?:[^"]|"")*+" | \$[\w$]* | \? | :(?![:=])(?=\s*[^\W\d]) )
    | (?P<run> (?:(?:-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|x?'(?:[^']|'')*+')\s*,\s*){8,}+ )
    | (?P<text> x?'(?:[^']|'')*+' | "(?:[^"]|"")*+" )
    | (?P<number> (?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)? )
    | (?P<name> `(?:[^`]|``)*+` | [^\W\d][\w$@\#]*+ | [@\#][\w$@\#]*+ )
    | (?P<open> [(\[{] )
    | (?P<close> [)\]}] )
    | (?P<comma> , )
    | (?P<joins> \|\| )
    | (?P<operator> :: | <=> | [<>=!]= | <> | << | >> | ->>? | @> | [-+*/%=<>!|&^~@:.] )
    | (?P<other> [;\\] )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
#: Reading so many takes half a second.
_MOST_TOKENS = 100_000
_COMMAS = re.compile(r"'(?:[^']|'')*+'|(,)")
_DEEPENING = frozenset({"open", "close", "joins", "operator", "name", "number"})
_COLUMN = re.compile(r"\s*(?:`(?:[^`]|``)*+`|[^\W\d]\w*+)(?:\.(?:`(?:[^`]|``)*+`|[^\W\d]\w*+))*\s*")
_CONSTANTS = frozenset(["null", "true", "false"])
_WORD_OPERATORS = frozenset(
    ["not", "is", "in", "like", "ilike", "similar", "rlike", "regexp", "div", "xor", "collate", "at"]
)


@dataclass(frozen=True)
class SqlLimits:
    """How long an expression may be, and how many literals it may have."""

    max_bytes: int = 4 * 1024 * 1024
    max_literals: int = 100_000


DEFAULT_LIMITS = SqlLimits()

#: Long expressions are read one after the other: many threads at once would leave the event loop no time.
_one_long = Lock()


@dataclass(frozen=True)
class Expression:
    """An expression that was checked."""

    #: The text without comments.
    text: str
    growth: Growth
    literals: int
    conditions: int
    #: Bytes of literals outside of calls, such as a value that an update sets.
    value_bytes: int

    @property
    def is_column(self) -> bool:
        """Whether this is the name of a column alone."""
        return _COLUMN.fullmatch(self.text) is not None

    @property
    def demanding(self) -> str | None:
        """Why a query should not evaluate this inside the API process; none when it may."""
        if self.literals > _MOST_LITERALS_HERE or self.conditions > _MOST_CONDITIONS_HERE:
            return "its many literals or conditions"
        return _excess(self.growth, _QUERY_COPIES, _QUERY_BYTES)


def read_expression(sql: str, limits: SqlLimits = DEFAULT_LIMITS) -> Expression:
    """Return what an expression or a filter asks for; raises the error that says why Lance must not evaluate it."""
    if len(sql) <= _SHORT:
        return _read_short(sql)
    if len(sql) > limits.max_bytes or len(sql.encode(errors="replace")) > limits.max_bytes:
        raise InvalidInputError(
            f"The SQL has more than {limits.max_bytes} bytes, the server's max_expression_bytes. Split the request, or "
            "put long lists of values into a table and join it in a view."
        )
    with _one_long:
        found = _Reader(sql).read(long=True)
    if found.literals > limits.max_literals:
        raise InvalidInputError(
            f"The SQL has {found.literals} literals; {limits.max_literals} are allowed, the server's "
            "max_expression_literals. Send several requests with a part of the values each."
        )
    return found


def check_expression(sql: str, limits: SqlLimits = DEFAULT_LIMITS) -> str:
    """Return the text of an expression that may be evaluated anywhere; raises the error for one that may not.

    This is for writes and for what is stored: views, computed columns, conditions of jobs.
    """
    found = read_expression(sql, limits)
    excess = _excess(found.growth, _WRITE_COPIES, _WRITE_BYTES)
    if excess is not None:
        raise InvalidInputError(
            f"The SQL may need much more memory than its columns because of {excess}: results must have a bound that "
            f"follows from literals, {_WRITE_COPIES} times the columns and {_WRITE_BYTES} bytes at most. Use smaller "
            "literal arguments; queries may use more."
        )
    return found.text


def check_written_size(dataset: Any, values: Iterable[str], where: str | None, limits: SqlLimits) -> None:
    """Refuse to write values of which a batch would not fit into memory: they are made all at once."""
    read = [read_expression(value, limits) for value in values]
    growing = [value.growth for value in read if value.growth.copies > 1]
    copies, written = sum(growth.copies for growth in growing), sum(growth.written_bytes for growth in growing)
    if copies > _SEVERAL * _WRITE_COPIES or written > _SEVERAL * _WRITE_BYTES:
        raise InvalidInputError(
            f"The SQL of these columns may need much more memory than what they are made of: {copies} times, with "
            f"{written} bytes of literals, where {_SEVERAL * _WRITE_COPIES} times and {_SEVERAL * _WRITE_BYTES} bytes "
            "are allowed together. Write fewer columns at a time."
        )
    size = sum(value.value_bytes for value in read)
    if size * _BATCH_ROWS <= _MOST_BATCH_BYTES:
        return
    rows = min(dataset.count_rows(where), _BATCH_ROWS)
    if size * rows > _MOST_BATCH_BYTES:
        raise InvalidInputError(
            f"Values of {size} bytes would be written into at least {rows} rows; {_MOST_BATCH_BYTES} bytes at once are "
            f"allowed. Change {_MOST_BATCH_BYTES // size} rows at a time, with a narrower predicate."
        )


def demanding_reason(condition: Expression, values: Iterable[Expression]) -> str | None:
    """Return why a query should not run inside the API process; none when it may.

    ``values`` are the columns that are returned: a literal among them is written into each row, and a column that is
    named again is sent again.
    """
    values, total = list(values), Growth()
    for expression in (condition, *values):
        reason = expression.demanding
        if reason is not None:
            return reason
        total += expression.growth
    once = {_plain_name(value.text) for value in values if value.is_column}
    repeated = sum(value.is_column for value in values) - len(once)
    total += Growth(operands=repeated)
    for value in values:
        if not value.is_column:
            total += Growth(operands=1, literal_bytes=value.value_bytes)
    return _excess(total, _SEVERAL * _QUERY_COPIES, _SEVERAL * _QUERY_BYTES)


def _plain_name(column: str) -> str:
    return column.replace("`", "").strip().lower()


def _excess(growth: Growth, copies: int, size: int) -> str | None:
    if growth.unbounded is not None:
        return growth.unbounded
    if growth.copies > copies:
        return "the values that it joins or repeats"
    return "its long literals" if growth.written_bytes > size else None


class _Frame:
    """What stands inside a pair of parentheses, so far."""

    __slots__ = (
        *("arguments", "call", "compared_bytes", "is_array", "literal", "named", "named_arguments"),
        *("tokens", "waiting", "written"),
    )

    def __init__(self, call: str | None, waiting: int, *, written: bool, is_array: bool = False) -> None:
        self.call = call
        #: Whether these are brackets, which make an array of what they hold.
        self.is_array = is_array
        #: Operators that wait for each other.
        self.waiting = waiting
        #: Whether literals here become part of what a call returns.
        self.written = written
        self.arguments: list[Literal | None] = []
        #: The present argument: its tokens, and the literal if it is one.
        self.tokens = 0
        self.literal: str | None = None
        #: Whether it names a column, and how many arguments before it do.
        self.named = False
        self.named_arguments = 0
        #: Bytes of literals in the present condition.
        self.compared_bytes = 0

    def end_argument(self) -> None:
        if self.tokens:
            single = self.tokens == 1 and self.literal is not None
            self.arguments.append(argument_literal(self.literal or "") if single else None)
        self.named_arguments += self.named
        self.tokens, self.literal, self.named, self.compared_bytes = 0, None, False, 0


class _Reader:
    """Reads an expression token by token."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._frames = [_Frame(None, 0, written=False)]
        self._between = 0
        self._conditions = 0
        self._literals = 0
        self._value_bytes = 0
        self._literal_bytes = 0
        self._growth = Growth()
        #: The name that was read last, if nothing but space came after it.
        self._name: str | None = None

    def read(self, *, long: bool) -> Expression:
        end, start, count, kept = 0, 0, 0, []
        for token in _TOKEN.finditer(self._sql):
            if token.start() != end:
                break
            end, count = token.end(), count + 1
            if token.lastgroup == "comment":
                kept += [self._sql[start : token.start()], " "]
                start = end
            elif token.lastgroup != "space":
                self._take(str(token.lastgroup), token[0])
                if long and token.lastgroup in _DEEPENING:
                    self._check_size(count)
        if end != len(self._sql):
            raise InvalidInputError(f"The SQL cannot be read at {self._sql[end : end + 20]!r}.")
        text = "".join([*kept, self._sql[start:]]) if kept else self._sql
        joined = self._literal_bytes + (self._value_bytes if self._growth.operands else 0)
        growth = self._growth + Growth(literal_bytes=joined)
        return Expression(text, growth, self._literals, self._conditions, self._value_bytes)

    def _take(self, kind: str, text: str) -> None:
        name, self._name = self._name, None
        frame = self._frames[-1]
        if kind == "open":
            self._open(text, name)
            return
        if kind == "close":
            self._close()
            return
        if kind in {"comma", "run"}:
            frame.end_argument()
            if kind == "run":
                self._run(frame, text)
            frame.waiting = 0
            return
        frame.tokens += 1
        if kind == "unknown":
            raise InvalidInputError(f"The SQL cannot be read at {text[:20]!r}: write values out, without a prefix.")
        if kind in {"text", "number"}:
            frame.literal = text
            self._count_literal(frame, text)
        elif kind == "joins":
            frame.waiting += 1
            self._growth += Growth(operands=1 if self._growth.operands else 2)
        elif kind == "operator":
            frame.waiting += 1
        elif kind == "name":
            self._take_name(frame, text)

    def _take_name(self, frame: _Frame, text: str) -> None:
        word = text.lower()
        self._name = text
        if word in {"and", "or"}:
            if self._between:
                self._between -= 1
                return
            frame.waiting, frame.compared_bytes = 0, 0
            self._conditions += 1
        elif word in _WORD_OPERATORS or word == "between":
            frame.waiting += 1
            self._between += word == "between"
        elif word == "case":
            self._frames.append(_Frame(None, 1, written=frame.written))
        elif word == "end":
            self._close()
        elif word not in _CONSTANTS:
            frame.named = True

    def _count_literal(self, frame: _Frame, text: str, count: int = 1) -> None:
        self._literals += count
        frame.compared_bytes += len(text)
        if frame.written:
            self._literal_bytes += len(text)
        elif frame.call != "in":  # values of a list are looked up, and not written into rows
            self._value_bytes += len(text)

    def _run(self, frame: _Frame, text: str) -> None:
        """Count the literals of a run, each with a comma after it."""
        count = _COMMAS.sub(r"\1", text).count(",") if "'" in text else text.count(",")
        self._count_literal(frame, text, count)
        frame.arguments += [None] * count

    def _open(self, text: str, name: str | None) -> None:
        outer = self._frames[-1]
        call = _called(name) if text == "(" and name is not None else None
        written = call != "in" and (call is not None or outer.written or text == "[")
        outer.tokens += 1
        outer.literal = None
        if call == "in":  # what is looked up is written out for every row, also when it is a literal
            self._literal_bytes += outer.compared_bytes
        self._frames.append(_Frame(call, 1, written=written, is_array=text == "["))

    def _close(self) -> None:
        if len(self._frames) == 1:
            return
        inner, outer = self._frames.pop(), self._frames[-1]
        if inner.call != "in":
            outer.compared_bytes += inner.compared_bytes
        inner.end_argument()
        outer.waiting += inner.waiting
        outer.named = outer.named or inner.named_arguments > 0
        if inner.is_array:  # as make_array() does; literals in it are counted by their bytes
            self._growth += Growth(operands=inner.named_arguments)
        if inner.call is not None and inner.call != "in":
            if len(inner.arguments) < FUNCTIONS[inner.call].least_arguments:
                raise InvalidInputError(f"{inner.call}() needs {FUNCTIONS[inner.call].least_arguments} arguments.")
            self._growth = grow(inner.call, inner.arguments, self._growth)

    def _check_size(self, tokens: int) -> None:
        if tokens > _MOST_TOKENS:
            raise InvalidInputError(f"The SQL is too long: it has more than {_MOST_TOKENS} words and signs.")
        if self._conditions > _MOST_CONDITIONS or sum(frame.waiting for frame in self._frames) > _DEEPEST:
            raise InvalidInputError(
                f"The SQL is too deep: at most {_DEEPEST} operators in a chain and {_MOST_CONDITIONS} conditions are "
                "read. Write long lists of values as IN (…)."
            )


def _called(name: str) -> str | None:
    """Return the function that a name before a parenthesis calls, or "in"; none for other keywords."""
    plain = name.strip("`").lower()
    if plain in FUNCTIONS:
        return plain
    if plain in KEYWORDS and name[0] != "`":
        return "in" if plain == "in" else None
    raise InvalidInputError(
        f"The function {name[:50]!r} is not offered in SQL expressions. The reference lists those that are; write a "
        "view or a feature column for more."
    )


@lru_cache(maxsize=4096)
def _read_short(sql: str) -> Expression:
    return _Reader(sql).read(long=False)
