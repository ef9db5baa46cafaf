"""Functions that DuckDB has under the same name with another answer: what the client's own engine says, word
for word, asked of DuckDB. tests/system/test_translated_answers.py does the same on PostgreSQL and Trino."""

from collections.abc import Iterator
from typing import Any

import pytest

from queryflux.sql.transpile import transpile

POSTGRES = [
    (
        "select 'abc' similar to 'a%', 'abc' not similar to '(b|c)%', 'abc' similar to 'a.c'",
        (True, True, False),
    ),
    (
        "select 'a%' similar to 'a\\%', 'a%' similar to 'a!%' escape '!', 'ab' similar to 'a[a-c]'",
        (True,) * 3,
    ),
    (
        "select 'a_c' like 'a\\_c', 'abc' like 'a\\_c', 'A%' ilike 'a\\%', 'axc' like 'a\\xc'",
        (True, False, True, True),
    ),
    (
        "select regexp_match('foobarbeque', '(bar)(beque)'), regexp_match('abc', 'x')",
        (["bar", "beque"], None),
    ),
    ("select (regexp_match('foobar', 'o(b)'))[1], regexp_match('ABC', 'b', 'i')", ("b", ["B"])),
    ("select regexp_matches('abc', '(a)(b)')", (["a", "b"],)),
    (
        "select format('%s-%s', 1, 2), format('%s, %1$s %I %L', 'a', 'b c', 'x''y')",
        ("1-2", "a, a \"b c\" 'x''y'"),
    ),
    (
        "select format('%5s|%-5s|', 'a', 'b')",
        ("    a|b    |",),
    ),
    ("select format('%s%%', 5), format('%s', null), format('%L', null)", ("5%", "", "NULL")),
    (
        "select to_char(date '2020-01-05', 'Mon DD, YYYY'), to_char(date '2020-01-05', 'Day|FMMonth')",
        ("Jan 05, 2020", "Sunday   |January"),
    ),
    (
        "select to_char(date '2020-01-05', 'D ID DDD IW Q'), to_char(date '2020-01-05', 'MON mon DY month|')",
        ("1 7 005 01 1", "JAN jan SUN january  |"),
    ),
    (
        "select to_char(timestamp '2020-01-05 15:04:05', 'HH12:MI AM, HH24hMI, FMDD/FMMM \"of\" YY')",
        ("03:04 PM, 15h04, 5/1 of 20",),
    ),
    ("select to_date('05 Jan 2020', 'DD Mon YYYY')", ("2020-01-05",)),
    ("select b'101', x'1F'", ("101", "00011111")),
    ("select current_timestamp(0) = date_trunc('second', current_timestamp(0))", ("True",)),
    (
        "select extract(second from x), extract(milliseconds from x)"
        " from (select timestamp '2020-01-01 00:00:01.5' as x) q",
        ("1.500000", "1500.000"),
    ),
    (
        "select substr('hello', -1, 3), substring('hello', 0, 3), div(7, 2), div(-7, 2)",
        ("h", "he", "3", "-3"),
    ),
    ("select date_trunc('month', date '2020-01-31')", ("2020-01-01 00:00:00+00:00",)),
    ("select bool_and(true), every(true)", ("True", "True")),
    ("select '{1,2}'::int[], '{a,\"b c\",NULL}'::text[]", ([1, 2], ["a", "b c", None])),
    ("select 1 = any('{1,2}'::int[]), 'b' <> all('{a,b}'::text[])", (True, False)),
    ("select to_hex(255), array_length(array[]::int[], 1), '\\x6162'::bytea", ("ff", None, b"ab")),
    ("select to_timestamp('2020-01-05', 'YYYY-MM-DD') = timestamptz '2020-01-05'", (True,)),
]
TRINO = [
    ("select regexp_replace('foobar', '(o)(b)', '$2$1'), regexp_replace('a', 'a', '\\$1')", ("foboar", "$1")),
    ("select regexp_extract('abc', 'x'), regexp_extract('ab1', '([a-z]+)([0-9])', 2)", (None, "1")),
    ("select 'a\\c' like 'a\\c'", (True,)),
    (
        "select substr('hello', 0), substr('hello', 0, 2), substring('hello', -3), substring('ab', -3)",
        ("", "", "llo", ""),
    ),
    (
        "select slice(array[1,2,3,4], 2, 2), slice(array[1,2,3], -2, 2), array_position(array[1,2], 9)",
        ("[2, 3]", "[2, 3]", "0"),
    ),
    (
        "select json_value('{\"a\":\"x\"}', 'lax $.a'), json_query('{\"a\":[1]}', 'lax $.a')",
        ("x", "[1]"),
    ),
    (
        "select json_exists('{\"a\":1}', 'lax $.b'), json_exists('{\"a\":1}', 'lax $.a')",
        ("False", "True"),
    ),
    (
        "select is_nan(nan()), infinity(), -infinity(), is_infinite(infinity()), is_finite(1e0)",
        ("True", "inf", "-inf", "True", "True"),
    ),
    ("select millisecond(timestamp '2020-01-01 00:00:01.5'), every(true)", ("500", "True")),
    ("select current_timestamp(0) = date_trunc('second', current_timestamp(0))", ("True",)),
    ("select split_part('a,b', ',', 5), split_part('a,,b', ',', 2), to_base(255, 16)", (None, "", "ff")),
    ("select format('%s-%05d-%.2f', 'a', 5, 1.5e0), format('%s %s', 1, true)", ("a-00005-1.50", "1 true")),
]
MYSQL = [
    ("select 'a_c' like 'a\\_c', 'abc' like 'a\\_c', 'a\\\\c' like 'a\\\\\\\\c'", (True, False, True)),
    ("select length('é'), char_length('é')", ("2", "1")),
    (
        "select week('2020-01-01'), week('2020-01-05'), week('2020-01-05', 1), week('2018-12-31', 1)",
        ("0", "1", "1", "53"),
    ),
    (
        "select week('2021-01-02'), week('2021-01-02', 1), week('2020-01-05', 5), week('2020-01-05', 3)",
        ("0", "0", "0", "1"),
    ),
    (
        "select date_add('2020-01-01', interval 1 month), date_add('2020-01-01 10:00:00', interval 1 month)",
        ("2020-02-01", "2020-02-01 10:00:00"),
    ),
    (
        "select '2020-01-01' + interval 1 day, date_add('2020-01-01', interval 1 hour)",
        ("2020-01-02", "2020-01-01 01:00:00"),
    ),
    ("select 7.5 div 2, -7 div 2, 5 div 0, 5 % 0, mod(5, 3)", ("3", "-3", "None", "None", "2")),
    ("select substring('hello', 0, 2), substring('hello', -3, 2), substring('ab', -3)", ("", "ll", "")),
    (
        "select to_days('2020-01-01'), from_unixtime(86400, '%Y-%m')",
        ("737790", "1970-01"),
    ),
    (
        "select microsecond('2020-01-01 00:00:01.123456')",
        ("123456",),
    ),
    ("select length(cast(now() as char)), length(cast(now(3) as char)) <= 23", ("19", True)),
    ("select '1.5' * 2, 2 + '5', timestampadd(day, 1, '2020-01-01')", (3.0, 7.0, "2020-01-02")),
    ("select json_value('{\"a\":\"x\"}', '$.a')", ("x",)),
]
ALL = [
    *[("postgres", *case) for case in POSTGRES],
    *[("trino", *case) for case in TRINO],
    *[("mysql", *case) for case in MYSQL],
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM "
            "(VALUES (1, 'alpha', DATE '2020-01-31'), (2, 'Beta', NULL)) v(id, s, d)"
        )
        yield connection


