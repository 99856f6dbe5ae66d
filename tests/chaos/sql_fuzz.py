"""Random SQL: expressions of a grammar, with functions that are offered and some that are not, and broken ones."""

from __future__ import annotations

import random
from collections.abc import Callable

TEXT, NUMBER, LIST, TRUTH = "text", "number", "list", "truth"

_CALLS: dict[str, list[tuple[str, ...]]] = {
    TEXT: [
        ("repeat", TEXT, "size"),
        ("lpad", TEXT, "size", TEXT),
        ("rpad", TEXT, "size"),
        ("replace", TEXT, TEXT, TEXT),
        ("regexp_replace", TEXT, TEXT, TEXT),
        ("concat", TEXT, TEXT, TEXT, TEXT),
        ("concat_ws", TEXT, TEXT, TEXT),
        ("upper", TEXT),
        ("reverse", TEXT),
        ("substr", TEXT, NUMBER, NUMBER),
        ("left", TEXT, NUMBER),
        ("split_part", TEXT, TEXT, NUMBER),
        ("translate", TEXT, TEXT, TEXT),
        ("overlay", TEXT, TEXT, NUMBER),
        ("initcap", TEXT),
        ("chr", NUMBER),
        ("to_hex", NUMBER),
        ("coalesce", TEXT, TEXT),
        ("array_to_string", LIST, TEXT),
        ("array_to_string", LIST, TEXT, TEXT),
        ("arrow_typeof", LIST),
        ("encode", TEXT, TEXT),
        ("uuid",),
        ("to_char", NUMBER, TEXT),
        ("arrow_cast", TEXT, TEXT),
        ("pg_read_file", TEXT),
        ("string_agg", TEXT, TEXT),
    ],
    NUMBER: [
        ("length", TEXT),
        ("abs", NUMBER),
        ("power", NUMBER, "size"),
        ("factorial", NUMBER),
        ("levenshtein", TEXT, TEXT),
        ("cardinality", LIST),
        ("strpos", TEXT, TEXT),
        ("array_position", LIST, NUMBER),
        ("gcd", NUMBER, NUMBER),
        ("regexp_count", TEXT, TEXT),
        ("sum", NUMBER),
        ("get_field", NUMBER),
        ("date_part", TEXT, NUMBER),
        ("sleep", NUMBER),
    ],
    LIST: [
        ("array_repeat", NUMBER, "size"),
        ("array_repeat", LIST, "size"),
        ("range", NUMBER, "size"),
        ("generate_series", NUMBER, "size", NUMBER),
        ("array_resize", LIST, "size"),
        ("array_resize", LIST, "size", NUMBER),
        ("array_replace_all", LIST, NUMBER, NUMBER),
        ("string_to_array", TEXT, TEXT),
        ("array_append", LIST, NUMBER),
        ("array_concat", LIST, LIST),
        ("flatten", LIST),
        ("array_sort", LIST),
        ("make_array", NUMBER, NUMBER),
    ],
    TRUTH: [
        ("regexp_like", TEXT, TEXT),
        ("starts_with", TEXT, TEXT),
        ("array_has", LIST, NUMBER),
        ("contains", TEXT, TEXT),
    ],
}
_COLUMNS = {TEXT: "word", NUMBER: "id", LIST: "[1, 2, 3]", TRUTH: "true"}
_NOISE = [*"'\"`()[?\\;#\x00\u00a0", "--", "/*", "*/", "::", ":x", "$$", "E'", "X'"]
_SIZES = ["0", "-1", "3", "40", "1000", "100000", "2147483647", "100000000000", "9223372036854775807", "id", "NULL"]


class SqlFuzz:
    """Makes expressions, the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 (the same for a seed)

    def expression(self, kind: str, depth: int = 3) -> str:
        """Return an expression of a kind of value."""
        chance = self.random.random()
        if depth == 0 or chance < 0.25:
            return _COLUMNS[kind] if chance < 0.12 else self._literal(kind)
        if kind == TRUTH and chance < 0.7:
            return self._condition(depth)
        if chance < 0.75:
            return self._call(kind, depth)
        return self._combined(kind, depth)

    def broken(self) -> str:
        """Return an expression with something in it that does not belong there."""
        sql = self.expression(TRUTH, 2)
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randint(0, len(sql))
            sql = sql[:place] + self.random.choice(_NOISE) + sql[place:]
        return sql

    def long(self) -> str:
        """Return an expression that is long or deep."""
        size = self.random.choice([200, 2_000, 30_000, 120_000])
        forms: list[Callable[[], str]] = [
            lambda: f"id IN ({','.join(str(number) for number in range(size))})",
            lambda: " OR ".join(["id = 1"] * min(size, 12_000)),
            lambda: "id = " + "(" * size + "1" + ")" * size,
            lambda: "word = " + " || ".join(["word"] * size),
            lambda: f"word = '{'x' * size * 50}'",
            lambda: "length(concat(" + ",".join(["word"] * size) + ")) > 0",
            lambda: f"array_length([{','.join(['repeat(word, 16)'] * size)}]) > 0",
            lambda: "word = " + "encode(" * 40 + "word" + ", 'hex')" * 40,
            lambda: f"'{'x' * size * 2}' IN (word, word)",
            lambda: "NOT " * size + "true",
            lambda: f"regexp_like(word, '{'(a' * min(size, 2_000)}{')*' * min(size, 2_000)}')",
            lambda: f"regexp_like(word, '{'a{1000}' * 10}{{1000}}')",
            lambda: f"word LIKE '{'%a_' * size}'",
        ]
        return self.random.choice(forms)()

    def _literal(self, kind: str) -> str:
        choices = {
            TEXT: ["'a'", "''", "'%'", "'it''s'", "'.*'", "'(e|d)+'", "'%Y'", "'hex'", "'ä'", "'x" + "y" * 300 + "'"],
            NUMBER: ["0", "1", "-1", "7", "1.5", "1e300", "9223372036854775807", "id * 1000000", "NULL"],
            LIST: ["[]", "[1, 2]", "[[1], [2]]", "NULL"],
            TRUTH: ["true", "false", "id > 3", "word = 'red'", "NULL", "b = X'CAFE'"],
        }
        return self.random.choice(choices[kind])

    def _call(self, kind: str, depth: int) -> str:
        name, *arguments = self.random.choice(_CALLS[kind])
        made = [
            self.random.choice(_SIZES) if argument == "size" else self.expression(argument, depth - 1)
            for argument in arguments
        ]
        name = self.random.choice([name, name, name.upper(), f"`{name}`", f"{name}/**/ "])
        return f"{name}({', '.join(made)})"

    def _condition(self, depth: int) -> str:
        kind = self.random.choice([TEXT, NUMBER, LIST])
        left, right = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        form = self.random.choice(
            ["{} = {}", "{} <> {}", "{} IS DISTINCT FROM {}", "{} IN ({})", "NOT {} = {}", "{} IS NULL OR {} IS NULL"]
        )
        return form.format(left, right)

    def _combined(self, kind: str, depth: int) -> str:
        left, right = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        forms = {
            TEXT: ["{} || {}", "CAST({} || {} AS string)"],
            NUMBER: ["{} + {}", "{} / {}", "{} % {}", "{} << {}", "CAST({} * {} AS bigint)"],
            LIST: ["array_concat({}, {})", "array_union({}, {})", "[{}, {}]"],
            TRUTH: ["({} AND {})", "({} OR {})", "{} IS DISTINCT FROM {}"],
        }
        return self.random.choice(forms[kind]).format(left, right)
