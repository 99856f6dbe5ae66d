"""SQL of callers: what Lance can evaluate is evaluated, what could end a process costs one query at most."""

from __future__ import annotations

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from tests.chaos.arrow_bodies import repeated_value
from tests.integration.data.tables import DataTable, error, rows
from tests.integration.data.test_streams import address_of
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

ROWS = pa.table(
    {
        "id": pa.array(range(5), pa.int64()),
        "s": ["a", "b", "it's", None, "größe"],
        "b": pa.array([b"\xca\xfe", b"x", b"", None, b"z"]),
        "lb": pa.array([b"\xca\xfe", b"x", b"", None, b"z"], pa.large_binary()),
        "fb": pa.array([b"\xca\xfe", b"xx", b"yy", None, b"zz"], pa.binary(2)),
        "f": [1.5, 2.0, 3.0, 4.0, None],
        "dec": pa.array([1, 2, 3, 4, 5]).cast(pa.decimal128(22, 2)),
        "ts": pa.array([0, 1, 2, 3, None], pa.timestamp("us")),
        "d": pa.array([0, 1, 2, 3, None], pa.date32()),
        "boo": [True, False, None, True, False],
        "st": pa.array([{"x": number, "y": "q"} for number in range(5)]),
        "l": pa.array([[1, 2], [3], [], None, [4]]),
        "odd name": pa.array(range(5), pa.int32()),
    }
)
#: Numbers, bytes, texts and names, times, nested values, conditions and operators, casts and calls.
FORMS = r"""
id = 1 ¦ id = 0x2 ¦ id = 1e0 ¦ id = .5 ¦ id = 5. ¦ f = 1.5 ¦ f > 1.5e0 ¦ f = -1.5E-1 ¦ id = 1_0 ¦ id = 1L ¦ id = -1
id = +1 ¦ -id = -1 ¦ dec = 1.00 ¦ dec = DECIMAL '1.0' ¦ dec > cast(2 as decimal(22,2)) ¦ b = X'CAFE' ¦ lb = x'cafe'
fb = X'CAFE' ¦ b IN (X'CAFE', X'78') ¦ b = X'' ¦ b != X'CAFE' AND b IS NOT NULL ¦ b = X'CAF' ¦ b = X'ZZ'
X'CAFE' = b ¦ coalesce(b, X'00') = X'00' ¦ s = X'61' ¦ b = X"CAFE" ¦ b > X'00' ¦ s = 'a' ¦ s = "a" ¦ s = 'it''s'
s = 'größe' ¦ s = E'a' ¦ s = U&'\0061' ¦ s = N'a' ¦ s = r'a' ¦ s = $$a$$ ¦ s = q'[a]' ¦ s = B'1' ¦ s = ''
s = '--a' ¦ s = '/*' ¦ `id` = 1 ¦ `odd name` = 2 ¦ ID = 1 ¦ [id] = 1 ¦ s = 'a' -- or what? ¦ s = /* a */ 'a'
id = 1 /* /* */ */ ¦ id = 1; ¦ id = 1 # x ¦ ts = TIMESTAMP '1970-01-01 00:00:00' ¦ d = DATE '1970-01-02'
TIME '10:00:00' IS NOT NULL ¦ now() > ts ¦ ts > TIMESTAMP '1970-01-01' + INTERVAL '1 day' ¦ d + INTERVAL '1' DAY > d
ts AT TIME ZONE 'UTC' IS NOT NULL ¦ EXTRACT(year FROM ts) = 1970 ¦ date_part('year', ts) = 1970
ts::date = DATE '1970-01-01' ¦ current_date > d ¦ st.x = 1 ¦ st['x'] = 1 ¦ st["x"] = 1 ¦ st.`x` = 1 ¦ st.x.z = 1
get_field(st, 'x') = 1 ¦ l[1] = 1 ¦ l = [1, 2] ¦ array_has(l, 3) ¦ l[1:2] = [1] ¦ array[1,2] = l ¦ {'x': 1} = st
struct(1, 'q') = st ¦ array_length(l) = 2 ¦ cardinality(l) = 1 ¦ l @> [1] ¦ st->'x' = 1 ¦ map([1],[2]) IS NULL
get_field(st) = 1 ¦ boo ¦ NOT boo ¦ boo IS TRUE ¦ boo IS NOT FALSE ¦ boo IS UNKNOWN ¦ s IS NULL ¦ true ¦ false
null ¦ 1 ¦ id BETWEEN 1 AND 2 ¦ id NOT BETWEEN 1 AND 2 ¦ id IN (1, 2) ¦ id NOT IN (1, 2) ¦ id IN ()
id = ANY([1, 2]) ¦ s IS DISTINCT FROM 'a' ¦ s IS NOT DISTINCT FROM 'a' ¦ s LIKE 'a%' ¦ s LIKE 'a\%' ESCAPE '\'
s ILIKE 'A' ¦ s NOT LIKE '%a%' ¦ s SIMILAR TO 'a' ¦ s ~ 'a' ¦ s !~* 'A' ¦ s RLIKE 'a' ¦ s LIKE ANY ('a') ¦ s <=> 'a'
id == 1 ¦ id <> 1 ¦ id != 1 ¦ id & 1 = 1 ¦ id | 1 = 1 ¦ id ^ 1 = 0 ¦ id << 1 = 2 ¦ id >> 1 = 0 ¦ id % 2 = 0
id div 2 = 1 ¦ id = ~1 ¦ s || 'x' = 'ax' ¦ id + 1 * 2 - 3 / 1 = 0 ¦ (id = 1 OR id = 2) AND s IS NOT NULL
CASE WHEN s = 'a' THEN true END ¦ id = CASE s WHEN 'a' THEN 0 ELSE 9 END ¦ EXISTS (SELECT 1) ¦ id IN (SELECT 1)
CAST(id AS string) = '1' ¦ TRY_CAST(s AS int) IS NULL ¦ id::bigint = 1 ¦ id::varchar = '1' ¦ INT '1' = id
cast(id as varchar(3)) = '1' ¦ lower(s) = 'a' ¦ LOWER (s) = 'a' ¦ `lower`(s) = 'a' ¦ lower/**/(s) = 'a'
position('a' IN s) = 1 ¦ strpos(s, 'a') = 1 ¦ substring(s FROM 1 FOR 1) = 'a' ¦ substr(s, 1, 1) = 'a'
trim(BOTH 'a' FROM s) = '' ¦ btrim(s) = 'a' ¦ trim(s) = 'a' ¦ overlay(s PLACING 'x' FROM 1 FOR 1) = 'x'
ceil(f) = 2 ¦ round(f) = 2 ¦ abs(-id) = 1 ¦ regexp_like(s, '^a') ¦ regexp_match(s, 'a') = ['a']
regexp_replace(s, 'a', 'b') = 'b' ¦ replace(s, 'a', 'b') = 'b' ¦ concat(s, '-', s) = 'a-a' ¦ lpad(s, 3, '0') = '00a'
repeat(s, 3) = 'aaa' ¦ repeat(s, 300) = 'x' ¦ length(repeat(s, id)) = 1 ¦ array_repeat(id, 2) = [1, 1]
cardinality(range(0, id)) = 2 ¦ levenshtein(s, 'a') = 0 ¦ md5(s) = '0cc175b9c0f1b6a831c399e269772661'
coalesce(s, 'none') = 'none' ¦ nullif(s, 'a') IS NULL ¦ count(*) = 1 ¦ row_number() OVER () = 1 ¦ foo(id) = 1
_rowid = 1 ¦ _rowaddr >= 0 ¦ missing = 1 ¦ id = $1 ¦ id = ? ¦ :x = 1 ¦ id =:x ¦ {fn abs(id)} = 1 ¦ lower(s) ¦ 'open
id = (1 ¦ id = 1) ¦ id = 1 id = 2 ¦ @x = 1 ¦ s = 'a' 'b' ¦ a.b.c(1) = 1
"""
#: Every form of a literal in DataFusion's dialects of SQL, whether Lance reads it or not: whole numbers and fractions,
#: bytes, texts, escapes and quotings of other databases, times, typed literals, truth values, arrays, structs, maps and
#: casts.
LITERAL_FORMS = r"""
1 ¦ 0 ¦ -1 ¦ +1 ¦ - 1 ¦ -(-1) ¦ 1_000 ¦ _1 ¦ 1L ¦ 1l ¦ 1. ¦ .5 ¦ 1.5 ¦ -.5 ¦ 1e3 ¦ 1E3 ¦ 1e+3 ¦ 1E-3 ¦ 1.e3 ¦ .5e1
1e ¦ 1e400 ¦ 9223372036854775807 ¦ 9223372036854775808 ¦ -9223372036854775808 ¦ 18446744073709551616
0.12345678901234567890123456789 ¦ 0x1F ¦ 0X1f ¦ 0b101 ¦ 0o17 ¦ X'CAFE' ¦ x'cafe' ¦ X'' ¦ X'CAF' ¦ X'ZZ' ¦ X'CA FE'
X 'CAFE' ¦ X'CA' 'FE' ¦ X"CAFE" ¦ B'101' ¦ 'a' ¦ '' ¦ 'it''s' ¦ 'a\' ¦ 'a\n' ¦ 'a\\b' ¦ "a" ¦ "it""s" ¦ 'a' 'b'
'größe' ¦ '😀' ¦ 'a"b' ¦ "a'b" ¦ '--' ¦ '/*' ¦ 'a;b' ¦ '?' ¦ ':x' ¦ '$1' ¦ E'a' ¦ e'a\n' ¦ E'\x41' ¦ E'it\'s' ¦ E'\\'
U&'\0061' ¦ u&'\+000061' ¦ U&'!0061' UESCAPE '!' ¦ N'a' ¦ n'it''s' ¦ R'a' ¦ r'a\' ¦ r"a" ¦ '''a''' ¦ q'[a]' ¦ Q'{a}'
$$a$$ ¦ $tag$a$tag$ ¦ $1 ¦ ? ¦ :x ¦ @x ¦ _utf8'a' ¦ 'a' COLLATE "C" ¦ DATE '2020-01-01' ¦ date'2020-01-01'
DATE "2020-01-01" ¦ DATE 'x' ¦ TIME '10:00:00' ¦ TIMESTAMP '2020-01-01 10:00:00' ¦ timestamp '2020-01-01T10:00:00Z'
TIMESTAMP(3) '2020-01-01' ¦ TIMESTAMP WITH TIME ZONE '2020-01-01 10:00:00+01:00' ¦ TIMESTAMPTZ '2020-01-01'
DATETIME '2020-01-01' ¦ {d '2020-01-01'} ¦ {t '10:00:00'} ¦ {ts '2020-01-01 10:00:00'} ¦ INTERVAL '1 day'
INTERVAL '1' DAY ¦ interval 1 day ¦ INTERVAL '1-2' YEAR TO MONTH ¦ '2020-01-01' AT TIME ZONE 'UTC' ¦ DECIMAL '1.0'
DECIMAL(10,2) '1.0' ¦ NUMERIC '1' ¦ DOUBLE '1.5' ¦ FLOAT '1.5' ¦ REAL '1.5' ¦ INT '1' ¦ BIGINT '1' ¦ TINYINT '1'
INT UNSIGNED '1' ¦ INT64 '1' ¦ BOOLEAN 'true' ¦ STRING 'a' ¦ VARCHAR 'a' ¦ VARCHAR(3) 'a' ¦ TEXT 'a' ¦ CHAR(1) 'a'
BYTEA 'a' ¦ BINARY 'a' ¦ BINARY(3) 'a' ¦ UUID 'a' ¦ JSON '{}' ¦ JSONB '{}' ¦ true ¦ TRUE ¦ True ¦ false ¦ NULL ¦ null
Null ¦ UNKNOWN ¦ NaN ¦ 'NaN'::double ¦ 'inf'::double ¦ PI() ¦ [1,2] ¦ [] ¦ ['a'] ¦ [[1],[2]] ¦ [1,NULL] ¦ ARRAY[1,2]
array[] ¦ ARRAY[[1],[2]] ¦ [X'00'] ¦ [DATE '2020-01-01'] ¦ [1,2][1] ¦ make_array(1,2) ¦ {'x':1} ¦ {x:1} ¦ {}
{'x':{'y':1}} ¦ struct(1,'q') ¦ STRUCT(1 AS x) ¦ STRUCT<x INT>(1) ¦ row(1,2) ¦ (1,2) ¦ ((1))
named_struct('x',1,'y','q') ¦ MAP {'a':1} ¦ MAP {} ¦ map(['a'],[1]) ¦ make_map('a',1) ¦ 1::bigint ¦ '1'::int::varchar
'1'::int::string::bigint ¦ '2020-01-01'::date ¦ '2020-01-01'::timestamp(3) ¦ 1.5::decimal(10,2) ¦ NULL::int
'true'::boolean ¦ -1::int ¦ (-1)::int ¦ 1 :: int ¦ 1::int unsigned ¦ (1+2)::string ¦ [1]::int[] ¦ '1 day'::interval
CAST(1 AS int) ¦ CAST(CAST('1' AS int) AS string) ¦ TRY_CAST('x' AS int) ¦ SAFE_CAST('x' AS int) ¦ CONVERT(int, '1')
cast('1' as decimal(38,10)) ¦ cast('a' as binary) ¦ cast('a' as varbinary) ¦ cast(1 as timestamp(9))
cast([1] as array<bigint>) ¦ arrow_cast(1, 'Int8') ¦ arrow_cast('a', 'Binary')
arrow_cast([1.0, 2.0], 'FixedSizeList(2, Float32)') ¦ array_normalize([3.0])
arrow_cast('10:00:00', 'Time64(Microsecond)') ¦ arrow_try_cast('x', 'Int8') ¦ is_valid(1) ¦ dot_product([1.0], [2.0])
"""
LITERALS = [form.strip() for form in re.split("[¦\n]", LITERAL_FORMS) if form.strip()]
GRAMMAR = [*(form.strip() for form in re.split("[¦\n]", FORMS)), "s = 'a'\n-- b\nOR id = 1", "id =\u00a01"]
#: What would end the process that evaluates it; through Pennon each is refused, and the server goes on.
DANGEROUS = [
    "cardinality(array_repeat(id, 100000000000)) > 1",
    "length(lpad(s, 2000000000)) = 1",
    "length(`repeat`(repeat(s, 100000), 10000)) = 1",
    "length(replace(repeat(s, 1000), 'e', repeat('b', 1000000))) = 1",
]


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return lance.write_dataset(ROWS, tmp_path_factory.mktemp("direct") / "t.lance")


