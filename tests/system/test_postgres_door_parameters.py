"""Parameters and types at the PostgreSQL door, with drivers that ask first (asyncpg) and that name no types
(psycopg, pgjdbc): what is described is what comes, on every engine."""

import struct
import subprocess
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import psycopg
import pytest

from queryflux.wire.postgres.constants import Oid
from tests.kit.postgres import DATABASE, PostgresServer, postgres_server
from tests.kit.serving import serving
from tests.kit.trino import shared_server
from tests.rooms.frontends_postgres.raw_client import (
    SYNC,
    RawClient,
    bind,
    describe,
    described,
    execute,
    parse,
    shown,
)
from tests.system.test_postgres_door_drivers import NUMBERS as NUMBERS_OF
from tests.system.test_postgres_door_drivers import Target, asyncpg_connect, jdbc_jar, served, target

__all__ = ["postgres_server", "served", "target"]


@pytest.fixture(params=["duck", "pg"])
def changing(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, tmp_path: Path
) -> Iterator[Target]:
    """Engines whose tables can be changed."""
    where = f"{postgres_server.host}:{postgres_server.port}"
    yaml = f"""
clusters:
  duck: {{engine: duckDb, databasePath: {tmp_path / "main.duckdb"}}}
  pg:
    engine: postgres
    endpoint: "{where}"
    database: {DATABASE}
    auth: {{type: basic, username: trusted, password: none}}
clusterGroups: {{duck: {{members: [duck]}}, pg: {{members: [pg]}}}}
routingFallback: {request.param}
"""
    with serving(yaml) as running:
        yield Target(request.param, running, running.port("postgresWire"))
        running.assert_idle()


@pytest.mark.parametrize(
    ("statement", "values", "expected"),
    [
        ("select 7/2 where 1 in (%s,%s)", (1, 2), (3,)),
        ("select substring('foobar' from 'o(.)b'),%s::int,%s::text", (1, "x"), ("o", 1, "x")),
        ("select concat(%s::text,%s::text,7/2)", ("a", "b"), ("ab3",)),
        ("select x.a/2 from (values (%s::int,%s::text)) x (a,b)", (7, "x"), (3,)),
        ("select %s::int+%s::int,%s::text||%s::text", (1, 2, "a", "b"), (3, "ab")),
    ],
)
def test_parameters_side_by_side(target: Target, statement: Any, values: Any, expected: Any) -> None:
    with target.connect() as connection:
        assert connection.execute(statement, values).fetchone() == expected


async def change(target: Target, *statements: str) -> None:
    """Done on another connection."""
    other = await asyncpg_connect(target)
    try:
        for statement in statements:
            await other.execute(statement)
    finally:
        await other.close()


async def test_a_result_that_changes_under_a_prepared_statement(changing: Target) -> None:
    """As PostgreSQL itself: the driver hears of it, and prepares anew."""
    await change(changing, "drop table if exists ch", "create table ch as select 7::bigint as a")
    connection = await asyncpg_connect(changing)
    try:
        assert await connection.fetchval("select a from ch") == 7
        await change(changing, "alter table ch alter column a type double precision")
        assert await connection.fetchval("select a from ch") == 7.0
        assert await connection.fetchrow("select * from ch") == (7.0,)
        await change(changing, "alter table ch add column b text")
        row = await connection.fetchrow("select * from ch")
        assert dict(row) == {"a": 7.0, "b": None}
        await change(changing, "alter table ch rename column b to c")
        assert dict(await connection.fetchrow("select * from ch")) == {"a": 7.0, "c": None}
    finally:
        await connection.close()


async def test_a_prepared_statement_that_is_kept(changing: Target) -> None:
    await change(changing, "drop table if exists ch", "create table ch as select 7::bigint as a")
    connection = await asyncpg_connect(changing)
    try:
        kept = await connection.prepare("select a from ch")
        writing = await connection.prepare("insert into ch values (8) returning a")
        assert await kept.fetchval() == 7
        await change(
            changing, "drop table ch", "create table ch as select 9::bigint as a", "select a from ch"
        )
        assert await kept.fetchval() == 9
        await change(changing, "alter table ch alter column a type text", "select a from ch")
        for statement in (kept, writing):
            with pytest.raises(asyncpg.InvalidCachedStatementError):
                await statement.fetchval()
        assert await connection.fetch("select count(*) from ch") == [(1,)]
    finally:
        await connection.close()


async def test_a_change_that_makes_no_difference(changing: Target) -> None:
    await change(changing, "drop table if exists ch", "create table ch as select 7.25::numeric(10,2) as a")
    connection = await asyncpg_connect(changing)
    try:
        kept = await connection.prepare("select a from ch")
        assert await kept.fetchval() == Decimal("7.25")
        await change(changing, "alter table ch alter column a type numeric(12,3)")
        assert await kept.fetchval() == Decimal("7.250")
        assert await kept.fetchval() == Decimal("7.250")
    finally:
        await connection.close()


