"""What people type on the first day, run on DuckDB: functions of the clock, the user, and their names."""

from collections.abc import Iterator
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


def test_a_default_of_a_column(engine: Any) -> None:
    outcome = transpile(
        "create table dated (a int, noted timestamp default current_timestamp)", "postgres", "duckdb", True
    )
    engine.execute(outcome.sql)
    engine.execute("insert into dated (a) values (1)")
    assert engine.sql("select noted from dated").fetchall()[0][0] is not None