def evaluate(direct: Any, sql: str) -> list[int] | None:
    try:
        found = direct.scanner(columns=["id"], filter=sql or None).to_table()
    except BaseException as failure:
        if isinstance(failure, KeyboardInterrupt):
            raise
        return None
    return [int(number) for number in found["id"].to_pylist()]


def test_every_form_of_expression_is_evaluated_as_lance_does(new: DataTable, direct: Any) -> None:
    table = new.create(ROWS)
    differing = {}
    for sql in GRAMMAR:
        answer = table.ask("query", {"k": 100, "filter": sql, "columns": ["id"]})
        assert answer.status_code in {200, 400, 404}, f"{sql}: {answer.text}"
        expected = evaluate(direct, sql)
        ids = None
        if answer.status_code == 200:
            ids = pa.ipc.open_file(answer.content).read_all()["id"].to_pylist()
        if ids != expected:
            differing[sql] = (ids, expected, answer.text[:200] if ids is None else "")
    assert differing == {}


def described(values: pa.ChunkedArray) -> str:
    """Return values and their type in a form that can be compared: NaN differs from NaN."""
    return f"{values.type}: {values.to_pylist()}"


def value_of(direct: Any, sql: str) -> str | None:
    """Return what Lance makes of a literal; none where it refuses it."""
    try:
        found: pa.Table = direct.scanner(columns={"id": "id", "v": sql}, limit=1).to_table()
    except BaseException as failure:
        if isinstance(failure, KeyboardInterrupt):
            raise
        return None
    return described(found["v"])