async def test_a_connection_that_has_it_from_before_the_change(postgres_server: PostgresServer) -> None:
    """Who knows the columns as they are now does not hear of what a pooled connection still had."""
    where = f"{postgres_server.host}:{postgres_server.port}"
    yaml = f"""
clusters:
  pg: {{engine: postgres, endpoint: "{where}", database: {DATABASE},
       auth: {{type: basic, username: trusted, password: none}}}}
clusterGroups: {{pg: {{members: [pg]}}}}
routingFallback: pg
"""
    with serving(yaml) as running:
        target = Target("pg", running, running.port("postgresWire"))
        await change(target, "drop table if exists ch", "create table ch as select 7::bigint as a")
        one, other = await asyncpg_connect(target), await asyncpg_connect(target)
        try:
            async with one.transaction():  # two connections to the server, each with the statement
                assert await one.fetchval("select a from ch") == 7
                assert await other.fetchval("select a from ch") == 7
            await change(target, "alter table ch alter column a type text")
            kept = await one.prepare("select a from ch")
            assert await kept.fetchval() == "7"
            async with other.transaction():  # takes the one that was used last
                await other.execute("select 1")
                assert await kept.fetchval() == "7"
                assert await kept.fetchval() == "7"
        finally:
            await one.close()
            await other.close()


async def test_a_client_that_heard_of_the_change_with_its_rows(changing: Target) -> None:
    """It goes by what came with the rows last, whatever it was told before."""
    await change(changing, "drop table if exists ch", "create table ch as select 7::bigint as a")
    client = await RawClient.start(changing.port, database="main")
    try:
        await client.ask(parse("select * from ch", "s"), describe("S", "s"), SYNC)
        for kind in ("double precision", "text"):
            await change(changing, f"alter table ch alter column a type {kind}")
            for _ in range(2):
                asked = bind(statement="s") + describe() + execute() + SYNC
                assert [word[0] for word in await client.ask(asked)] == ["2", "T", "D", "C", "Z"]
            for _ in range(2):
                asked = bind(statement="s") + execute() + SYNC
                assert [word[0] for word in await client.ask(asked)] == ["2", "D", "C", "Z"]
    finally:
        client.close()


async def test_columns_of_one_name(target: Target) -> None:
    client = await RawClient.start(target.port, database="main", options=target.options)
    try:
        for name, sql in (("a", "select 1 + 1, 2 + 2"), ("b", "select 2 as a, 4 as a, 6 as a_1")):
            told = await client.ask(parse(sql, name), describe("S", name), SYNC)
            asked = bind(statement=name) + execute() + SYNC
            assert [word[:4] for word in await client.ask(asked)] == ["2", "D 2,", "C SE", "Z I"], told
    finally:
        client.close()


def test_rows_that_come_with_their_columns_may_change(changing: Target) -> None:
    with changing.connect() as connection:
        connection.execute("drop table if exists ch")
        connection.execute("create table ch as select 7::bigint as a")
        for _ in range(3):
            assert connection.execute("select * from ch", prepare=True).fetchone() == (7,)
        connection.execute("alter table ch alter column a type text")
        for _ in range(3):
            assert connection.execute("select * from ch", prepare=True).fetchone() == ("7",)


async def test_a_file_that_is_replaced_under_a_prepared_statement(tmp_path: Path) -> None:
    def write(query: str) -> None:
        duckdb.execute(f"copy ({query}) to '{tmp_path / 'new.parquet'}'")
        (tmp_path / "new.parquet").rename(tmp_path / "t.parquet")

    write("select 7::bigint as a")
    with serving(
        f"""
clusters: {{duck: {{engine: duckDb, dataPath: {tmp_path}, readOnly: true}}}}
clusterGroups: {{duck: {{members: [duck]}}}}
routingFallback: duck
"""
    ) as running:
        connection = await asyncpg_connect(Target("duck", running, running.port("postgresWire")))
        try:
            assert await connection.fetchval("select a from t") == 7
            write("select 7::int as a")
            assert await connection.fetchval("select a from t") == 7
            write("select 7.5::float8 as a")
            assert await connection.fetchval("select a from t") == 7.5
            write("select 'x' as a, 1 as b")
            assert await connection.fetchrow("select * from t") == ("x", 1)
        finally:
            await connection.close()


