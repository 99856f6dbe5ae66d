"""Statements of Spark's SQL: queries that a view may have, and what it may not do, however it is written."""

from __future__ import annotations

from typing import Any

#: The tables of the queries below.
SOURCES = ("source_1", "source_2")

#: Read as one statement by a parser that ends a comment with its line, and as another one by Spark.
CONTINUED_COMMENT = (
    "-- \\\nSELECT s FROM t WHERE a IN (SELECT a FROM t) /*\n"
    "SELECT TRANSFORM(s) USING \"sh -c 'id'\" AS (s string) FROM source_1\n-- */"
)
INNER_HINT = 'SELECT \'x=\' /* /*+ */ || reflect("java.lang.System","getProperty","user.dir") -- */\n AS s FROM t'

#: Queries whose normalised text has to give what the text itself gives.
QUERIES = [
    "SELECT id, 'it''s' AS a, \"say \"\"x\"\"\" AS b, 'a' 'b' AS c, 'tab\\there' AS d FROM source_1",
    "SELECT '\\u0041\\101\\U0001F600 \\%\\_\\z\\\\ \\0' AS a, 'line\nbreak' AS b, '\\\n' AS c FROM source_1",
    "SELECT id FROM source_1 WHERE s LIKE 'a\\_%' OR s LIKE 'x!%' ESCAPE '!' OR s RLIKE '^\\\\w+\\\\d$'",
    "SELECT regexp_extract(s, '([a-z]+)(\\\\d+)', 2) AS n, split(s, '\\\\d') AS parts FROM source_1",
    "SELECT id, -- one\n s /* two /* nested */ still */ FROM source_1",
    "SELECT /*+ BROADCAST(b), REPARTITION(2) */ a.id, b.s FROM source_1 a JOIN source_2 b ON a.id = b.id",
    "SELECT a.id, b.s FROM source_1 a LEFT ANTI JOIN source_2 b USING (id) CROSS JOIN (SELECT 1 AS s) b",
    (
        "SELECT id, sum(id) OVER (PARTITION BY id % 2 ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n, "
        "lag(s, 1, 'none') OVER w AS l FROM source_1 WINDOW w AS (ORDER BY id)"
    ),
    "WITH c(x, y) AS (SELECT id, s FROM source_1), d AS (SELECT x FROM c) SELECT c.y FROM c JOIN d ON c.x = d.x",
    "SELECT id, k, v FROM source_1 LATERAL VIEW OUTER explode(m) e AS k, v LATERAL VIEW posexplode(xs) p AS i, x",
    (
        "SELECT id, transform(xs, x -> x + id) AS t, aggregate(xs, 0, (a, x) -> a + x) AS g, "
        "filter(xs, (x, i) -> i > 0) AS f, map_filter(m, (k, v) -> v > 1) AS mf FROM source_1"
    ),
    "SELECT INTERVAL '1' DAY AS a, INTERVAL '1-2' YEAR TO MONTH AS b, INTERVAL 3 HOURS AS c, INTERVAL '5 days' AS d",
    (
        "SELECT ts + INTERVAL '1 02:03:04.5' DAY TO SECOND AS a, TIMESTAMP '2024-02-29 12:00:00' AS b, DATE "
        "'2024-01-31' + 1 AS c, TIMESTAMP_NTZ '2024-01-01 00:00:00' AS d, date_trunc('MONTH', ts) AS e FROM source_1"
    ),
    "SELECT 1.5BD AS a, 2L AS b, 3S AS c, 4Y AS d, 1e3 AS e, 1.5D AS f, .5 AS g, 7.F AS h, 12.34 AS i, 1E-2BD AS j",
    "SELECT CAST(d * 3 AS DECIMAL(12, 4)) AS a, d / 7 AS b, round(d, 1) AS c, d % 2 AS e FROM source_1",
    (
        "SELECT o.name AS a, o.`odd ``name` AS b, named_struct('x', id, 'y', array(1, 2)).y[0] AS c, m['a'] AS d, "
        "CAST(NULL AS ARRAY<STRUCT<a: INT, b: MAP<STRING, ARRAY<INT>>>>) AS e, xs[0] AS f FROM source_1"
    ),
    (
        "SELECT id <=> NULL AS a, id != 1 AS b, id <> 2 AS c, NOT (id == 1) AS d, ~id AS e, id ^ 1 AS f, id & 1 AS g, "
        "id << 1 AS h, -id - -1 AS i, s || '-' || s AS j, id::STRING AS k, 5 DIV 2 AS l FROM source_1"
    ),
    (
        "SELECT CASE WHEN id > 1 THEN 'big' WHEN id = 1 THEN 'one' ELSE NULL END AS a, IF(id > 1, 1, 2) AS b, "
        "id BETWEEN 1 AND 2 AS c, id IN (1, 2) AS d, s IS NOT NULL AS e, EXTRACT(YEAR FROM ts) AS f FROM source_1"
    ),
    (
        "SELECT id % 2 AS k, count(*) AS n, collect_list(s) FILTER (WHERE id > 0) AS l, grouping(id % 2) AS g "
        "FROM source_1 GROUP BY ROLLUP(id % 2) HAVING count(*) > 0 ORDER BY k NULLS LAST LIMIT 10"
    ),
    (
        "SELECT Name, percentile_cont(0.5) WITHIN GROUP (ORDER BY id) AS p FROM (SELECT id, s AS Name FROM source_1) "
        "GROUP BY Name ORDER BY Name"
    ),
    "SELECT * FROM (SELECT id, s FROM source_1) PIVOT (max(id) FOR s IN ('ab1' AS one, 'cd2'))",
    "SELECT * FROM (SELECT id, id + 1 AS b FROM source_1) UNPIVOT (v FOR n IN (id, b))",
    (
        "SELECT id FROM source_1 WHERE EXISTS (SELECT 1 FROM source_2 WHERE source_2.id = source_1.id) "
        "AND id >= (SELECT min(id) FROM source_2) AND id NOT IN (SELECT 99)"
    ),
    "SELECT id FROM source_1 UNION ALL (SELECT id FROM source_2 EXCEPT SELECT 1) INTERSECT SELECT id FROM source_1",
    "SELECT x, y FROM source_1, LATERAL (SELECT id + 1 AS x, id AS y), range(2) r, (VALUES (1), (2)) v(z) WHERE z = 1",
    (
        "SELECT from_json('{\"a\": [1, 2]}', 'a ARRAY<INT>').a[1] AS a, to_json(o) AS b, "
        "get_json_object('{\"x\":\"\\\\n\"}', '$.x') AS c FROM source_1"
    ),
    "SELECT X'1F' AS a, x'' AS b, hex(CAST('é' AS BINARY)) AS c, base64(encode(s, 'UTF-8')) AS d FROM source_1",
    "SELECT 1a1 AS a FROM (SELECT id AS 1a1 FROM source_1)",
    "SELECT window.start AS a, count(*) AS n FROM source_1 GROUP BY window(ts, '1 day') ORDER BY 1",
    "SELECT id\u00a0AS\u2003x FROM source_1",
]