def test_every_literal_has_the_value_that_lance_gives_it(new: DataTable, direct: Any) -> None:
    table = new.create(ROWS)
    differing = {}
    for sql in LITERALS:
        answer = table.ask("query", {"k": 1, "columns": {"id": "id", "v": sql}})
        assert answer.status_code in {200, 400, 404}, f"{sql}: {answer.text}"
        found = None
        if answer.status_code == 200:
            found = described(pa.ipc.open_file(answer.content).read_all()["v"])
        expected = value_of(direct, sql)
        if found != expected:
            differing[sql] = (found, expected, answer.text[:200] if found is None else "")
    assert differing == {}


def test_every_literal_of_lance_is_written(new: DataTable, direct: Any, tmp_path: Path) -> None:
    values = {sql: found for sql in LITERALS if (found := value_of(direct, sql)) is not None}
    assert len(values) > 100
    kept = [sql for sql, found in values.items() if not found.startswith("null:")]  # others cannot be a column
    given = {f"v{number}": sql for number, sql in enumerate(kept)}
    few = ROWS.select(["id", "s"])
    local, table = lance.write_dataset(few, tmp_path / "local.lance"), new.create(few)
    for start in range(0, len(kept), 20):  # the bytes of an expression's literals have a bound
        part = dict(list(given.items())[start : start + 20])
        local.add_columns(part)
        local.update(part, "id = 1")
        table.do("add_columns", {"new_columns": [{"name": name, "expression": sql} for name, sql in part.items()]})
        table.do("update", {"updates": list(map(list, part.items())), "predicate": "id = 1"})
    found, expected = table.query().sort_by("id"), local.to_table().sort_by("id")
    assert found.schema.names == expected.schema.names
    for name in expected.schema.names:
        assert described(found[name]) == described(expected[name]), given.get(name, name)


