"""Types of parameters that DuckDB's binder leaves open."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from queryflux.engines.duckdb.parameters import LONGEST_TRIED, MOST_TRIED, Guesses, bind_values, settle
from queryflux.engines.duckdb.seam import Bound, bind
from queryflux.model.statement import Parameter


@pytest.fixture(scope="module")
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("create table t(n bigint, price decimal(10,2), f double, d date, s varchar)")
        yield connection


@pytest.mark.parametrize(
    ("sql", "parameters", "columns"),
    [
        ("select n + $1 from t", "BIGINT", "BIGINT"),
        ("select ? + n from t", "BIGINT", "BIGINT"),
        ("select price * $1 from t", "DECIMAL(18,3)", "DECIMAL(11,2)"),
        ("select f * $1 from t", "DOUBLE", "DOUBLE"),
        ("select s from t where price * $1 > 5", "DECIMAL(18,3)", "VARCHAR"),
        ("select round(price, $1) from t", "INTEGER", "DECIMAL(10,1)"),
        ("select n from t where n = any($1)", "BIGINT[]", "BIGINT"),
        ("select n from t where d > $1 - interval 1 day", "TIMESTAMP", "BIGINT"),
        ("select $1, s || $2 from t", "VARCHAR VARCHAR", "VARCHAR VARCHAR"),
        ("select extract(year from $1::date)", "DATE", "BIGINT"),
        (
            "select $1::date, n + $2, $3::uuid, '$9' from t -- $9",
            "DATE BIGINT UUID",
            "DATE BIGINT UUID VARCHAR",
        ),
        ("insert into t(n) values ($1)", "BIGINT", "BIGINT"),
    ],
)
def test_types(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: str, columns: str) -> None:
    kinds, bound = settle(lambda text, values: bind(cursor, text, values), sql)
    assert (list(map(str, kinds)), list(map(str, bound.types))) == (parameters.split(), columns.split())


@pytest.mark.parametrize(
    ("sql", "declared", "parameters", "columns"),
    [
        ("select $1", ["integer"], "INTEGER", "INTEGER"),
        ("select $1", ["numeric"], "DECIMAL(18,3)", "DECIMAL(1,0)"),
        ("select n + $1 from t", ["double precision"], "DOUBLE", "DOUBLE"),
        ("select n + $1, $2 from t", ["", "date"], "BIGINT DATE", "BIGINT DATE"),
        ("select coalesce(n, $1) from t", ["double precision"], "BIGINT", "DOUBLE"),
        ("select $1::date", ["text"], "DATE", "DATE"),
        ("select $1", ["uuid"], "UUID", "UUID"),
        ("select $1", ["json"], "JSON", "JSON"),
        ("select $1", ["bytea"], "BLOB", "BLOB"),
        ("select $1", ["time without time zone"], "TIME", "TIME"),
        ("select $1", ["money"], "VARCHAR", "VARCHAR"),
        ("select round(price, $1) from t", ["bigint"], "INTEGER", "DECIMAL(10,1)"),
        ("select n + $1 from t", ["bigint", "text"], "BIGINT", "BIGINT"),
    ],
)
def test_types_that_the_client_has_named(
    cursor: duckdb.DuckDBPyConnection, sql: str, declared: list[str], parameters: str, columns: str
) -> None:
    kinds, bound = settle(lambda text, values: bind(cursor, text, values), sql, declared)
    assert (list(map(str, kinds)), list(map(str, bound.types))) == (parameters.split(), columns.split())


def test_a_moment_that_the_client_has_named(cursor: duckdb.DuckDBPyConnection) -> None:
    _, bound = settle(
        lambda text, values: bind(cursor, text, values), "select $1", ["timestamp with time zone"]
    )
    assert list(map(str, bound.types)) == ["TIMESTAMP WITH TIME ZONE"]


def test_names_are_those_of_the_statement(cursor: duckdb.DuckDBPyConnection) -> None:
    _, bound = settle(lambda text, values: bind(cursor, text, values), "select n + $1 from t")
    assert bound.names == ["(n + $1)"]


class Counting:
    """Binds, and counts."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.asked = 0

    def __call__(self, text: str, values: list[Any] | None) -> Bound:
        self.asked += 1
        return bind(self.cursor, text, values)


def test_very_many_are_not_tried(cursor: duckdb.DuckDBPyConnection) -> None:
    counting = Counting(cursor)
    many = ", ".join(f"${number + 1}" for number in range(MOST_TRIED + 1))
    kinds, _ = settle(counting, f"select {many}")
    assert (len(kinds), counting.asked) == (MOST_TRIED + 1, 2)


def test_those_of_a_long_text_are_not_tried(cursor: duckdb.DuckDBPyConnection) -> None:
    counting = Counting(cursor)
    kinds, bound = settle(counting, f"select n + $1 from t where s <> '{'x' * LONGEST_TRIED}'")
    assert (list(map(str, kinds)), list(map(str, bound.types)), counting.asked) == (
        ["UNKNOWN"],
        ["BIGINT"],
        2,
    )


def test_what_was_found_is_remembered() -> None:
    with duckdb.connect() as other:
        counting, guesses = Counting(other), Guesses()
        for kind in ("bigint", "double"):
            other.execute(f"create or replace table t as select 7::{kind} as n")
            first = settle(counting, "select n + $1, $2 from t", (), guesses)
            assert str(first[0][0]) in (kind.upper(), "DECIMAL(18,3)")
            counting.asked = 0
            again = settle(counting, "select n + $1, $2 from t", (), guesses)
            assert (again[0], again[1].types, counting.asked) == (first[0], first[1].types, 3)


def test_what_does_not_bind(cursor: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.BinderException):
        settle(lambda text, values: bind(cursor, text, values), "select n + $1, nothing from t")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select $1::date::text", "2020-01-02"),
        ("select $1::timestamp::text", "2020-01-02 00:00:00"),
        ("select ($1::timestamptz at time zone 'UTC')::text", "2020-01-01 22:00:00"),
        ("select min(d)::text from (select date '2020-01-02' as d) where d = $1", "2020-01-02"),
        ("select $1", "2020-01-02 +02"),
        ("select $1::text", "2020-01-02 +02"),
    ],
)
def test_a_date_with_a_zone(cursor: duckdb.DuckDBPyConnection, sql: str, expected: str) -> None:
    def kinds() -> list[object]:
        return settle(lambda text, values: bind(cursor, text, values), sql)[0]

    values = bind_values((Parameter("2020-01-02 +02"),), kinds)
    assert cursor.execute(sql, values).fetchone() == (expected,)
