"""The same question to the client's own engine and, translated, to another: the same answer.

PostgreSQL's statements on Trino, and Trino's on PostgreSQL. MySQL's have their answers written beside them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trino

from queryflux.sql.transpile import transpile
from tests.kit import trino as trino_kit
from tests.kit.postgres import PostgresServer, shared_server

Ask = Callable[[str], tuple[list[str], list[Any]]]

_TABLE = "with t(id, b, s) as (values (1, true, 'x'), (2, false, 'y'), (3, true, 'z'), (4, false, 'w')) "
POSTGRES = [
    "select 'abc' similar to 'a%', 'abc' not similar to '(b|c)%', 'abc' similar to 'a.c'",
    "select 'a_c' like 'a\\_c', 'abc' like 'a\\_c', 'axc' like 'a\\xc'",
    "select regexp_match('foobarbeque', '(bar)(beque)'), regexp_match('abc', 'x')",
    "select regexp_match('ABC', 'b', 'i'), (regexp_match('foobar', 'o(b)'))[1] as x",
    "select regexp_replace('foobar', 'o', 'x'), regexp_replace('foobar', '(o)(b)', '\\2\\1')",
    "select regexp_replace('foobar', 'o', 'x', 'g'), regexp_replace('FOO', 'o', 'x', 'gi')",
    "select regexp_replace('a$b', '\\$', '$$'), regexp_replace('foobar', '^f', 'x')",
    "select to_char(date '2020-01-05', 'Mon DD, YYYY'), to_char(date '2020-01-05', 'Day|FMMonth')",
    "select to_char(date '2020-01-05', 'D ID DDD IW Q'), to_char(date '2020-01-05', 'MON mon DY month|')",
    "select to_char(timestamp '2020-01-05 15:04:05', 'HH12:MI AM, HH24hMI, FMDD/FMMM \"of\" YY')",
    "select to_date('05 Jan 2020', 'DD Mon YYYY')",
    "select current_timestamp(0) = date_trunc('second', current_timestamp(0))",
    "select b'101', x'1F', div(7, 2), round(2.345, 2), trunc(2.789, 1)",
    "select timestamp '2020-01-01 10:00' at time zone 'Asia/Tokyo' = timestamptz '2020-01-01 01:00:00 UTC'",
    "select timestamptz '2020-01-01 10:00:00+00' at time zone 'Asia/Tokyo'",
    "select greatest(1, null, 3), least(1, null, 3), repeat('ab', 3), left('hello', -2), right('hello', -2)",
    "select right('ab', 5), substr('hello', -1, 3), substring('hello', 0, 3), trim(E'\\ta ')",
    "select date '2020-01-31' + interval '1 month', date '2020-01-31' - date '2020-01-01'",
    "select date_trunc('month', date '2020-01-31')",
    "select generate_series(1, 3)",
    "select generate_series(1, 2) as n, unnest(array['a', 'b'])",
    "values (1, 'a'), (2, 'b') order by 1 desc",
    "select column2 from (values (1, 'a')) v",
    _TABLE + "select distinct on (b) b, id from t order by b, id desc",
    _TABLE + "select distinct on (b) id, s as x from t order by b desc, x desc limit 1",
    _TABLE + "select distinct on (b) b as k, id * 2 from t order by k, 2",
    _TABLE + "select id, generate_series(1, 2) from t order by 1, 2",
    _TABLE + "select id from t where id = any(array[1, 3]) order by id",
    _TABLE + "select id from t where id <> all(array[1, 3]) order by id",
    _TABLE + "select string_agg(s, ',' order by id), string_agg(distinct s, '-' order by s) from t",
    _TABLE + "select lower(s) as k, count(*) from t group by k order by k",
    "select '{1,2}'::int[], '{a,\"b c\",NULL}'::text[]",
    "select 1 = any('{1,2}'::int[]), 'b' <> all('{a,b}'::text[])",
    "select * from generate_series(1, 2)",
    "select * from unnest(array[1, 2])",
    "select split_part('a,b', ',', 5), array_length(array[]::int[], 1), array_position(array['a'], 'z')",
    "select ('{\"a\":\"x\"}'::json)->>'a', '\\x6162'::bytea",
    "select to_timestamp('2020-01-05', 'YYYY-MM-DD') = timestamptz '2020-01-05 00:00:00 UTC'",
]
TRINO = [
    "select 'a\\c' like 'a\\c'",
    "select regexp_replace('foobar', '(o)(b)', '$2$1'), regexp_replace('a', 'a', '\\$1')",
    "select date_trunc('month', date '2020-01-31'), date_add('day', 1, date '2020-01-31')",
    "select date_add('month', -1, cast('2020-03-31' as date)), date '2020-01-31' + interval '1' month",
    "select substring('hello', -3), substring('hello', -3, 2), substr('hello', 0), substring('ab', -3)",
    "select greatest(1, null), least(2, 1), nan(), infinity(), -infinity()",
    "select element_at(array[1,2,3], -1), element_at(array[1,2,3], -3), array_position(array[1,2], 9)",
    "select date_diff('hour', timestamp '2020-01-01 00:30:00', timestamp '2020-01-01 02:00:00')",
    "select second(timestamp '2020-01-01 00:00:01.9'), millisecond(timestamp '2020-01-01 00:00:01.5')",
    "select hour(timestamp '2020-01-01 10:20:30'), extract(second from timestamp '2020-01-01 00:00:01.9')",
    "select date_format(timestamp '2020-01-05 15:04:05', '%W %M %e %y %a %b %j %p %h %k %T at Day')",
    "select 1e3, 1.5e0, x'41'",
    "select current_timestamp(0) = date_trunc('second', current_timestamp(0))",
    "select * from (values (1, 'a'))",
    "values (1, 'a')",
    "select split_part('a,b', ',', 5), split_part('a,,b', ',', 2)",
    "select sequence(1, 3), cardinality(sequence(1, 5, 2))",
    "select x from unnest(sequence(1, 2)) u(x)",
    "select json_query('{\"a\":[1]}', 'lax $.a')",
    "select x from (select 1 as x) where x > 0",
    "select x, y from (select 1 as x) cross join (select 2 as y) cross join (select z from (select 3 as z))",
]
MYSQL = [
    ("postgres", "select 'a_c' like 'a\\_c', 'abc' like 'a\\_c'", [(True, False)]),
    ("trino", "select 'a_c' like 'a\\_c', 'abc' like 'a\\_c', 'ab' not like 'a\\%'", [(True, False, True)]),
    (
        "postgres",
        "select length('é'), char_length('é'), week('2020-01-01'), week('2018-12-31', 1)",
        [(2, 1, 0, 53)],
    ),
    (
        "trino",
        "select length('é'), char_length('é'), week('2020-01-01'), week('2018-12-31', 1)",
        [(2, 1, 0, 53)],
    ),
    ("postgres", "select 7 div 2, -7 div 2, 5 div 0, 5 % 0, mod(5, 3)", [(3, -3, None, None, 2)]),
    (
        "postgres",
        "select substring('hello', 0, 2), substring('hello', -3, 2), substring('ab', -3)",
        [("", "ll", "")],
    ),
    ("postgres", "select greatest(1, null), to_days('2020-01-01')", [(None, 737790)]),
    (
        "postgres",
        "select date_add('2020-01-01', interval 1 month), '2020-01-01' + interval 1 day",
        [("2020-02-01", "2020-01-02")],
    ),
    ("postgres", "select date_add('2020-01-01 10:00:00', interval 1 month)", [("2020-02-01 10:00:00",)]),
    ("trino", "select date_add('2020-01-01 10:00:00', interval 1 month)", [("2020-02-01 10:00:00",)]),
    ("postgres", "select date_format('2020-01-05 15:04:05', '%D %p at Day')", [("5th PM at Day",)]),
    ("postgres", "select convert_tz('2020-01-01 00:00:00', '+00:00', '+09:00')", [("2020-01-01 09:00:00",)]),
    ("trino", "select convert_tz('2020-01-01 00:00:00', '+00:00', '+09:00')", [("2020-01-01 09:00:00",)]),
    ("postgres", "select length(cast(now() as char)), cast('a' as char(5)), 1e3", [(19, "a", 1000.0)]),
    (
        "trino",
        "select repeat('ab', 2), trim('\\ta '), now() = date_trunc('second', now())",
        [("abab", "\ta", True)],
    ),
    (
        "trino",
        "select group_concat(x order by x desc separator '-') from (select 1 as x union all select 2) q",
        [("2-1",)],
    ),
    (
        "trino",
        "select group_concat(x) from (select 1 as x) q where x > 1",
        [(None,)],
    ),
    (
        "postgres",
        "select group_concat(x order by x desc separator '-') from (select 1 as x union all select 2) q",
        [("2-1",)],
    ),
    ("trino", "select x + 1 as y, count(*) from (select 1 as x union all select 1) q group by y", [(2, 2)]),
    ("postgres", "select '1.5' * 2, timestampadd(day, 1, '2020-01-01')", [(3.0, "2020-01-02")]),
    ("trino", "select '1.5' * 2, timestampadd(day, 1, '2020-01-01')", [(3.0, "2020-01-02")]),
]


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Ask]]:
    coordinator = trino_kit.shared_server()
    lake: Any = trino.dbapi.Connection(host=coordinator.host, port=coordinator.port, user="ann")
    server: PostgresServer = shared_server()
    with server.admin("postgres") as admin:

        def postgres(sql: str) -> tuple[list[str], list[Any]]:
            cursor = admin.execute(sql.encode())
            return [column.name for column in cursor.description or ()], cursor.fetchall()

        def ask_trino(sql: str) -> tuple[list[str], list[Any]]:
            cursor = lake.cursor()
            cursor.execute(sql)
            rows = [tuple(row) for row in cursor.fetchall()]
            return [column[0] for column in cursor.description], rows

        yield {"postgres": postgres, "trino": ask_trino}
    lake.close()


def translated(text: str, source: str, target: str) -> str:
    outcome = transpile(text, source, target, strict=True)
    assert outcome.sql is not None, outcome.message
    return outcome.sql


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        *[("postgres", "trino", text) for text in POSTGRES],
        *[("trino", "postgres", text) for text in TRINO],
    ],
)
def test_both_engines_agree(engines: dict[str, Ask], source: str, target: str, text: str) -> None:
    names, rows = engines[source](text)
    found_names, found = engines[target](translated(text, source, target))
    assert [tuple(map(str, row)) for row in found] == [tuple(map(str, row)) for row in rows]
    assert found_names == names


@pytest.mark.parametrize(("target", "text", "rows"), MYSQL)
def test_what_mysql_answers(engines: dict[str, Ask], target: str, text: str, rows: list[Any]) -> None:
    _, found = engines[target](translated(text, "mysql", target))
    assert [tuple(map(str, row)) for row in found] == [tuple(map(str, row)) for row in rows]
