"""The SQL of views, mutated where parsers disagree: what Pennon accepts, Spark must read as the same harmless query."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from sqlglot.dialects import Spark
from sqlglot.errors import TokenError

from pennon.core.settings import load_settings
from pennon.pipeline.cluster.session import Sessions
from pennon.spark.plan_check import check_statement, restrict
from pennon.views.model.definition import SOURCE_ROW
from pennon.views.sql.spark_lexer import normalize_sql
from pennon.views.sql.spark_sql import SparkQuery, normalize_statement
from tests.support.spark import QUICK_DRIVER
from tests.support.view_sql import CONTINUED_COMMENT, INNER_HINT, QUERIES, REFUSED, SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 20_261_116
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("xs", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("o", pa.struct([("name", pa.string()), ("odd `name", pa.int64())])),
        ("d", pa.decimal128(9, 2)),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
COLUMNS = (
    "1L AS id, 'a' AS s, array(1) AS xs, map('a', 1L) AS m, named_struct('name', 'a', 'odd `name', 1L) AS o, "
    "CAST(1 AS DECIMAL(9, 2)) AS d, TIMESTAMP '2024-01-01 10:00:00' AS ts"
)
#: Where comments, hints, strings and names begin and end, or do not; and what somebody would hide in them.
NOISE = [
    *(
        "--",
        "-- \\\n",
        "\\\n",
        "\\",
        "\n",
        "\r",
        "\r\n",
        "/*",
        "*/",
        "/*+",
        "/* /*+ */",
        "/**/",
        "/*+ x */",
        "/*/",
        "*",
    ),
    *("'", '"', "`", "''", '""', "``", "\\'", '\\"', "'\\\\'", "r'", 'R"', "x'", "'a'", "${", "$", "#", ";", "|>"),
    *("\u00a0", "\u2003", "\u2028", "\ufeff", "\u200b", "\x0b", "\x85", "\x00", "\u0041\u0301", "０", "－－"),
    *(
        "\\u0027",
        "\\047",
        "\\U00000027",
        "{{",
        "}}",
        "s3://",
        "::",
        "->",
        "<",
        ">",
        "(",
        ")",
        ",",
        ".",
        "0x1F",
        "1e",
        "1.",
        ".5",
    ),
    *(" reflect('java.lang.System', 'lineSeparator') ", " TRANSFORM(s) USING 'cat' AS (s string) ", " current_user "),
    *(" USING 'cat' ", " INSERT OVERWRITE LOCAL DIRECTORY '/tmp/none' ", " FROM parquet.`/etc/passwd` ", " UNION "),
    *(" LATERAL VIEW explode(xs) e AS x ", " SELECT ", " FROM source_2 ", " AS ", " WHERE 1 = 1 ", "system.builtin."),
    *(" IDENTIFIER('id') ", " TABLE ", " VALUES (1) ", " EXECUTE IMMEDIATE 'x' ", " TABLESAMPLE (1 ROWS) ", " WITH "),
]
SEEDS = [*QUERIES, *(text for text in REFUSED if "{" not in text), CONTINUED_COMMENT, INNER_HINT]


@pytest.fixture(scope="module")
def sparks() -> Iterator[dict[bool, Any]]:
    """Two sessions of one Spark: sources without the ids of their rows, and with them."""
    sessions = Sessions(load_settings(spark_master="local[1,4]", spark_conf=QUICK_DRIVER))
    with sessions.use() as session:
        found = {}
        for has_ids in (False, True):
            spark: Any = session.spark
            spark = found[has_ids] = spark.newSession()
            restrict(spark)
            for name in SOURCES:
                ids = f", 1L AS {SOURCE_ROW}" if has_ids else ""
                spark.sql(f"CREATE TEMPORARY VIEW {name} AS SELECT {COLUMNS}{ids}")
        yield found
    sessions.close()


def mutated(chance: random.Random) -> str:
    """Return a statement with noise in it, or with pieces of another one."""
    text = chance.choice(SEEDS)
    for _ in range(chance.choice([0, 1, 1, 2, 2, 3, 4])):
        at = chance.randrange(len(text) + 1)
        if chance.random() < 0.2:
            other = chance.choice(SEEDS)
            start = chance.randrange(len(other))
            text = text[:at] + other[start : start + chance.randrange(40)] + text[at:]
        elif chance.random() < 0.2:
            text = text[:at] + text[at + chance.randrange(6) :]
        else:
            text = text[:at] + chance.choice(NOISE) + text[at:]
    return text


def accepted(text: str) -> tuple[SparkQuery, str, list[str]] | None:
    """Return the query that Pennon makes of a text, what Spark is given of it, and its columns; none if refused."""
    try:
        query = SparkQuery(text)
        bound = query.bind(dict.fromkeys(query.uses, SCHEMA))
    except LanceNamespaceError:
        return None
    return query, bound.sql, [name for name, _ in bound.fields]


def check(sparks: dict[bool, Any], text: str) -> bool:
    """Check that Spark sees what Pennon saw, if both accept a statement, and return whether they do."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    found = accepted(text)
    if found is None:
        return False
    query, sql, columns = found
    statement = normalize_statement(sql)
    assert statement.text == sql, text
    assert not any(token.comments for token in Spark().tokenize(sql)), text
    by_row = query.rebuild_reason is None
    spark = sparks[by_row]
    try:
        check_statement(spark, statement, [f"source_{number + 1}" for number in range(len(query.uses))])
        seen = spark.sql(sql).columns
    except InvalidInputError as error:
        if "too large" in str(error):
            return False
        raise AssertionError(f"Spark reads something else in {text!r}: {error}") from error
    except (PySparkException, Py4JJavaError):
        return False  # nothing ran
    assert len(seen) == len(columns) + by_row, text
    return True