def test_every_literal_of_lance_is_compared_in_every_condition(new: DataTable, direct: Any) -> None:
    literals = [sql for sql in LITERALS if value_of(direct, sql) is not None]
    literals = [sql for sql in literals if not sql.startswith("arrow_")]  # which Lance's upserts do not know
    parts = [literals[start : start + 15] for start in range(0, len(literals), 15)]
    table = new.create(pa.table({"id": range(500), "s": ["old"] * 500}))
    for number, part in enumerate(parts):
        known = " AND ".join(f"(({sql}) IS NULL OR ({sql}) IS NOT NULL)" for sql in part)
        assert table.do("delete", {"predicate": f"id = {number} AND {known}"})["num_deleted_rows"] == 1
        change = {"updates": [["s", "'new'"]], "predicate": f"id = {100 + number} AND {known}"}
        assert table.do("update", change)["updated_rows"] == 1
        conditions = {
            "when_matched_update_all": True,
            "when_matched_update_all_filt": f"target.id = {200 + number} AND {known}",
            "when_not_matched_by_source_delete": True,
            "when_not_matched_by_source_delete_filt": f"id = {300 + number} AND {known}",
        }
        newer = pa.table({"id": [200 + number, 400], "s": ["new", "new"]})
        merged = table.put("merge_insert", newer, on="id", **conditions)
        assert (merged["num_updated_rows"], merged["num_deleted_rows"]) == (1, 1)
        assert table.ids(filter=f"id = 400 AND {known}") == [400]
        assert table.count(predicate=f"id = 400 AND {known}") == 1
    assert table.count(predicate="s = 'new'") == 2 * len(parts)


