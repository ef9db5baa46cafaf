"""Real clients find DuckDB's tables: psql, pgjdbc, asyncpg, SQLAlchemy, the mysql CLI, trino-jdbc."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy

from tests.kit.serving import Serving, serving
from tests.kit.trino_java import java

MAVEN = Path.home() / ".m2" / "repository"
DUCKDB = """
clusters: {duck: {engine: duckDb, databasePath: ":memory:"}}
clusterGroups: {main: {members: [duck]}}
routingFallback: main
"""
TABLES = (
    "create table orders (id bigint not null, name varchar(20), price decimal(10, 2), placed timestamptz, "
    "paid boolean, tags varchar[])",
    "create view recent as select id from orders",
)
PROGRAM = """
import java.sql.*;
public class Meta {
  static void show(ResultSet rows, String... names) throws Exception {
    while (rows.next()) {
      StringBuilder line = new StringBuilder();
      for (String name : names) line.append(rows.getString(name)).append('|');
      System.out.println(line);
    }
  }
  public static void main(String[] arguments) throws Exception {
    Connection connection = DriverManager.getConnection(arguments[0]);
    DatabaseMetaData data = connection.getMetaData();
    show(data.getTables(null, "main", "%", new String[] {"TABLE", "VIEW"}), "TABLE_NAME", "TABLE_TYPE");
    show(data.getColumns(null, "main", "orders", "%"), "COLUMN_NAME", "DATA_TYPE", "IS_NULLABLE");
    show(data.getPrimaryKeys(null, "main", "orders"), "COLUMN_NAME");
    if (data.getTypeInfo().next()) System.out.println("types");
    if (data.getSchemas().next()) System.out.println("schemas");
    if (data.getCatalogs().next()) System.out.println("catalogs");
  }
}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Serving]:
    with serving(DUCKDB) as run:
        with psycopg.connect(postgres(run), autocommit=True) as connection:
            for table in TABLES:
                connection.execute(table)
        yield run


def postgres(run: Serving) -> str:
    return f"host=127.0.0.1 port={run.port('postgresWire')} user=ann dbname=demo sslmode=disable"


def command(*words: str) -> str:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        (r"\dt", ["main|orders|table|ann"]),
        (r"\dv", ["main|recent|view|ann"]),
        (r"\dn", ["main|ann"]),
        (
            r"\d orders",
            ["id|bigint||not null|", "price|numeric(10,2)|||", "tags|text[]|||", "paid|boolean|||"],
        ),
        (r"\d+ orders", ["placed|timestamp with time zone||||plain|||"]),
        (r"\l", ["demo|ann|UTF8"]),
        (r"\du", ["ann|"]),
        ("show tables", ["orders", "recent"]),
        ("describe orders", ["id|bigint|NO|||"]),
        ("select current_database(), current_schema(), current_user", ["demo|main|ann"]),
    ],
)
def test_psql(running: Serving, asked: str, lines: list[str]) -> None:
    printed = command("psql", "-XAt", postgres(running), "-c", asked).splitlines()
    for line in lines:
        assert any(found.startswith(line) for found in printed), printed


@pytest.mark.parametrize(
    "asked", [r"\df", r"\dT", r"\di", r"\ds", r"\dm", r"\dp", r"\dx", r"\db", r"\dD", r"\dS"]
)
def test_psql_has_an_answer(running: Serving, asked: str) -> None:
    command("psql", "-XAt", postgres(running), "-c", asked)


def test_psql_describes_a_statement(running: Serving) -> None:
    asked = 'select id, price as "P" from orders \\gdesc\n'
    words = ["psql", "-XAt", postgres(running)]
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    done = subprocess.run(words, input=asked, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["id|bigint", "P|numeric(10,2)"], "")


def test_psql_finds_no_function(running: Serving) -> None:
    words = ["psql", "-XAt", postgres(running), "-c", r"\sf nothing"]
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert 'function "nothing" does not exist' in done.stderr


@pytest.mark.parametrize(("driver", "door"), [("postgresql", "postgresWire"), ("trino", "trinoHttp")])
def test_jdbc(running: Serving, tmp_path: Path, driver: str, door: str) -> None:
    group = "org/postgresql/postgresql" if driver == "postgresql" else "io/trino/trino-jdbc"
    jars = sorted((MAVEN / group).glob("*/*.jar"))
    if not jars:
        pytest.skip(f"{group} is not in the local Maven repository")
    (tmp_path / "Meta.java").write_text(PROGRAM)
    database = "demo" if driver == "postgresql" else "memory/main"
    url = f"jdbc:{driver}://127.0.0.1:{running.port(door)}/{database}?user=ann"
    printed = command(java(), "-cp", str(jars[-1]), str(tmp_path / "Meta.java"), url).splitlines()
    assert printed[:2] == ["orders|TABLE|", "recent|VIEW|"]
    assert [line.split("|")[0] for line in printed[2:8]] == ["id", "name", "price", "placed", "paid", "tags"]
    assert printed[2] == "id|-5|NO|"
    assert printed[8:] == ["types", "schemas", "catalogs"]


async def test_asyncpg(running: Serving) -> None:
    port = running.port("postgresWire")
    connection = await asyncpg.connect(host="127.0.0.1", port=port, user="ann", database="demo", ssl=False)
    try:
        rows = await connection.fetch(
            "select relname, relhasindex from pg_class where relname = $1", "orders"
        )
        assert [tuple(row) for row in rows] == [("orders", False)]
        known = ["int4", "text"]
        names = "select typname from pg_type where typname = any($1) order by 1"
        assert [row["typname"] for row in await connection.fetch(names, known)] == known
        count = (
            "select count(*) from information_schema.columns where table_name = $1 and ordinal_position > $2"
        )
        assert await connection.fetchval(count, "orders", 2) == 4
    finally:
        await connection.close()


def test_sqlalchemy_trino(running: Serving) -> None:
    engine = sqlalchemy.create_engine(f"trino://ann@127.0.0.1:{running.port('trinoHttp')}/memory/main")
    try:
        found = sqlalchemy.inspect(engine)
        assert "orders" in found.get_table_names()
        assert found.has_table("orders")
        names = [column["name"] for column in found.get_columns("orders")]
        assert names == ["id", "name", "price", "placed", "paid", "tags"]
        reflected = sqlalchemy.MetaData()
        reflected.reflect(engine)
        assert "orders" in reflected.tables
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("show databases", "main"),
        ("show tables", "orders"),
        ("describe orders", "price\tdecimal(10,2)\tYES\t\tNULL\t"),
        ("show full tables", "recent\tVIEW"),
        ("select column_type from information_schema.columns where column_name = 'paid'", "tinyint(1)"),
        ("select database()", "main"),
    ],
)
def test_mysql(running: Serving, asked: str, line: str) -> None:
    port = f"-P{running.port('mysqlWire')}"
    printed = command("mysql", "-h127.0.0.1", port, "-uann", "-B", "-N", "main", "-e", asked)
    assert line in printed.splitlines()
