"""The PostgreSQL door with the drivers people use, on an engine that speaks PostgreSQL and on one that does
not: psql, psycopg, asyncpg, pgjdbc."""

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import psycopg
import pytest

from tests.kit.postgres import DATABASE, PostgresServer, postgres_server
from tests.kit.serving import Serving, serving

__all__ = ["postgres_server"]

SLOW = {"duck": "select count(*) from range(1000000) a, range(1000000) b", "pg": "select pg_sleep(60)"}
NUMBERS = {
    "duck": "select range as n from range(1000) order by n",
    "pg": "select n from generate_series(0, 999) n",
}
VALUES = """
select 1::int8, 1.5::float8, 1.25::numeric(10,2), 'x'::text, true, date '2020-01-01',
       timestamp '2020-01-01 01:02:03.5', null::int4, array[1,2]
"""
EXPECTED = (
    1, 1.5, Decimal("1.25"), "x", True, date(2020, 1, 1), datetime(2020, 1, 1, 1, 2, 3, 500000), None, [1, 2],
)  # fmt: skip


@dataclass
class Target:
    """One engine behind the door."""

    engine: str
    serving: Serving
    port: int

    @property
    def options(self) -> str:
        """What makes the router choose this engine."""
        return f"-c query_tags=engine:{self.engine}"

    def connect(self, **settings: Any) -> "psycopg.Connection[tuple[Any, ...]]":
        """psycopg, in autocommit unless told otherwise."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="ann",
            dbname="main",
            **{"autocommit": True, "options": self.options, **settings},
        )


@pytest.fixture(scope="module")
def served(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("data")
    file = folder / "people.parquet"
    duckdb.execute(f"copy (select 1 as id, 'ann' as name union all select 2, null) to '{file}'")
    with postgres_server.admin() as admin:
        admin.execute("drop table if exists people")
        admin.execute("create table people as select 1 as id, 'ann' as name union all select 2, null")
    where = f"{postgres_server.host}:{postgres_server.port}"
    yaml = f"""
clusters:
  duck: {{engine: duckDb, dataPath: {folder}, readOnly: true}}
  pg:
    engine: postgres
    endpoint: "{where}"
    database: {DATABASE}
    auth: {{type: basic, username: trusted, password: none}}
clusterGroups:
  duck: {{members: [duck]}}
  pg: {{members: [pg]}}
routers:
  - {{type: tags, rules: [{{tags: {{engine: pg}}, targetGroup: pg}}]}}