@cache
def spark_lexer(spark: Any) -> tuple[Any, Any, Any]:
    """Return the Java classes of Spark's lexer; py4j takes longer to find them than the lexer to run."""
    java = spark._jvm
    parser = java.org.apache.spark.sql.catalyst.parser
    return parser.UpperCaseCharStream, java.org.antlr.v4.runtime.CharStreams, parser.SqlBaseLexer


def check_tokens(spark: Any, text: str) -> bool:
    """Check that Spark's own lexer finds the tokens of a normalised text where Pennon does; return whether it is one.

    Spark takes several symbols for one token; names, strings and numbers have to be the same.
    """
    try:
        normal = normalize_sql(text)
    except InvalidInputError:
        return False
    upper_case_stream, char_streams, sql_lexer = spark_lexer(spark)
    # Spark's lexer knows capital letters alone, for which its parser has this stream: `.5f` is a number, too.
    lexer = sql_lexer(upper_case_stream(char_streams.fromString(normal.text)))
    lexer.removeErrorListeners()
    found = re.findall(r"@-1,(\d+):(\d+)='", lexer.getAllTokens().toString())
    spans = {(int(first), int(last) + 1) for first, last in found}
    expected = {(token.start, token.end) for token in normal.tokens if token.kind != "symbol"}
    assert expected <= spans, text
    symbols = {char for token in normal.tokens if token.kind == "symbol" for char in token.value}
    assert all(symbols | {" ", "\n"} >= set(normal.text[start:end]) for start, end in spans - expected), text
    return True


def run(sparks: dict[bool, Any], seed: int, count: int) -> int:
    chance = random.Random(seed)  # noqa: S311 (nothing secret)
    both = 0
    for number in range(count):
        text = mutated(chance)
        try:
            both += check(sparks, text)
        except Exception as error:
            raise AssertionError(f"seed {seed}, mutation {number}: {text!r}") from error
    return both


def test_what_is_accepted_is_the_query_that_spark_runs(sparks: dict[bool, Any]) -> None:
    assert run(sparks, SEED, 300) > 30


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_is_accepted_is_the_query_that_spark_runs_for_long(sparks: dict[bool, Any]) -> None:
    for seed in range(SEED + 1, SEED + 21):
        assert run(sparks, seed, 1000) > 50


def test_spark_finds_the_same_tokens(sparks: dict[bool, Any]) -> None:
    chance = random.Random(SEED)  # noqa: S311 (nothing secret)
    assert sum(check_tokens(sparks[False], mutated(chance)) for _ in range(500)) > 100


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_spark_finds_the_same_tokens_for_long(sparks: dict[bool, Any]) -> None:
    chance = random.Random(SEED + 1)  # noqa: S311 (nothing secret)
    assert sum(check_tokens(sparks[False], mutated(chance)) for _ in range(20_000)) > 4000


def test_normalised_text_is_read_alike_by_all() -> None:
    chance = random.Random(SEED)  # noqa: S311 (nothing secret)
    for _ in range(3000):
        text = mutated(chance)
        try:
            normal = normalize_sql(text)
            read = Spark().tokenize(normal.text)
        except (InvalidInputError, TokenError):
            continue
        assert normalize_sql(normal.text) == normal, text
        assert not any(token.comments for token in read), text
        for token in normal.tokens:
            if token.kind == "string":
                assert normal.text[token.start] == normal.text[token.end - 1] == "'", text