#: Statements that a plan must not be made of; some of them no parser of Pennon's lets through.
REFUSED = [
    "SELECT TRANSFORM(s) USING 'cat' AS (s string) FROM source_1",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.dir') AS s FROM source_1",
    "SELECT try_reflect('java.lang.System', 'getProperty', 'user.dir') AS s FROM source_1",
    "SELECT upper(java_method('java.lang.System', 'getProperty', 'user.dir')) AS s FROM source_1",
    "SELECT id FROM source_1 WHERE id IN (SELECT length(reflect('java.lang.System', 'lineSeparator')) FROM source_1)",
    "SELECT current_user AS u, id FROM source_1",
    "SELECT user() AS u, id FROM source_1",
    "SELECT input_file_name() AS f FROM source_1",
    "SELECT scalar(id) AS f FROM source_1",
    "SELECT from_xml('<a/>', 'b STRING', map(concat('rowValidation', 'XSDPath'), '/etc/x')).b AS s FROM source_1",
    "SELECT from_json('', schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/x'))) AS s FROM source_1",
    "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file:///etc/x\"><a>&e;</a>', 'a') AS s FROM source_1",
    "SELECT `XPath`(s, 'a') AS s FROM source_1",
    "SELECT * FROM python_worker_logs()",
    "SELECT id FROM other",
    "SELECT id FROM source_1 JOIN stored USING (id)",
    "SELECT * FROM range(10000000000)",
    "SELECT * FROM parquet.`/etc/x`",
    "SELECT * FROM text.`{folder}/secret`",
    "INSERT OVERWRITE LOCAL DIRECTORY '{folder}/out' USING csv SELECT id FROM source_1",
    "FROM source_1 INSERT OVERWRITE LOCAL DIRECTORY '{folder}/out' USING csv SELECT id",
    "CREATE TEMPORARY VIEW z USING text OPTIONS (path '{folder}/secret')",
    "CREATE TABLE made USING csv LOCATION '{folder}/out' AS SELECT id FROM source_1",
    "CACHE TABLE c AS SELECT id FROM source_1",
    "SET spark.sql.runSQLOnFiles = true",
    "BEGIN CREATE TEMPORARY VIEW z AS SELECT 1; END",
    "EXPLAIN SELECT id FROM source_1",
    "SHOW TABLES",
    "DECLARE x INT",
]


def register_sources(spark: Any) -> None:
    """Make the sources of the queries known to a session."""
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW source_1 AS SELECT id, s, array(CAST(id AS INT), 5) AS xs, "
        "map('a', id) AS m, named_struct('name', s, 'odd `name', id) AS o, CAST(id AS DECIMAL(9, 2)) AS d, "
        "TIMESTAMP '2024-01-01 10:00:00' AS ts FROM VALUES (1L, 'ab1'), (2L, 'cd2'), (3L, 'a_b') AS v(id, s)"
    )
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW source_2 AS SELECT * FROM VALUES (1L, 'x'), (3L, 'y') AS v(id, s)")