routingFallback: duck
"""
    with serving(yaml) as running:
        yield running


@pytest.fixture(params=["duck", "pg"])
def target(request: pytest.FixtureRequest, served: Serving) -> Iterator[Target]:
    yield Target(request.param, served, served.port("postgresWire"))
    served.assert_idle()


# psql


def psql(target: Target, *commands: str) -> tuple[str, str]:
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")
    arguments = [part for command in commands for part in ("-c", command)]
    done = subprocess.run(
        [
            program,
            "-X",
            "-A",
            "-t",
            "-h",
            "127.0.0.1",
            "-p",
            str(target.port),
            "-U",
            "ann",
            "-d",
            "main",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PGOPTIONS": target.options, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    return done.stdout.strip(), done.stderr.strip()


def test_psql(target: Target) -> None:
    out, err = psql(target, "select * from people order by id", "begin", "select 1; select 2", "rollback")
    assert (out.splitlines(), err) == (["1|ann", "2|", "BEGIN", "1", "2", "ROLLBACK"], "")


def test_psql_shows_where_an_error_is(target: Target) -> None:
    _, err = psql(target, "select 1; selec 2")
    assert "ERROR:  syntax error" in err
    assert "LINE 1: select 1; selec 2\n                  ^" in err


def test_psql_lists_tables(target: Target) -> None:
    out, _ = psql(target, r"\dt")
    assert "|people|table|" in out


# psycopg


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_types(target: Target, binary: bool) -> None:
    with target.connect() as connection:
        row = connection.cursor(binary=binary).execute(VALUES).fetchone()
    assert row == EXPECTED


def test_psycopg_prepares_after_some_executions(target: Target) -> None:
    with target.connect() as connection:
        for number in range(12):
            assert connection.execute("select %s::int + 1", (number,)).fetchone() == (number + 1,)
        connection.execute("deallocate all")
        assert connection.execute("select %s::int + 1", (1,)).fetchone() == (2,)


def test_psycopg_pipelines(target: Target) -> None:
    with target.connect() as connection:
        with connection.pipeline() as pipeline:
            first, second = connection.execute("select 1"), connection.execute("select %s::int", (2,))
            pipeline.sync()
            assert (first.fetchall(), second.fetchall()) == ([(1,)], [(2,)])
        with pytest.raises(psycopg.errors.UndefinedTable):
            three_of_which_one_fails(connection)
        assert connection.execute("select 3").fetchone() == (3,)


def three_of_which_one_fails(connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
    with connection.pipeline():
        connection.execute("select 1")
        connection.execute("select * from nowhere")
        connection.execute("select 2")


def test_psycopg_transactions_and_errors(target: Target) -> None:
    with target.connect(autocommit=False) as connection:
        connection.execute("select 1")
        assert connection.info.transaction_status.name == "INTRANS"
        with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
            connection.execute("select * from nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("select 1")
        connection.rollback()
        assert connection.execute("select 2").fetchone() == (2,)


def test_psycopg_cancels(target: Target) -> None:
    with target.connect() as connection:

        def cancel() -> None:
            target.serving.wait_for(lambda: bool(target.serving.standalone.pipeline.running))
            time.sleep(0.3)
            connection.cancel_safe()

        cancelling = threading.Thread(target=cancel)
        cancelling.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(SLOW[target.engine])
        cancelling.join()
        assert connection.execute("select 1").fetchone() == (1,)


def test_psycopg_goes_away_in_the_middle(target: Target) -> None:
    connection = target.connect()
    connection.pgconn.send_query(SLOW[target.engine].encode())
    connection.pgconn.flush()
    target.serving.wait_for(lambda: bool(target.serving.standalone.pipeline.running))
    connection.close()
    target.serving.assert_idle()


def test_settings_follow_the_session(target: Target) -> None:
    with target.connect() as connection:
        connection.execute("set timezone = 'Europe/Berlin'")
        row = connection.execute("select timestamptz '2024-01-01 00:00:00+00'").fetchone()
        assert row is not None
        assert (row[0].isoformat(), connection.info.parameter_status("TimeZone")) == (
            "2024-01-01T01:00:00+01:00",
            "Europe/Berlin",
        )
        connection.execute("set application_name = 'me'")
        assert connection.execute("show application_name").fetchone() == ("me",)
        connection.execute("reset all")
        assert connection.execute("show timezone").fetchone() == ("UTC",)


def copy_in(connection: "psycopg.Connection[tuple[Any, ...]]", rows: list[bytes]) -> None:
    with connection.cursor().copy("copy copied from stdin") as copy:
        for row in rows:
            copy.write(row)


def test_copy(target: Target) -> None:
    with target.connect() as connection:
        if target.engine == "duck":
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="COPY FROM STDIN is not supported"):
                copy_in(connection, [])
            assert connection.execute("select 1").fetchone() == (1,)
            return
        connection.execute("drop table if exists copied")
        connection.execute("create table copied (a int, b text)")
        copy_in(connection, [b"%d\t%s\n" % (number, b"x" * number) for number in range(1000)])
        assert connection.execute("select count(*), sum(length(b)) from copied").fetchone() == (1000, 499_500)
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            copy_in(connection, [b"bad\tx\n"] * 10_000)
        with connection.cursor().copy("copy copied to stdout") as copy:
            assert len(list(copy.rows())) == 1000


COPIED = r"""
copy (
    select 1::int8 as n, 1.5::float8 as f, 1.25::numeric(10,2) as "a ""b",
           chr(9) || 'x,"\z''' || chr(10) || '|;' || chr(13) as t, true as b,
           date '2020-01-01' as d, timestamp '2020-01-01 01:02:03.5' as ts, null::int4 as nothing,
           '' as empty, '\N' as null, array[1,2] as numbers
    union all select null, null, null, null, null, null, null, 7, 'x', null, null
    order by 1
) to stdout
"""


@pytest.mark.parametrize(
    "options",
    [
        "",
        "with (format csv)",
        "csv header",
        "with (format csv, header, delimiter ';', null 'x', quote '''', force_quote (n, t))",
        "with (format csv, escape E'\\\\', force_quote *)",
        "(header, delimiter '|', null 'none')",
        "with delimiter as ',' null as 'x'",
    ],
)
def test_copy_to_stdout_is_the_same_on_every_engine(served: Serving, options: str) -> None:
    found = []
    for engine in ("duck", "pg"):
        with (
            Target(engine, served, served.port("postgresWire")).connect() as connection,
            connection.cursor().copy(f"{COPIED} {options}".encode()) as copy,
        ):
            found.append([bytes(data) for data in copy])
    assert found[0] == found[1]
    assert len(found[0]) == 2 + ("header" in options)


def test_psql_exports_a_table(target: Target, tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    exported = psql(target, rf"\copy (select * from people order by id) to {file} csv header")
    assert exported == ("COPY 2", "")
    assert file.read_text() == "id,name\n1,ann\n2,\n"
    assert psql(target, "copy people (name) to stdout") == ("ann\n\\N", "")


def test_a_copy_of_many_rows_and_one_that_fails(target: Target) -> None:
    with target.connect() as connection:
        with connection.cursor().copy(f"copy ({NUMBERS[target.engine]}) to stdout".encode()) as copy:
            assert [row[0] for row in copy.rows()] == [str(number) for number in range(1000)]
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("copy nowhere to stdout")
        assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("statement", [b"declare c cursor for select 1", b"fetch c", b"listen x", b"lock t"])
@pytest.mark.parametrize("prepare", [False, True])
def test_what_only_postgres_has(served: Serving, statement: bytes, prepare: bool) -> None:
    with (
        Target("duck", served, served.port("postgresWire")).connect() as connection,
        pytest.raises(psycopg.errors.FeatureNotSupported, match="not supported on this cluster"),
    ):
        connection.execute(statement, prepare=prepare)


@pytest.mark.parametrize("options", ["", " -c statement_timeout=300ms"])
def test_a_statement_timeout_of_the_clients_own(target: Target, options: str) -> None:
    with target.connect(options=target.options + options) as connection:
        if not options:
            connection.execute("set statement_timeout = '300ms'")
        for prepare in (False, True):
            with pytest.raises(psycopg.errors.QueryCanceled, match="due to statement timeout"):
                connection.execute(SLOW[target.engine].encode(), prepare=prepare)
        connection.execute("set statement_timeout = 0")
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_server_side_cursor(target: Target) -> None:
    if target.engine == "duck":
        pytest.skip("DECLARE is PostgreSQL's own")
    with target.connect(autocommit=False) as connection, connection.cursor("c") as cursor:
        cursor.itersize = 100
        cursor.execute(NUMBERS["pg"])
        assert len(list(cursor)) == 1000


# asyncpg


async def asyncpg_connect(target: Target) -> Any:
    return await asyncpg.connect(
        host="127.0.0.1",
        port=target.port,
        user="ann",
        database="main",
        ssl=False,
        server_settings={"query_tags": f"engine:{target.engine}"},
    )


async def test_asyncpg(target: Target) -> None:
    connection = await asyncpg_connect(target)
    try:
        assert tuple(await connection.fetchrow(VALUES)) == EXPECTED
        row = await connection.fetchrow(
            "select $1::int, $2::text, $3::date, $4::float8", 7, "x", date(2020, 1, 1), 1.5
        )
        assert tuple(row) == (7, "x", date(2020, 1, 1), 1.5)
        assert await connection.fetchval("select $1::int[]", [1, None, 3]) == [1, None, 3]
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.fetch("select * from nowhere")
        async with connection.transaction():
            cursor = connection.cursor(NUMBERS[target.engine], prefetch=50)
            assert len([row async for row in cursor]) == 1000
        with pytest.raises(asyncio.TimeoutError):
            await connection.fetch(SLOW[target.engine], timeout=0.3)
        assert await connection.fetchval("select 1") == 1
        await connection.reset()
        assert await connection.fetchval("select 2") == 2
    finally:
        await connection.close()


# pgjdbc

JAVA = """
import java.sql.*;
import java.util.Properties;

