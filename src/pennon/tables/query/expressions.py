"""Checks of callers' SQL expressions, made before Lance parses them.

Lance evaluates expressions in the calling process. Some would crash it: a deeply nested one overflows the stack, and a
short one such as ``repeat(word, 100000000000)`` allocates more memory than the machine has. Every expression is
therefore parsed here first: it may call listed functions only, and each call has a bound on the size of its result.
``Expression.isolation_reason`` names a missing or high bound: queries then run in a query process, writes are refused.

Queries that may convert texts run in a query process, too (``Expression.converted``). The error of a failed conversion
quotes the text, and Arrow aborts the process when the error of a stream contains a NUL character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.tables.query.sql_functions import FUNCTIONS, KEYWORDS, Growth, Literal, argument_literal, grow

if TYPE_CHECKING:
    from lance import LanceDataset

#: The deepest chain of operators: Lance visits an expression recursively, one stack frame for each operator.
_MAX_DEPTH = 250
#: Conditions joined by AND and OR need less stack each.
_MAX_CONDITIONS = 10_000
#: Expressions up to this length cannot be too deep; their parse results are cached.
_CACHED_LENGTH = 2 * _MAX_DEPTH
#: Literals take about 0.7 KB each while Lance plans, and conditions are evaluated one by one. Queries with more of them
#: run in a query process, which is killed when the client disconnects.
_MAX_INLINE_LITERALS = 10_000
_MAX_INLINE_CONDITIONS = 1_000
#: Bounds on the output per row of a query in the API process, where many queries run at once. A batch has 8192 rows.
_QUERY_COPIES, _QUERY_BYTES = 16, 4096
#: Bounds on the output per row of a write or a stored expression. Each table runs one of them at a time.
_WRITE_COPIES, _WRITE_BYTES = 64, 16 * 1024
#: All expressions of one request together may reach this multiple of the bounds above.
_REQUEST_FACTOR = 4
#: Functions that take texts as they are and return texts. Functions in neither set may convert a text to a number or a
#: time, or read it as a pattern.
_TEXT_FUNCTIONS = frozenset(
    [
        *("btrim", "concat", "concat_ws", "initcap", "left", "lower", "ltrim", "md5", "replace", "reverse", "right"),
        *("rtrim", "sha224", "sha256", "sha384", "sha512", "substr", "substring", "translate", "trim", "upper"),
    ]
)
#: Functions that take texts as they are and return no texts.
_TEXT_TESTS = frozenset(
    [
        *("array_contains", "array_has", "array_has_all", "array_has_any", "ascii", "bit_length", "char_length"),
        *(
            "character_length",
            "contains",
            "contains_tokens",
            "ends_with",
            "instr",
            "length",
            "octet_length",
            "position",
        ),
        *("regexp_like", "starts_with", "strpos"),
    ]
)
#: Their texts are converted if their other argument is a number.
_LIST_TESTS = frozenset(["array_contains", "array_has", "array_has_all", "array_has_any"])
#: Their texts are patterns unless they are the first argument.
_PATTERN_FUNCTIONS = frozenset(["regexp_like", "regexp_match", "regexp_replace"])
_CASTS = frozenset(["cast", "convert", "safe_cast"])
#: Keywords before a typed literal, as in ``timestamp '2026-01-01'``: the other operand takes its type.
_TYPES = frozenset(["datetime", "interval", "time", "timestamp"])
#: Rows in a batch that Lance writes, and the bytes of literals that one batch may have.
_BATCH_ROWS, _MAX_BATCH_BYTES = 8192, 256 * 1024 * 1024
#: Tokens match as in Lance's own parser: strings in either quotes, names in backticks, letters of any language in
#: names. Possessive quantifiers (*+) avoid a backtracking entry for each character of a string. A run of literals, as
#: in a long list, is one token: 100,000 literals take 20 ms instead of 300.
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
    | (?P<concat> \|\| )
    | (?P<operator> :: | <=> | [<>=!]= | <> | << | >> | ->>? | @> | [-+*/%=<>!|&^~@:.] )
    | (?P<other> [;\\] )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
#: Parsing this many takes half a second.
_MAX_TOKENS = 100_000
_COMMAS = re.compile(r"'(?:[^']|'')*+'|(,)")
_STRING = re.compile(r"'(?:[^']|'')*+'")
_DEPTH_TOKENS = frozenset({"open", "close", "concat", "operator", "name", "number"})
_COLUMN = re.compile(r"\s*(?:`(?:[^`]|``)*+`|[^\W\d]\w*+)(?:\.(?:`(?:[^`]|``)*+`|[^\W\d]\w*+))*\s*")
_CONSTANTS = frozenset(["null", "true", "false"])
_WORD_OPERATORS = frozenset(
    ["not", "is", "in", "like", "ilike", "similar", "rlike", "regexp", "div", "xor", "collate", "at"]
)


@dataclass(frozen=True)
class SqlLimits:
    """The maximum length and number of literals of an expression."""

    max_bytes: int = 4 * 1024 * 1024
    max_literals: int = 100_000


DEFAULT_LIMITS = SqlLimits()

#: Long expressions are parsed one at a time: many threads at once would starve the event loop.
_long_expression_lock = Lock()


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    #: The SQL without comments.
    text: str
    growth: Growth
    literals: int
    conditions: int
    #: Bytes of literals outside of calls, such as the new value in an update.
    value_bytes: int
    #: The names in conditions that may convert values: with a cast, two columns, or a literal that is no text.
    converted: frozenset[str] = frozenset()

    @property
    def is_column(self) -> bool:
        """Whether the expression is just a column name."""
        return _COLUMN.fullmatch(self.text) is not None

    @property
    def isolation_reason(self) -> str | None:
        """Why a query with this expression must run in a query process; None if the API process may evaluate it."""
        if self.literals > _MAX_INLINE_LITERALS or self.conditions > _MAX_INLINE_CONDITIONS:
            return "its many literals or conditions"
        return _exceeded_bound(self.growth, _QUERY_COPIES, _QUERY_BYTES)


def parse_expression(sql: str, limits: SqlLimits = DEFAULT_LIMITS) -> Expression:
    """Parse an expression or a filter; raises ``InvalidInputError`` if Lance must not evaluate it."""
    if len(sql) <= _CACHED_LENGTH:
        return _parse(sql)
    if len(sql) > limits.max_bytes or len(sql.encode(errors="replace")) > limits.max_bytes:
        raise InvalidInputError(
            f"The SQL is longer than {limits.max_bytes} bytes, the server's max_expression_bytes. Split the request, "
            "or put long lists of values into a table and join it in a view."
        )
    parsed = _parse(sql)
    if parsed.literals > limits.max_literals:
        raise InvalidInputError(
            f"The SQL has {parsed.literals} literals, more than {limits.max_literals}, the server's "
            "max_expression_literals. Split the values over several requests."
        )
    return parsed


def count_copies(sql: str) -> int:
    """Return how many copies of its columns a checked expression may make for each row."""
    return _parse(sql).growth.copies


def check_expression(sql: str, limits: SqlLimits = DEFAULT_LIMITS) -> str:
    """Return the text of an expression that may be evaluated in any process; raises ``InvalidInputError`` otherwise.

    For writes and for stored expressions: views, computed columns, conditions of jobs.
    """
    parsed = parse_expression(sql, limits)
    excess = _exceeded_bound(parsed.growth, _WRITE_COPIES, _WRITE_BYTES)
    if excess is not None:
        raise InvalidInputError(
            f"The SQL may need much more memory than its columns because of {excess}: its literals must bound the "
            f"result to {_WRITE_COPIES} times the columns and {_WRITE_BYTES} bytes. Use smaller literal arguments; "
            "queries may use larger ones."
        )
    return parsed.text


def check_written_size(dataset: LanceDataset, values: Iterable[str], where: str | None, limits: SqlLimits) -> None:
    """Refuse to write values if one batch of them would not fit into memory: Lance builds a whole batch at once."""
    expressions = [parse_expression(value, limits) for value in values]
    growing = [value.growth for value in expressions if value.growth.copies > 1]
    copies, literal_bytes = sum(growth.copies for growth in growing), sum(growth.written_bytes for growth in growing)
    max_copies, max_bytes = _REQUEST_FACTOR * _WRITE_COPIES, _REQUEST_FACTOR * _WRITE_BYTES
    if copies > max_copies or literal_bytes > max_bytes:
        raise InvalidInputError(
            f"The SQL of these columns may need much more memory than its input: {copies} times, with {literal_bytes} "
            f"bytes of literals; all columns together may need {max_copies} times and {max_bytes} bytes. Write fewer "
            "columns at a time."
        )
    size = sum(value.value_bytes for value in expressions)
    if size * _BATCH_ROWS <= _MAX_BATCH_BYTES:
        return
    rows = min(dataset.count_rows(where), _BATCH_ROWS)
    if size * rows > _MAX_BATCH_BYTES:
        raise InvalidInputError(
            f"Values of {size} bytes would be written into at least {rows} rows, more than {_MAX_BATCH_BYTES} bytes in "
            f"one batch. Change {_MAX_BATCH_BYTES // size} rows at a time, with a narrower predicate."
        )


def find_isolation_reason(condition: Expression, values: Sequence[Expression]) -> str | None:
    """Return why a query must run in a query process; None if the API process may run it."""
    for expression in (condition, *values):
        reason = expression.isolation_reason
        if reason is not None:
            return reason
    total = total_growth(condition, values)
    return _exceeded_bound(total, _REQUEST_FACTOR * _QUERY_COPIES, _REQUEST_FACTOR * _QUERY_BYTES)


def total_growth(condition: Expression, values: Sequence[Expression]) -> Growth:
    """Return the growth of all expressions of a query together.

    ``values`` are the returned columns: a literal among them is written into each row, and a column selected twice is
    sent twice.
    """
    total = sum((value.growth for value in values), condition.growth)
    distinct = {_plain_name(value.text) for value in values if value.is_column}
    repeated = sum(value.is_column for value in values) - len(distinct)
    total += Growth(operands=repeated)
    for value in values:
        if not value.is_column:
            total += Growth(operands=1, literal_bytes=value.value_bytes)
    return total


def _plain_name(column: str) -> str:
    return column.replace("`", "").strip().lower()


def _exceeded_bound(growth: Growth, copies: int, size: int) -> str | None:
    if growth.unbounded is not None:
        return growth.unbounded
    if growth.copies > copies:
        return "the values it concatenates or repeats"
    return "its long literals" if growth.written_bytes > size else None


class _Frame:
    """The part of a parenthesized expression that was read so far."""

    __slots__ = (
        *("arguments", "call", "compared_bytes", "is_array", "literal", "names_column", "column_arguments"),
        *("tokens", "depth", "is_written", "converts", "condition_names", "names", "operands"),
    )

    def __init__(self, call: str | None, depth: int, *, is_written: bool, is_array: bool = False) -> None:
        self.call = call
        #: Whether these are brackets, an array literal.
        self.is_array = is_array
        #: Nested operators.
        self.depth = depth
        #: Whether literals here become part of a call's result.
        self.is_written = is_written
        self.arguments: list[Literal | None] = []
        #: The current argument: its number of tokens, and its text if it is a literal.
        self.tokens = 0
        self.literal: str | None = None
        #: Whether the current argument names a column, and the number of earlier arguments that do.
        self.names_column = False
        self.column_arguments = 0
        #: Bytes of literals in the current condition.
        self.compared_bytes = 0
        #: The names in the current condition, the number of its operands with names, and whether it converts values.
        self.condition_names: set[str] = set()
        self.operands = 0
        self.converts = False
        #: The names in earlier conditions.
        self.names: set[str] = set()

    def end_condition(self) -> set[str]:
        """End the current condition, and return its names if it may convert values."""
        found = self.condition_names
        converted = found if self.converts or self.operands > 1 else set()
        self.names |= found
        self.condition_names, self.operands, self.converts = set(), 0, False
        return converted

    def end_argument(self) -> None:
        if self.tokens:
            single = self.tokens == 1 and self.literal is not None
            self.arguments.append(argument_literal(self.literal or "") if single else None)
        self.column_arguments += self.names_column
        self.tokens, self.literal, self.names_column, self.compared_bytes = 0, None, False, 0


class _Parser:
    """Parses an expression token by token."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._frames = [_Frame(None, 0, is_written=False)]
        self._open_betweens = 0
        self._conditions = 0
        self._literals = 0
        self._value_bytes = 0
        self._literal_bytes = 0
        self._growth = Growth()
        self._converted: set[str] = set()
        #: The previous token, if it was a name.
        self._previous_name: str | None = None
        #: Whether the previous token was the point before the name of a nested field.
        self._is_after_point = False

    def parse(self, *, long: bool) -> Expression:
        end, start, count, kept = 0, 0, 0, []
        for token in _TOKEN.finditer(self._sql):
            if token.start() != end:
                break
            end, count = token.end(), count + 1
            if token.lastgroup == "comment":
                kept += [self._sql[start : token.start()], " "]
                start = end
            elif token.lastgroup != "space":
                self._read_token(str(token.lastgroup), token[0])
                if long and token.lastgroup in _DEPTH_TOKENS:
                    self._check_size(count)
        if end != len(self._sql):
            raise InvalidInputError(f"The SQL cannot be parsed at {self._sql[end : end + 20]!r}.")
        text = "".join([*kept, self._sql[start:]]) if kept else self._sql
        joined = self._literal_bytes + (self._value_bytes if self._growth.operands else 0)
        growth = self._growth + Growth(literal_bytes=joined)
        for frame in self._frames:
            self._converted |= frame.end_condition()
        converted = frozenset(self._converted)
        return Expression(text, growth, self._literals, self._conditions, self._value_bytes, converted)

    def _read_token(self, kind: str, text: str) -> None:
        name, self._previous_name = self._previous_name, None
        is_after_point, self._is_after_point = self._is_after_point, text == "."
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
            frame.depth = 0
            return
        frame.tokens += 1
        if kind == "unknown":
            raise InvalidInputError(
                f"The SQL cannot be parsed at {text[:20]!r}: parameters and prefixed strings are not supported. Write "
                "the value as a plain literal."
            )
        if kind in {"text", "number"}:
            frame.literal = text
            self._count_literal(frame, text)
            frame.converts |= kind == "number"
        elif kind == "concat":
            frame.depth += 1
            self._growth += Growth(operands=1 if self._growth.operands else 2)
        elif kind == "operator":
            frame.depth += 1
            frame.converts |= text == "::"
        elif kind == "name":
            self._read_name(frame, text, is_nested=is_after_point)

    def _read_name(self, frame: _Frame, text: str, *, is_nested: bool) -> None:
        word = text.lower()
        self._previous_name = text
        if word in {"and", "or"}:
            if self._open_betweens:
                self._open_betweens -= 1
                return
            frame.depth, frame.compared_bytes = 0, 0
            self._converted |= frame.end_condition()
            self._conditions += 1
        elif word in _WORD_OPERATORS or word == "between":
            frame.depth += 1
            self._open_betweens += word == "between"
        elif word == "case":
            self._frames.append(_Frame(None, 1, is_written=frame.is_written))
        elif word == "end":
            self._close()
        elif word in {"true", "false"}:
            frame.converts = True
        elif word not in _CONSTANTS:
            frame.names_column = True
            frame.converts |= word in _CASTS
            if not is_nested:
                frame.condition_names.add(word.strip("`"))
                frame.operands += word not in KEYWORDS or word in _TYPES

    def _count_literal(self, frame: _Frame, text: str, count: int = 1) -> None:
        self._literals += count
        frame.compared_bytes += len(text)
        if frame.is_written:
            self._literal_bytes += len(text)
        elif frame.call != "in":  # values of an IN list are looked up and not written into rows
            self._value_bytes += len(text)

    def _run(self, frame: _Frame, text: str) -> None:
        """Count the literals of a run; each has a comma after it."""
        frame.converts |= "'" not in text or any(map(str.isdigit, _STRING.sub("", text)))
        count = _COMMAS.sub(r"\1", text).count(",") if "'" in text else text.count(",")
        self._count_literal(frame, text, count)
        frame.arguments += [None] * count

    def _open(self, text: str, name: str | None) -> None:
        outer = self._frames[-1]
        call = _called_function(name) if text == "(" and name is not None else None
        if call is not None and name is not None and call != "in":
            outer.operands -= 1  # the name was that of the function
            outer.condition_names.discard(name.lower().strip("`"))
        is_written = call != "in" and (call is not None or outer.is_written or text == "[")
        outer.tokens += 1
        outer.literal = None
        if call == "in":  # Lance expands the left operand for every row, even a literal
            self._literal_bytes += outer.compared_bytes
        self._frames.append(_Frame(call, 1, is_written=is_written, is_array=text == "["))

    def _close(self) -> None:
        if len(self._frames) == 1:
            return
        inner, outer = self._frames.pop(), self._frames[-1]
        if inner.call != "in":
            outer.compared_bytes += inner.compared_bytes
        inner.end_argument()
        self._close_operand(inner, outer)
        outer.depth += inner.depth
        outer.names_column = outer.names_column or inner.column_arguments > 0
        if inner.is_array:  # as in make_array(); its literals are counted by their bytes
            self._growth += Growth(operands=inner.column_arguments)
        if inner.call is not None and inner.call != "in":
            required = FUNCTIONS[inner.call].min_arguments
            if len(inner.arguments) < required:
                raise InvalidInputError(f"{inner.call}() needs at least {required} arguments.")
            self._growth = grow(inner.call, inner.arguments, self._growth)

    def _close_operand(self, inner: _Frame, outer: _Frame) -> None:
        """End what may be an operand of a condition: a call, a list of values, or an expression in parentheses."""
        takes_texts = inner.call in _TEXT_FUNCTIONS or inner.call in _TEXT_TESTS or inner.call in _PATTERN_FUNCTIONS
        if not takes_texts:
            outer.converts |= inner.converts or inner.call not in (None, "in")
        elif inner.call not in _LIST_TESTS:
            inner.converts = inner.call in _PATTERN_FUNCTIONS and None in inner.arguments[1:]
        self._converted |= inner.end_condition()
        outer.operands += bool(inner.names)
        if inner.call not in _TEXT_TESTS:
            outer.condition_names |= inner.names

    def _check_size(self, tokens: int) -> None:
        if tokens > _MAX_TOKENS:
            raise InvalidInputError(f"The SQL is too long: it has more than {_MAX_TOKENS} tokens.")
        if self._conditions > _MAX_CONDITIONS or sum(frame.depth for frame in self._frames) > _MAX_DEPTH:
            raise InvalidInputError(
                f"The SQL is too deep: a chain may have {_MAX_DEPTH} operators, and the expression {_MAX_CONDITIONS} "
                "conditions. Write long lists of values as IN (…)."
            )


def _called_function(name: str) -> str | None:
    """Return the function that a name before a parenthesis calls, or "in"; None for other keywords."""
    plain = name.strip("`").lower()
    if plain in FUNCTIONS:
        return plain
    if plain in KEYWORDS and name[0] != "`":
        return "in" if plain == "in" else None
    raise InvalidInputError(
        f"The function {name[:50]!r} is not offered in SQL expressions. Use one that the SQL reference lists, or write "
        "a view or a feature column."
    )


def _parse(sql: str) -> Expression:
    if len(sql) <= _CACHED_LENGTH:
        return _parse_short(sql)
    with _long_expression_lock:
        return _Parser(sql).parse(long=True)


@lru_cache(maxsize=4096)
def _parse_short(sql: str) -> Expression:
    return _Parser(sql).parse(long=False)
