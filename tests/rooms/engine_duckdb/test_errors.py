"""DuckDB's errors in our words."""

from collections.abc import Iterator

import duckdb
import pytest

from queryflux.engines.duckdb.errors import translate
from queryflux.model.errors import EngineError

SQL = "SELECT a,\n  nope FROM t"
PROSE = 'Binder Error: Referenced column "nope" not found\n\nLINE 2:   nope FROM t\n          ^'
JSON = (
    'Binder Error: {"exception_type":"Binder","exception_message":"Referenced column \\"nope\\" not found'
    '\\n\\nLINE 2:   nope FROM t\\n          ^"%s}'
)


@pytest.mark.parametrize("text", [PROSE, JSON % "", JSON % ',"position":"12"'])
def test_the_picture_of_the_line_becomes_a_position(text: str) -> None:
    error = translate(duckdb.BinderException(text), SQL)
    assert isinstance(error, EngineError)
    assert (error.message, error.hint) == ('Referenced column "nope" not found', "")
    assert error.position == 12


@pytest.fixture(scope="module")
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"errors_as_json": "true"}) as connection:
        connection.execute("create table k (a int primary key, b int not null check (b > 0))")
        connection.execute("create table r (a int references k (a))")
        connection.execute("insert into k values (1, 1)")
        connection.execute("create schema s1")
        yield connection


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("select 'a'::int", "22P02"),
        ("select a from k where a = 'x'", "22P02"),
        ("select 'maybe'::bool", "22P02"),
        ("select 'x'::uuid", "22P02"),
        ("select '{'::json", "22P02"),
        ("select 'x'::date", "22007"),
        ("select '2020-02-30'::date", "22008"),
        ("select 2147483647::int + 1::int", "22003"),
        ("select 99999999999::int", "22003"),
        ("select '99999999999'::int", "22003"),
        ("select 12345::decimal(3,1)", "22003"),
        ("select [1]::int", "42846"),
        ("select a from k one, k two", "42702"),
        ("select k.nope from k", "42703"),
        ("insert into k (nope) values (1)", "42703"),
        ("select a, count(*) from k", "42803"),
        ("select sum(sum(a)) from k", "42803"),
        ("insert into k values (1, 1)", "23505"),
        ("insert into k values (2, null)", "23502"),
        ("insert into k values (2, -1)", "23514"),
        ("insert into r values (9)", "23503"),
        ("select nextval('nope')", "42P01"),
        ("drop table nope", "42P01"),
        ("create table k (a int)", "42P07"),
        ("create schema s1", "42P06"),
        ("alter table r add column a int", "42701"),
        ("select 'z'::nope", "42704"),
        ("drop view k", "42809"),
        ("select nope(1)", "42883"),
        ("select (select * from range(2))", "21000"),
        ("with x as (select 1), x as (select 2) select * from x", "42712"),
    ],
)
def test_states_are_postgresqls(cursor: duckdb.DuckDBPyConnection, sql: str, state: str) -> None:
    with pytest.raises(duckdb.Error) as raised:
        cursor.execute(sql).fetchall()
    error = translate(raised.value, sql)
    assert isinstance(error, EngineError)
    assert error.sqlstate == state, error.message