public class Door {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", "ann");
        properties.setProperty("options", args[1]);
        try (Connection c = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + args[0] + "/main",
                properties)) {
            try (PreparedStatement s = c.prepareStatement("select ?::int + 1, ?::text, ?::numeric")) {
                for (int i = 0; i < 7; i++) {
                    s.setInt(1, i); s.setString(2, "x"); s.setBigDecimal(3, new java.math.BigDecimal("1.50"));
                    try (ResultSet r = s.executeQuery()) {
                        r.next();
                        if (r.getInt(1) != i + 1 || !"x".equals(r.getString(2))
                                || r.getBigDecimal(3).compareTo(new java.math.BigDecimal("1.5")) != 0)
                            throw new Exception("wrong row");
                    }
                }
            }
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.setFetchSize(100);
                int n = 0;
                try (ResultSet r = s.executeQuery(args[2])) {
                    while (r.next()) {
                        n++;
                        if (n == 150) try (Statement other = c.createStatement();
                                ResultSet q = other.executeQuery("select 7")) { q.next(); }
                    }
                }
                System.out.println("rows " + n);
            }
            c.rollback();
            c.setAutoCommit(true);
            try (Statement s = c.createStatement()) {
                s.executeQuery("select * from nowhere");
            } catch (SQLException e) {
                System.out.println("state " + e.getSQLState());
            }
            String[] kinds = {"TABLE", "VIEW"};
            try (ResultSet r = c.getMetaData().getTables(null, null, "people", kinds)) {
                while (r.next()) System.out.println("table " + r.getString("TABLE_NAME"));
            }
            try (Statement s = c.createStatement()) {
                s.setQueryTimeout(1);
                s.executeQuery(args[3]);
            } catch (SQLException e) {
                System.out.println("state " + e.getSQLState());
            }
        }
    }
}
"""


def jdbc_jar() -> Path:
    """The driver, fetched once by Maven; skips where that is impossible."""
    home = Path.home() / ".m2/repository/org/postgresql/postgresql/42.7.14"
    jar = home / "postgresql-42.7.14.jar"
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    if not jar.exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip("mvn is not installed")
        command = [maven, "-q", "dependency:get", "-Dartifact=org.postgresql:postgresql:42.7.14"]
        if subprocess.run(command, capture_output=True, check=False).returncode or not jar.exists():
            pytest.skip("the JDBC driver cannot be fetched")
    return jar


def test_jdbc(target: Target, tmp_path: Path) -> None:
    jar = jdbc_jar()
    source = tmp_path / "Door.java"
    source.write_text(JAVA)
    arguments = [str(target.port), target.options, NUMBERS[target.engine], SLOW[target.engine]]
    done = subprocess.run(
        ["java", "-cp", str(jar), str(source), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:4] == ["rows 1000", "state 42P01", "table people", "state 57014"]