def test_bytes_are_literals_wherever_there_is_sql(new: DataTable) -> None:
    table = new.create(ROWS.select(["id", "s", "b"]))
    assert table.do("update", {"updates": [["b", "X'00FF'"]], "predicate": "b = X'CAFE'"})["updated_rows"] == 1
    assert table.query(filter="b = X'00FF'", columns={"column_aliases": {"x": "X'01'", "b": "b"}}).to_pylist() == [
        {"x": b"\x01", "b": b"\x00\xff"}
    ]
    newer = pa.table({"id": pa.array([0, 1], pa.int64()), "s": ["new", "new"], "b": [b"1", b"2"]})
    condition = {"when_matched_update_all": True, "when_matched_update_all_filt": "target.b = X'00FF'"}
    assert table.put("merge_insert", newer, on="id", **condition)["num_updated_rows"] == 1
    assert table.count(predicate="s = 'new'") == 1
    assert table.do("delete", {"predicate": "b IN (X'31', X'78')"})["num_deleted_rows"] == 2


def test_sql_that_lance_fails_on_is_not_worth_another_try(table: DataTable) -> None:
    condition = {"when_matched_update_all": True, "when_matched_update_all_filt": "target.id = arrow_cast(1, 'Int64')"}
    refused = table.send("merge_insert", rows(3), on="id", **condition)
    assert error(refused) == (400, 13)
    assert "arrow_cast" in refused.text


@pytest.mark.parametrize("sql", DANGEROUS)
def test_sql_that_needs_more_memory_than_there_is_costs_one_query(
    sql: str, table: DataTable, pennon_server: PennonProcess
) -> None:
    sql = sql.replace("(s,", "(word,")
    before = pennon_server.pid
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(table.ids, filter="id < 3") for _ in range(20)]
        refused = table.ask("query", {"k": 10, "filter": sql})
        assert [other.result() for other in others] == [[0, 1, 2]] * 20
    assert error(refused) == (400, 13)
    assert (pennon_server.pid, pennon_server.returncode) == (before, None)
    assert error(table.ask("delete", {"predicate": sql})) == (400, 13)
    assert error(table.ask("update", {"updates": [["id", "0"]], "predicate": sql})) == (400, 13)
    assert error(table.ask("add_columns", {"new_columns": [{"name": "x", "expression": sql}]})) == (400, 13)
    assert table.count() == 100