NUMBERS = """
create table numbers as select 1 as id, 7::bigint as n, 1.25::numeric(10,2) as price, 0.5::float8 as f,
    date '2020-01-02' as d, timestamp '2020-01-02 03:04:05' as ts, 'x'::text as s
"""
DAY = date(2020, 1, 2)
DESCRIBED = [
    ("select extract(year from $1::date)", (DAY,), 2020),
    ("select date_part('year', $1::date)", (DAY,), 2020),
    ("select extract(month from $1::timestamp)", (datetime(2020, 5, 1),), 5),
    ("select n from numbers where n = any($1)", ([1, 7],), 7),
    ("select n from numbers where s = any($1)", (["x"],), 7),
    ("select price*$1 from numbers", (Decimal("1.5"),), Decimal("1.875")),
    ("select price*$1 from numbers", (2,), Decimal("2.50")),
    ("select round(price,$1) from numbers", (1,), Decimal("1.3")),
    ("select $1+1", (41,), 42),
    ("select n+$1 from numbers", (5,), 12),
    ("select n from numbers where f*$1 > 0.4", (1.0,), 7),
    ("select f*$1 from numbers", (1.5,), 0.75),
    ("select ts+$1 from numbers", (timedelta(1),), datetime(2020, 1, 3, 3, 4, 5)),
    ("select s||$1 from numbers", ("y",), "xy"),
    ("select n+$1 from numbers where d = $2::date and s = $3", (1, DAY, "x"), 8),
]
DESCRIBED_BY_DUCKDB = [
    *DESCRIBED,
    ("select d+$1 from numbers", (1,), date(2020, 1, 3)),
    ("select n from numbers where d > $1 - interval '1 day'", (datetime(2020, 1, 2),), 7),
]


async def test_what_is_described_is_what_comes(changing: Target) -> None:
    await change(changing, "drop table if exists numbers", NUMBERS)
    connection = await asyncpg_connect(changing)
    try:
        for statement, values, expected in DESCRIBED if changing.engine == "pg" else DESCRIBED_BY_DUCKDB:
            assert await connection.fetchval(statement, *values) == expected, statement
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("sql", "oid", "value", "expected"),
    [
        ("select $1", Oid.INT4, struct.pack("!i", 7), "7"),
        ("select $1", Oid.INT8, struct.pack("!q", 2**40), str(2**40)),
        ("select $1", Oid.DATE, struct.pack("!i", 1), "2000-01-02"),
        ("select 5::int8 + $1", Oid.FLOAT8, struct.pack("!d", 1.5), "6.5"),
        ("select 5::int4 + $1", Oid.INT8, struct.pack("!q", 7), "12"),
        ("select $1", Oid.UUID, bytes(16), "00000000-0000-0000-0000-000000000000"),
        ("select $1", Oid.TIMESTAMPTZ, bytes(8), "2000-01-01 00:00:00+00"),
        ("select coalesce(5::int8, $1)", Oid.FLOAT8, struct.pack("!d", 1.5), "5"),
    ],
)
async def test_types_that_a_client_names(
    target: Target, sql: str, oid: int, value: bytes, expected: str
) -> None:
    """It asks once what comes, and goes by that (Npgsql's Prepare)."""
    client = await RawClient.start(target.port, database="main", options=target.options)
    try:
        client.send(parse(sql, "s", (oid,)), describe("S", "s"), SYNC)
        messages = dict(await client.until("Z"))
        assert shown("t", messages["t"]) == f"t {oid}"
        assert described(messages["T"])[0][1] == oid
        for given in (value, None, value):
            row = "D NULL" if given is None and "coalesce" not in sql else f"D {expected}"
            asked = bind(given, statement="s", formats=(1,)) + execute() + SYNC
            assert await client.ask(asked) == ["2", row, "C SELECT 1", "Z I"]
    finally:
        client.close()


async def test_parameters_on_trino() -> None:
    server = shared_server()
    yaml = f"""
clusters: {{trino: {{engine: trino, endpoint: "{server.url}"}}}}
clusterGroups: {{trino: {{members: [trino]}}}}
routingFallback: trino
"""
    with serving(yaml) as running:
        connection = await asyncpg_connect(Target("trino", running, running.port("postgresWire")))
        try:
            row = await connection.fetchrow(
                "select n_name||$3, n_nationkey+$1 from tpch.tiny.nation where n_nationkey=$1 and n_name<>$2",
                7,
                "x",
                "!",
            )
            assert tuple(row) == ("GERMANY!", 14)
            assert await connection.fetchval("select $1::date", date(2020, 1, 2)) == date(2020, 1, 2)
        finally:
            await connection.close()


