"""Each pair of dialects, construct by construct, and the TPC-H queries run on DuckDB in every spelling."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlglot

from queryflux.sql.transpile import transpile

QUERIES = sorted((Path(__file__).parents[2] / "fixtures" / "tpch").glob("*.sql"))
PAIRS = [
    ("postgres", "duckdb"),
    ("postgres", "trino"),
    ("mysql", "duckdb"),
    ("trino", "duckdb"),
    ("trino", "postgres"),
    ("mysql", "postgres"),
]

CASES = [
    ("postgres", "duckdb", "select count(*)", 'SELECT COUNT(*) AS "count"'),
    ("postgres", "duckdb", "select 7 / 2 as x", "SELECT 7 // 2 AS x"),
    ("postgres", "duckdb", r"select E'a\n''b' as x", "SELECT 'a\n''b' AS x"),
    ("postgres", "duckdb", "select x::numeric as x", "SELECT CAST(x AS DECIMAL(38, 10)) AS x"),
    ("postgres", "duckdb", "select x::varchar(3) as x", "SELECT LEFT(CAST(x AS TEXT), 3) AS x"),
    ("postgres", "duckdb", "select a || b as x, s ilike 'x' as y", "SELECT a || b AS x, s ILIKE 'x' AS y"),
    ("postgres", "duckdb", "select $2, $1 limit $3", 'SELECT $2 AS "?column?", $1 AS "?column?" LIMIT $3'),
    ("postgres", "duckdb", "select 7/2 as x where 1 in ($1,$2)", "SELECT 7 // 2 AS x WHERE 1 IN ($1, $2)"),
    ("postgres", "duckdb", "select f($1,$1,7/2) as x", "SELECT F($1, $1, 7 // 2) AS x"),
    (
        "postgres",
        "duckdb",
        "select $1::int,$2::jsonb",
        'SELECT CAST($1 AS INT) AS "int4", CAST($2 AS JSON) AS "jsonb"',
    ),
    (
        "postgres",
        "duckdb",
        "select $1+$2 as x, $1||$2||$$,$1$$ as y",
        "SELECT $1 + $2 AS x, $1 || $2 || ',$1' AS y",
    ),
    (
        "postgres",
        "duckdb",
        "values ($1,$2),($3,$4)",
        "SELECT * FROM (VALUES ($1, $2), ($3, $4)) AS _values(column1, column2)",
    ),
    (
        "postgres",
        "trino",
        "select now() + '1 day 2 hours'::interval as x",
        "SELECT CURRENT_TIMESTAMP + (INTERVAL '1' DAY + INTERVAL '2' HOUR) AS x",
    ),
    ("postgres", "trino", "select current_date - 5 as x", "SELECT CURRENT_DATE - INTERVAL '5' DAY AS x"),
    ("postgres", "trino", "select extract(dow from d) as x", "SELECT (EXTRACT(DOW FROM d) % 7) AS x"),
    ("postgres", "trino", "select s ~* 'a' as x", "SELECT REGEXP_LIKE(s, '(?i)' || 'a') AS x"),
    ("postgres", "trino", "select a is true as x", "SELECT a IS NOT DISTINCT FROM TRUE AS x"),
    ("postgres", "trino", "select a from t limit 5 offset 3", "SELECT a FROM t OFFSET 3 LIMIT 5"),
    ("postgres", "trino", r"select e'\'' as x", "SELECT '''' AS x"),
    ("postgres", "trino", "select $1::int as x", "SELECT CAST($1 AS INTEGER) AS x"),
    ("postgres", "trino", "explain analyze select 1 as x", "EXPLAIN ANALYZE SELECT 1 AS x"),
    ("mysql", "duckdb", 'select `a``b`, "c" c from `d`.`t`', 'SELECT "a`b", \'c\' AS c FROM "d"."t"'),
    ("mysql", "duckdb", "select a / b from t", 'SELECT a / NULLIF(b, 0) AS "a / b" FROM t'),
    ("mysql", "duckdb", "select a || b from t", 'SELECT a OR b AS "a || b" FROM t'),
    ("mysql", "duckdb", "select ? from t limit ?", 'SELECT $1 AS "?" FROM t LIMIT $2'),
    ("mysql", "duckdb", "select a from t limit 3, 5", "SELECT a FROM t LIMIT 5 OFFSET 3"),
    ("mysql", "duckdb", "select weekday(d), dayofweek(d)", None),
    ("mysql", "postgres", "select cast(a as char), _utf8'x', N'y'", None),
    ("mysql", "postgres", "select cast(a as char) x, _utf8'x' y", "SELECT CAST(a AS TEXT) AS x, 'x' AS y"),
    (
        "mysql",
        "duckdb",
        "select count( * ),max(a) m from t",
        'SELECT COUNT(*) AS "count( * )", MAX(a) AS m FROM t',
    ),
    (
        "mysql",
        "duckdb",
        "select distinct concat(a, ', ', b)",
        "SELECT DISTINCT a || ', ' || b AS \"concat(a, ', ', b)\"",
    ),
    ("mysql", "postgres", "select a / b x from t", "SELECT 1.0 * (a) / NULLIF(b, 0) AS x FROM t"),
    (
        "mysql",
        "postgres",
        "select year(d) x from t",
        "SELECT CAST(EXTRACT(YEAR FROM CAST(d AS DATE)) AS BIGINT) AS x FROM t",
    ),
    ("mysql", "trino", "select max(b) as a from t group by a", "SELECT MAX(b) AS a FROM t GROUP BY a"),
    ("mysql", "trino", "select b + 1 as a from t group by a", "SELECT b + 1 AS a FROM t GROUP BY b + 1"),
    ("mysql", "postgres", "select a from t group by a with rollup", "SELECT a FROM t GROUP BY ROLLUP (a)"),
    ("trino", "duckdb", "select 1 + 1, a from t", 'SELECT 1 + 1 AS "_col0", a FROM t'),
    ("trino", "duckdb", "select cast(a as decimal) x", "SELECT CAST(a AS DECIMAL(38, 0)) AS x"),
    ("trino", "duckdb", "select decimal '12.50' x", "SELECT CAST('12.50' AS DECIMAL(4, 2)) AS x"),
    ("trino", "duckdb", "select a from t offset 3 limit 5", "SELECT a FROM t LIMIT 5 OFFSET 3"),
    (
        "trino",
        "postgres",
        "select year(d) x from t",
        "SELECT CAST(EXTRACT(YEAR FROM d) AS BIGINT) AS x FROM t",
    ),
    ("trino", "postgres", "select day_of_week(d) x", "SELECT CAST(EXTRACT(ISODOW FROM d) AS BIGINT) AS x"),
    ("trino", "postgres", "select a from t where b = ?", "SELECT a FROM t WHERE b = $1"),
]


@pytest.mark.parametrize(("source", "target", "text", "expected"), CASES)
def test_constructs(source: str, target: str, text: str, expected: str | None) -> None:
    outcome = transpile(text, source, target, strict=True)
    assert outcome.sql is not None, outcome.message
    if expected is not None:
        assert outcome.sql == expected


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("query", QUERIES, ids=lambda path: path.stem)
def test_tpch_translates_to_text_that_the_target_reads(query: Path, source: str, target: str) -> None:
    outcome = transpile(query.read_text(), source, target, strict=True)
    assert outcome.sql is not None, outcome.message
    again = sqlglot.transpile(
        outcome.sql, read=target, write=target, unsupported_level=sqlglot.ErrorLevel.RAISE
    )
    assert again == [outcome.sql]


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    duckdb = pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).with_name("tpchgen-cli")
    if not generator.exists():
        pytest.skip("tpchgen-cli is not installed")
    subprocess.run(
        [generator, "parquet", "-s", "0.01", f"--output-dir={folder}"], check=True, capture_output=True
    )
    with duckdb.connect() as connection:
        for table in folder.glob("*.parquet"):
            connection.execute(f"CREATE TABLE {table.stem} AS SELECT * FROM '{table}'")
        yield connection


@pytest.mark.parametrize("source", ["postgres", "trino", "mysql"])
@pytest.mark.parametrize("query", QUERIES, ids=lambda path: path.stem)
def test_tpch_gives_the_same_rows_and_types_on_duckdb(tpch: Any, query: Path, source: str) -> None:
    text = query.read_text()
    outcome = transpile(text, source, "duckdb", strict=True)
    assert outcome.sql is not None
    wanted, found = tpch.sql(text).arrow().read_all(), tpch.sql(outcome.sql).arrow().read_all()
    assert found.schema == wanted.schema
    assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize(
    ("source", "text", "value"),
    [
        ("postgres", "select 7 / 2 as x", 3),
        ("postgres", "select -7 / 2 as x", -3),
        ("postgres", "select 7 / 2.0 as x", 3.5),
        ("postgres", "select a / b as x from (values (-7, 2)) as t(a, b)", -3),
        ("postgres", "select a / b as x from (values (-7.5, 2)) as t(a, b)", -3.75),
        ("trino", "select a / b / 2 as x from (values (15, 2)) as t(a, b)", 3),
        ("postgres", "select extract(hour from interval '3 hours' / 3) as x", 1),
        ("postgres", "select extract(dow from date '2024-01-07') as x", 0),
        ("postgres", "select 'abcdef'::varchar(3) as x", "abc"),
        ("postgres", "select substring('foobar' from 'o(.)b') as x", "o"),
        ("trino", "select day_of_week(date '2024-01-07') as x", 7),
        ("trino", "select extract(dow from date '2024-01-07') as x", 7),
        ("mysql", "select weekday(date '2024-01-07') as x", 6),
        ("mysql", "select dayofweek(date '2024-01-07') as x", 1),
        ("mysql", "select 7 / 2 as x", 3.5),
        ("mysql", "select 7 / 0 as x", None),
        ("mysql", "select 7 div 2 as x", 3),
        ("mysql", "select field('b', 'a', 'b') as x", 2),
    ],
)
def test_values_on_duckdb(tpch: Any, source: str, text: str, value: object) -> None:
    outcome = transpile(text, source, "duckdb", strict=True)
    assert outcome.sql is not None, outcome.message
    assert tpch.sql(outcome.sql).fetchall()[0][0] == value
