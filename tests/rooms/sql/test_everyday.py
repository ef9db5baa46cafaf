"""What people type on the first day, run on DuckDB: functions of the clock, of text, and their names."""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import pytest

from queryflux.sql.transpile import transpile


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT 1 AS id, DATE '2024-01-05' AS d, TIMESTAMP '2024-01-05 10:00:00' AS ts"
        )
        yield connection


def asked(engine: Any, source: str, text: str) -> Any:
    outcome = transpile(text, source, "duckdb", strict=True)
    assert outcome.sql is not None, outcome.message
    return engine.sql(outcome.sql)


@pytest.mark.parametrize(
    ("source", "text", "names", "types"),
    [
        ("postgres", "select now()", "now", "TIMESTAMP WITH TIME ZONE"),
        ("postgres", "select NOW()::date", "now", "DATE"),
        ("postgres", "select current_timestamp", "current_timestamp", "TIMESTAMP WITH TIME ZONE"),
        ("postgres", "select current_timestamp(3)", "current_timestamp", "TIMESTAMP WITH TIME ZONE"),
        ("postgres", "select current_date", "current_date", "DATE"),
        ("postgres", "select current_date as current_date", "current_date", "DATE"),
        ("postgres", "select id, current_date from t order by current_date", "id current_date", None),
        ("postgres", "select current_date from t group by current_date", "current_date", "DATE"),
        ("postgres", "select current_date union all select current_date", "current_date", "DATE"),
        ("postgres", "select * from (select current_date) q", "current_date", "DATE"),
        ("postgres", "with q as (select count(*) from t) select count from q", "count", "BIGINT"),
        ("postgres", "select current_time", "current_time", "TIME WITH TIME ZONE"),
        ("postgres", "select localtime, localtimestamp", "localtime localtimestamp", None),
        ("postgres", "select id, session_user from t", "id session_user", None),
        ("postgres", "select current_user, current_catalog", "current_user current_catalog", None),
        ("mysql", "select now()", "now()", "TIMESTAMP"),
        ("mysql", "select sysdate(), now(6)", "sysdate() now(6)", None),
        ("mysql", "select current_date", "current_date", "DATE"),
        ("mysql", "select curdate()", "curdate()", "DATE"),
        ("mysql", "select current_timestamp", "current_timestamp", "TIMESTAMP"),
        ("mysql", "select current_time", "current_time", "TIME"),
        ("mysql", "select utc_timestamp()", "utc_timestamp()", "TIMESTAMP"),
        ("mysql", "select id, session_user from t", "id session_user", None),
        ("mysql", "select user()", "user()", "VARCHAR"),
        ("trino", "select current_date", "_col0", "DATE"),
        ("trino", 'select current_date as "current_date"', "current_date", "DATE"),
        ("trino", "select now(), localtimestamp", "_col0 _col1", None),
    ],
)
def test_the_clock_and_the_user(engine: Any, source: str, text: str, names: str, types: str | None) -> None:
    answer = asked(engine, source, text)
    assert answer.columns == names.split()
    if types is not None:
        assert [str(kind) for kind in answer.types] == [types]
    assert answer.fetchall()