JAVA = """
import java.sql.*;
import java.util.Properties;

public class Parameters {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", "ann");
        properties.setProperty("options", args[1]);
        try (Connection c = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + args[0] + "/main",
                properties)) {
            for (String sql : new String[] {"select d from (select date '2020-01-02' as d) t where d = ?",
                    "select cast(? as date)", "select ?::date"}) {
                try (PreparedStatement s = c.prepareStatement(sql)) {
                    for (int i = 0; i < 7; i++) {
                        s.setDate(1, Date.valueOf("2020-01-02"));
                        try (ResultSet r = s.executeQuery()) {
                            r.next();
                            if (i == 6) System.out.println(r.getDate(1));
                        }
                    }
                }
            }
            try (PreparedStatement s = c.prepareStatement("select 7/2 where 1 in (?,?)")) {
                s.setInt(1, 1); s.setInt(2, 2);
                try (ResultSet r = s.executeQuery()) { r.next(); System.out.println(r.getString(1)); }
            }
        }
    }
}
"""


def test_jdbc(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "Parameters.java"
    source.write_text(JAVA)
    command = ["java", "-cp", str(jdbc_jar()), str(source), str(target.port), target.options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2020-01-02"] * 3 + ["3"]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("select 'a'::int", psycopg.errors.InvalidTextRepresentation),
        ("select 2147483647::int + 1::int", psycopg.errors.NumericValueOutOfRange),
        ("select id from keyed a, keyed b", psycopg.errors.AmbiguousColumn),
        ("insert into keyed values (1)", psycopg.errors.UniqueViolation),
        ("select nextval('nope')", psycopg.errors.UndefinedTable),
    ],
)
def test_errors_of_both_engines(changing: Target, statement: Any, error: type[Exception]) -> None:
    with changing.connect() as connection:
        connection.execute("drop table if exists keyed")
        connection.execute("create table keyed (id int primary key)")
        connection.execute("insert into keyed values (1)")
        with pytest.raises(error):
            connection.execute(statement)


async def test_a_cursor_that_skips_rows(target: Target) -> None:
    connection = await asyncpg_connect(target)
    try:
        for parameters in ("$1::int", "$1::int + 0"):
            async with connection.transaction():
                cursor = await connection.cursor(
                    f"select n from ({NUMBERS_OF[target.engine]}) t where n >= {parameters} order by n", 0
                )
                assert await cursor.forward(10) == 10
                assert [row["n"] for row in await cursor.fetch(2)] == [10, 11]
                assert await connection.fetchval("select 1") == 1
                assert await cursor.forward(985) == 985
                assert [row["n"] for row in await cursor.fetch(2)] == [997, 998]
                assert await cursor.forward(10) == 1
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("move forward 1 nowhere")
        async with connection.transaction():
            cursor = await connection.cursor("select ('x' || n)::int from (select 5 as n) t")
            with pytest.raises(asyncpg.InvalidTextRepresentationError):
                await cursor.forward(1)
            with pytest.raises(asyncpg.InFailedSQLTransactionError):
                await connection.fetchval("select 1")
            await connection.execute("rollback")
            await connection.execute("begin")
        assert await connection.fetchval("select 2") == 2
    finally:
        await connection.close()


async def test_the_number_of_a_session(target: Target) -> None:
    if target.engine == "pg":
        pytest.skip("it is the server's own there")
    with target.connect() as one, target.connect() as other:
        for connection in (one, other):
            number = connection.info.backend_pid
            assert connection.execute("select pg_backend_pid()").fetchone() == (number,)
            assert connection.execute("SELECT pg_catalog.pg_backend_pid() AS x", prepare=True).fetchone() == (
                number,
            )
    connection = await asyncpg_connect(target)
    try:
        row = await connection.fetchrow("select pg_backend_pid()")
        assert dict(row) == {"pg_backend_pid": connection.get_server_pid()}
    finally:
        await connection.close()


JAVA_CHANGES = """
import java.sql.*;
import java.util.Properties;

public class Changes {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", "ann");
        String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/main";
        try (Connection c = DriverManager.getConnection(url, properties);
                Connection d = DriverManager.getConnection(url, properties);
                Statement other = d.createStatement()) {
            other.execute("drop table if exists ch");
            other.execute("create table ch as select 7::bigint as a");
            try (PreparedStatement s = c.prepareStatement("select * from ch where a > ?")) {
                for (int i = 0; i < 16; i++) {
                    if (i == 8) other.execute("alter table ch alter column a type double precision");
                    if (i == 12) other.execute("alter table ch add column b text");
                    s.setInt(1, 0);
                    try (ResultSet r = s.executeQuery()) {
                        r.next();
                        System.out.println(r.getDouble(1) + " " + r.getMetaData().getColumnCount());
                    }
                }
            }
        }
    }
}
"""


def test_jdbc_prepares_anew(changing: Target, tmp_path: Path) -> None:
    source = tmp_path / "Changes.java"
    source.write_text(JAVA_CHANGES)
    command = ["java", "-cp", str(jdbc_jar()), str(source), str(changing.port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["7.0 1"] * 12 + ["7.0 2"] * 4