def test_query_processes_read_versions_and_branches(table: DataTable) -> None:
    table.do("branches/create", {"name": "side"})
    table.put("insert", rows(100, 110), branch="side")
    table.put("insert", rows(100, 103))
    sql = "length(repeat(word, 100)) >= 300"
    assert table.count(predicate=sql) == 103
    assert table.count(predicate=sql, version=1) == 100
    assert table.count(predicate=sql, branch="side") == 110
    assert table.ids(filter=f"{sql} AND id >= 100", branch="side") == list(range(100, 110))
    assert table.ids(filter=sql, version=1) == list(range(100))
    found = table.query(vector={"single_vector": [7.0] * 4}, k=2, filter=sql, columns={"column_names": ["id"]})
    assert min(found["id"].to_pylist()) in {6, 7}
    plan = table.do("explain_plan", {"query": {"k": 1, "vector": {}, "filter": sql}})
    assert "repeat" in plan
    assert "repeat" in table.do("analyze_plan", {"k": 1, "vector": {}, "filter": sql})


def test_a_large_result_of_a_query_process_is_complete(new: DataTable) -> None:
    table = new.create(rows(20_000))
    found = table.query(columns={"column_aliases": {"id": "id", "long": "repeat(word, 200)"}})
    assert found["id"].to_pylist() == list(range(20_000))
    assert found["long"][19_999].as_py() == "green" * 200
    assert found.nbytes > 10_000_000


#: Queries that take long without an end, or send one column many times, with the number of rows that answer them.
LENGTHY: list[tuple[dict[str, Any], int]] = [
    ({"k": 5, "columns": {"column_aliases": {f"c{number}": "word" for number in range(100)}}}, 5),
    ({"k": 1, "vector": {"multi_vector": [[7.0] * 4] * 1_001}, "columns": {"column_names": ["id"]}}, 1_001),
    *(
        ({"k": 3, "full_text_query": {"structured_query": {"query": {"match": {"column": "word", **terms}}}}}, 3)
        for terms in ({"terms": "gren", "fuzziness": 3}, {"terms": "green " * 5_000})
    ),
]


def test_uninterruptible_queries_run_in_a_query_process(new: DataTable, tmp_path: Path) -> None:
    table = new.create(rows(100))
    table.do("create_index", {"column": "word", "index_type": "FTS"})
    for body, count in LENGTHY:
        assert table.query(**body).num_rows == count, str(body)[:200]
    with PennonProcess(tmp_path, "--query-processes", "0") as server, RestClient(server.url) as http:
        alone = DataTable(http).create(rows(100))
        alone.do("create_index", {"column": "word", "index_type": "FTS"})
        for body, _ in LENGTHY:
            refused = alone.ask("query", body)
            assert error(refused) == (400, 13), str(body)[:200]
            assert "query_processes" in refused.text


def test_long_sql_is_refused_by_its_limits(table: DataTable) -> None:
    numbers = ",".join(str(number) for number in range(100_001))
    refused = table.ask("query", {"k": 1, "filter": f"id IN ({numbers})"})
    assert error(refused) == (400, 13)
    assert "max_expression_literals" in refused.text
    refused = table.ask("count_rows", {"predicate": f"word = '{'x' * 5_000_000}'"})
    assert error(refused) == (400, 13)
    assert "max_expression_bytes" in refused.text
    assert table.ids(filter=f"id IN ({numbers[:200_000].rpartition(',')[0]})") == list(range(100))


def test_an_unknown_long_name_is_refused_before_lance_looks_for_similar_ones(table: DataTable) -> None:
    unknown = "x" * 10_000
    where = f"{unknown} = 1"
    condition = {"when_matched_update_all": True, "when_matched_update_all_filt": f"source.{where}"}
    for refused in (
        table.ask("query", {"k": 1, "filter": where}),
        table.ask("query", {"k": 1, "columns": {"column_aliases": {"a": f"{unknown} + 1"}}}),
        table.ask("explain_plan", {"query": {"k": 1, "vector": {}, "filter": where}}),
        table.ask("count_rows", {"predicate": where}),
        table.ask("delete", {"predicate": where}),
        table.ask("update", {"updates": [["id", unknown]]}),
        table.ask("update", {"updates": [["id", "1"]], "predicate": where}),
        table.ask("add_columns", {"new_columns": [{"name": "n", "expression": f"{unknown} + 1"}]}),
        table.send("merge_insert", rows(3), on="id", **condition),
    ):
        assert error(refused) == (404, 12)
        assert refused.json()["error"] == f"There is no column '{unknown[:50]}…' of 10000 letters."