def asked(engine: Any, source: str, text: str) -> Any:
    outcome = transpile(text, source, "duckdb", strict=True)
    assert outcome.sql is not None, outcome.message
    return engine.sql(outcome.sql)


@pytest.mark.parametrize(("source", "text", "row"), ALL)
def test_a_row(engine: Any, source: str, text: str, row: tuple[object, ...]) -> None:
    (found,) = asked(engine, source, text).fetchall()
    assert [str(value) for value in found] == [str(value) for value in row]


@pytest.mark.parametrize(
    ("source", "text", "rows"),
    [
        ("postgres", "select regexp_matches('abc', 'x')", []),
        ("postgres", "select id, regexp_matches(s, 'a') from t", [(1, ["a"]), (2, ["a"])]),
        ("postgres", "select regexp_matches('foobarbaz', 'ba.', 'g')", [(["bar"],), (["baz"],)]),
        ("postgres", "select regexp_matches('foobarbaz', 'b(a)(.)', 'g')", [(["a", "r"],), (["a", "z"],)]),
        ("postgres", "values (1, 'a'), (2, 'b') order by 1 desc", [(2, "b"), (1, "a")]),
        ("postgres", "select column2 from (values (1, 'a')) v", [("a",)]),
        ("postgres", "with v as (values (1)) select column1 from v", [(1,)]),
        ("postgres", "select id from t where id in (values (1), (3))", [(1,)]),
        ("trino", "select * from (values (1, 'a'))", [(1, "a")]),
        ("trino", "values 1, 2", [(1,), (2,)]),
        ("trino", "select x from (values 2, 1, 1) v(x) order by x fetch first row with ties", [(1,), (1,)]),
        ("postgres", "select s from t where s similar to '%(a|e)_*' order by id", [("alpha",), ("Beta",)]),
    ],
)
def test_rows(engine: Any, source: str, text: str, rows: list[tuple[object, ...]]) -> None:
    assert asked(engine, source, text).fetchall() == rows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select generate_series(1, 3), unnest(array[1])", "generate_series unnest"),
        ("select ceiling(2.1), power(2, 3), strpos('é', 'b'), lpad('a', 3)", "ceiling power strpos lpad"),
        ("select trim('x'), ltrim('x'), trim(leading 'x' from 'xa'), mod(7, 3)", "btrim ltrim ltrim mod"),
        ("select true::int, 1::bool, '1.5'::numeric, 2.5::float8::int", "int4 bool numeric int4"),
        ("select case when id = 1 then 1 else id end, (array[1, 2])[1] from t", "id array"),
        ("select bit_and(id), var_pop(id), interval '1 day' from t", "bit_and var_pop interval"),
        ("select * from (select ceiling(id) from t) q", "ceiling"),
        ("values (1, 'a'), (2, 'b')", "column1 column2"),
    ],
)
def test_columns_of_postgresql_clients(engine: Any, text: str, names: str) -> None:
    assert asked(engine, "postgres", text).columns == names.split()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("trino", "select strpos('abcb', 'b', 2)"),
        ("trino", "select split('a,b,c', ',', 2)"),
        ("postgres", "select to_char(date '2020-01-05', 'WW')"),
        ("postgres", "select regexp_matches(s, s) from t"),
    ],
)
def test_what_duckdb_cannot_do_is_an_error_not_another_answer(engine: Any, source: str, text: str) -> None:
    with pytest.raises(Exception, match=r"does not exist|No function matches"):
        asked(engine, source, text).fetchall()


@pytest.mark.parametrize(
    ("source", "target", "call"),
    [
        ("mysql", "postgres", "substring(%s, -3)"),
        ("mysql", "duckdb", "greatest(%s, 1)"),
        ("mysql", "duckdb", "locate('a', %s, 2)"),
        ("trino", "duckdb", "regexp_extract(%s, 'a')"),
        ("postgres", "duckdb", "initcap(%s)"),
        ("postgres", "trino", "split_part(%s, 'a', 2)"),
    ],
)
def test_calls_within_calls_do_not_grow_without_end(source: str, target: str, call: str) -> None:
    text = "s"
    for _ in range(30):
        text = call % text
    assert transpile(f"select {text}", source, target, False).message == "the statement is nested too deeply"
    few = call % "s"
    assert transpile(f"select {few}", source, target, False).sql is not None