@pytest.mark.parametrize(
    ("source", "text", "kind", "value"),
    [
        ("mysql", "select 1 from dual", "INTEGER", 1),
        ("mysql", "select unix_timestamp('1970-01-02') - unix_timestamp('1970-01-01')", "BIGINT", 86400),
        ("mysql", "select unix_timestamp() > 1000", "BOOLEAN", True),
        ("mysql", "select substring_index('a.b.c', '.', 2)", "VARCHAR", "a.b"),
        ("mysql", "select substring_index('a.b.c', '.', -2)", "VARCHAR", "b.c"),
        ("mysql", "select timestampdiff(day, '2024-01-01', '2024-01-05')", "BIGINT", 4),
        ("mysql", "select timestampdiff(hour, '2024-01-01 00:30:00', '2024-01-01 02:00:00')", "BIGINT", 1),
        ("mysql", "select datediff('2024-01-05', '2024-01-01')", "BIGINT", 4),
        ("mysql", "select SQL_CALC_FOUND_ROWS id from t limit 1", "INTEGER", 1),
        ("mysql", "select sleep(0)", "INTEGER", 0),
        ("mysql", "select date_add(date '2024-01-31', interval 1 month)", "DATE", date(2024, 2, 29)),
        ("mysql", "select 1 / 0", "DOUBLE", None),
        ("postgres", "select encode('abc'::bytea, 'hex')", "VARCHAR", "616263"),
        ("postgres", "select encode('abc'::bytea, 'base64')", "VARCHAR", "YWJj"),
        ("postgres", "select decode('616263', 'hex')", "BLOB", b"abc"),
        ("postgres", "select json_build_object('a', 1)", "JSON", '{"a":1}'),
        ("postgres", "select clock_timestamp() > date '2020-01-01'", "BOOLEAN", True),
        (
            "postgres",
            "select date '2024-01-05' + interval '1 day'",
            "TIMESTAMP",
            datetime(2024, 1, 6),
        ),
        ("trino", "select count_if(id > 0) from t", "BIGINT", 1),
        ("trino", "select count_if(id > 0) over () from t", "BIGINT", 1),
        (
            "trino",
            "select at_timezone(timestamp '2024-01-01 00:00:00 UTC', 'Asia/Tokyo')",
            "TIMESTAMP",
            datetime(2024, 1, 1, 9),
        ),
        ("trino", "select current_timezone() <> ''", "BOOLEAN", True),
        ("trino", "select date '2024-01-05' + interval '1' day", "DATE", date(2024, 1, 6)),
        ("trino", "select date_add('day', 1, cast('2024-01-05' as date))", "DATE", date(2024, 1, 6)),
        (
            "trino",
            "select date_trunc('month', date_add('day', 1, date '2024-01-31'))",
            "DATE",
            date(2024, 2, 1),
        ),
        ("trino", "select date_add('hour', 1, ts) from t", "TIMESTAMP", datetime(2024, 1, 5, 11)),
        (
            "trino",
            "select date_diff('day', timestamp '2024-01-01 23:00:00', timestamp '2024-01-02 01:00:00')",
            "BIGINT",
            0,
        ),
    ],
)
def test_functions(engine: Any, source: str, text: str, kind: str, value: object) -> None:
    answer = asked(engine, source, text)
    assert [str(each) for each in answer.types] == [kind]
    assert answer.fetchall() == [(value,)]


@pytest.mark.parametrize("source", ["postgres", "trino"])
@pytest.mark.parametrize("text", ["select 1 / 0", "select 1.0 / 0", "select 1 % 0", "select id / 0 from t"])
def test_a_division_by_zero_is_the_engines_error(engine: Any, source: str, text: str) -> None:
    with pytest.raises(Exception, match="Division by zero"):
        asked(engine, source, text).fetchall()


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("trino", "explain (type distributed) select 1 as x", "EXPLAIN SELECT 1 AS x"),
        ("trino", "explain (type logical, format json) select 1 as x", "EXPLAIN SELECT 1 AS x"),
        ("postgres", "explain (analyze, costs off) select 1 as x", "EXPLAIN ANALYZE SELECT 1 AS x"),
        ("postgres", "explain(analyze off)select 1 as x", "EXPLAIN SELECT 1 AS x"),
        ("postgres", "explain (select 1 as x)", "EXPLAIN (SELECT 1 AS x)"),
    ],
)
def test_options_of_explain_are_left_out(source: str, text: str, expected: str) -> None:
    assert transpile(text, source, "duckdb", strict=True).sql == expected


def test_a_table_made_of_a_query_has_the_names_of_its_columns(engine: Any) -> None:
    outcome = transpile(
        "create table made as select id, count(*) from t group by 1", "postgres", "duckdb", True
    )
    engine.execute(outcome.sql)
    assert engine.sql("select * from made").columns == ["id", "count"]


def test_a_default_of_a_column(engine: Any) -> None:
    outcome = transpile(
        "create table dated (a int, noted timestamp default current_timestamp)", "postgres", "duckdb", True
    )
    engine.execute(outcome.sql)
    engine.execute("insert into dated (a) values (1)")
    assert engine.sql("select noted from dated").fetchall()[0][0] is not None