def test_a_long_value_is_written_into_few_rows_only(table: DataTable) -> None:
    value = "'" + "x" * 1_000_000 + "'"
    done = table.do("update", {"updates": [["word", value]], "predicate": "id = 1"})
    assert done["updated_rows"] == 1
    table.put("insert", rows(100, 500))
    refused = table.ask("update", {"updates": [["word", f"({value})"]]})
    assert error(refused) == (400, 13)
    assert "narrower predicate" in refused.text


def test_values_that_grow_are_written_into_few_columns_at_a_time(table: DataTable) -> None:
    columns = [{"name": f"c{number}", "expression": "repeat(word, 60)"} for number in range(5)]
    refused = table.ask("add_columns", {"new_columns": columns})
    assert error(refused) == (400, 13)
    assert "fewer columns" in refused.text
    table.do("add_columns", {"new_columns": columns[:2]})
    plain = [{"name": f"d{number}", "expression": f"id + {number}"} for number in range(300)]
    table.do("add_columns", {"new_columns": plain})
    table.do("update", {"updates": [[f"c{number}", "repeat(word, 64)"] for number in range(2)]})
    assert table.query(filter="id = 1")["c1"][0].as_py() == table.query(filter="id = 1")["word"][0].as_py() * 64


def test_a_dictionary_has_no_value_that_is_too_long_for_each_row(table: DataTable) -> None:
    refused = table.send("create", repeated_value(200_000), mode="overwrite")
    assert error(refused) == (400, 13)
    assert "without a dictionary" in refused.text
    table.put("create", repeated_value(1_000), mode="overwrite")
    assert table.count(predicate="upper(word) = 'a'") == 0


def children_of(server: PennonProcess) -> set[int]:
    tasks = Path(f"/proc/{server.pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def test_a_query_whose_client_left_is_stopped(new: DataTable, pennon_server: PennonProcess) -> None:
    table = new.create(rows(60_000))
    slow = "levenshtein(repeat(word, 2000), repeat(word, 1999)) < 0"
    table.count(predicate="length(repeat(word, 100)) = 0")  # starts a query process
    before = {child: _cpu_ticks(child) for child in children_of(pennon_server)}
    body = json.dumps({"k": 10, "filter": slow, "vector": {}}).encode()
    head = f"POST {table.path}/query?delimiter=%24 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(address_of(pennon_server)) as link:
        link.sendall(head.encode() + body)
        # Other tests may have left more query processes, which stay idle.
        busy = wait_until(lambda: {child for child, ticks in before.items() if _cpu_ticks(child) > ticks + 20})
    wait_until(lambda: not busy & children_of(pennon_server))
    assert table.ids(filter="id < 2") == [0, 1]


def test_a_text_with_a_nul_character_ends_no_api_process(tmp_path: Path) -> None:
    converting = ("CAST(word AS INT) > 1", "word = id", "id IN (word)", "lower(word) = 5", "regexp_like('a', word)")
    with PennonProcess(tmp_path) as server, RestClient(server.url) as http:  # with one process, which must not end
        table = DataTable(http).create(pa.table({"id": [1], "word": ["(\0a"]}))
        for condition in (*converting, "word > date '2020-01-01'"):
            for body in ({"filter": condition, "k": 10}, {"columns": {"x": condition}, "k": 10}):
                assert error(table.ask("query", body)) == (400, 13), body
            assert error(table.ask("count_rows", {"predicate": condition})) == (400, 13), condition
        assert table.do("count_rows") == 1


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_query_processes_end_with_their_server(tmp_path: Path) -> None:
    with PennonProcess(tmp_path) as server:
        with RestClient(server.url) as http:
            table = DataTable(http).create(rows(10))
            assert table.count(predicate="length(repeat(word, 100)) >= 300") == 10
        children = children_of(server)
        assert children
        server.kill()
        wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
