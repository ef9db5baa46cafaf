"""PyMySQL over a real Trino: what SHOW DATABASES lists can be used and queried."""

import fcntl
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from tests.kit.places import cache_folder
from tests.kit.serving import Serving, serving
from tests.kit.trino import TrinoServer, shared_server

HOUSE = """
queryflux:
  frontends:
    trinoHttp: {{enabled: false}}
    mysqlWire: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  logging: {{level: warning}}
clusters:
  lake: {{engine: trino, endpoint: "http://{0.host}:{0.port}"}}
clusterGroups:
  lake: {{members: [lake]}}
routingFallback: lake
"""
MADE = "qf_of_memory"
BOTH = "sf300"
"""A schema that tpch has anyway."""


@pytest.fixture(scope="module")
def coordinator() -> Iterator[TrinoServer]:
    """All test processes of this machine share it: those of another run, too, make and drop these schemas."""
    server = shared_server()
    with (cache_folder() / "mysql-over-trino.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield server


@pytest.fixture(scope="module")
def place(coordinator: TrinoServer) -> Iterator[Serving]:
    with serving(HOUSE.format(coordinator)) as running:
        with closing(connect(running)) as client:
            for schema in (MADE, BOTH):
                ask(client, f"CREATE SCHEMA IF NOT EXISTS memory.{schema}")
                ask(client, f"DROP TABLE IF EXISTS memory.{schema}.things")
                ask(client, f"CREATE TABLE memory.{schema}.things AS SELECT 7 AS a")
        yield running
        with closing(connect(running)) as client:
            for schema in (MADE, BOTH):
                ask(client, f"DROP TABLE memory.{schema}.things")
                ask(client, f"DROP SCHEMA memory.{schema}")
        running.assert_idle()


def connect(place: Serving, **more: Any) -> "pymysql.Connection[Any]":
    return pymysql.connect(
        host="127.0.0.1", port=place.port("mysqlWire"), user="ann", autocommit=True, **more
    )


def ask(client: "pymysql.Connection[Any]", sql: str) -> list[tuple[Any, ...]]:
    with client.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


@pytest.fixture
def client(place: Serving) -> Iterator["pymysql.Connection[Any]"]:
    with closing(connect(place)) as connection:
        yield connection


def test_every_database_that_is_listed_can_be_used_and_queried(client: "pymysql.Connection[Any]") -> None:
    databases = [name for (name,) in ask(client, "SHOW DATABASES")]
    assert {"tiny", MADE, f"memory.{BOTH}", f"tpch.{BOTH}", "information_schema"} <= set(databases)
    assert BOTH not in databases
    for name in ("tiny", "sf1", MADE, f"memory.{BOTH}", f"tpch.{BOTH}"):
        ask(client, f"USE `{name}`")
        assert ask(client, "SELECT DATABASE()") == [(name,)]
        table = next(table for (table,) in ask(client, "SHOW TABLES") if table in ("nation", "things"))
        assert ask(client, f"DESCRIBE `{table}`")
        rows = ask(client, f"SELECT * FROM {table}")
        assert len(rows) == (25 if table == "nation" else 1)
        assert ask(client, f"SELECT * FROM `{name}`.`{table}` ORDER BY 1") == sorted(rows)


@pytest.mark.parametrize(
    ("used", "sql", "count"),
    [
        ("", "SELECT * FROM tiny.nation", 25),
        ("", f"SELECT * FROM {MADE}.things", 1),
        ("", f"SELECT t.a FROM `memory.{BOTH}`.things AS t", 1),
        ("", f"SELECT * FROM `tpch.{BOTH}`.region", 5),
        ("", "SELECT * FROM `tpch.tiny`.region", 5),
        (
            "",
            f"SELECT n.n_name FROM tpch.tiny.nation n JOIN memory.{MADE}.things t ON n.n_nationkey = t.a",
            1,
        ),
        ("tiny", "SELECT * FROM region", 5),
        ("tpch.tiny", "SELECT * FROM region", 5),
        ("TINY", "SELECT * FROM Region", 5),
        ("tiny", "SELECT * FROM sf1.region r JOIN nation n ON n.n_regionkey = r.r_regionkey", 25),
        ("tiny", f"SELECT * FROM {MADE}.things", 1),
        (MADE, "SELECT * FROM tiny.nation WHERE n_name <> 'x.\"tpch.tiny\".y'", 25),
    ],
)
def test_names_qualified_or_not(place: Serving, used: str, sql: str, count: int) -> None:
    with closing(connect(place, database=used or None)) as client:
        assert len(ask(client, sql)) == count
    with closing(connect(place)) as client:
        if used:
            ask(client, f"USE `{used}`")
        assert len(ask(client, sql)) == count


def test_a_statement_with_parameters(place: Serving) -> None:
    with closing(connect(place, database="tiny")) as client, client.cursor() as cursor:
        cursor.execute("SELECT n_name FROM nation WHERE n_nationkey = %s", (7,))
        assert list(cursor.fetchall()) == [("GERMANY",)]


def test_a_database_that_is_not_there(client: "pymysql.Connection[Any]") -> None:
    for name in ("nope", "tpch", BOTH + "x", BOTH):
        with pytest.raises(pymysql.err.OperationalError) as caught:
            ask(client, f"USE `{name}`")
        assert caught.value.args[0] == 1049
    with pytest.raises(pymysql.err.OperationalError, match=rf"memory\.{BOTH}` or `tpch\.{BOTH}") as caught:
        ask(client, f"SELECT * FROM {BOTH}.things")
    assert caught.value.args[0] == 1049


def test_a_schema_that_is_new(place: Serving, client: "pymysql.Connection[Any]") -> None:
    ask(client, "SELECT * FROM tiny.nation")
    ask(client, "CREATE SCHEMA IF NOT EXISTS memory.qf_new")
    try:
        ask(client, "USE qf_new")
        ask(client, "DROP TABLE IF EXISTS things")  # of a run that was killed
        ask(client, "CREATE TABLE things AS SELECT 1 AS a")
        assert ask(client, "SELECT a FROM qf_new.things") == [(1,)]
        assert ("things",) in ask(client, "SHOW TABLES")
    finally:
        ask(client, "DROP TABLE IF EXISTS memory.qf_new.things")
        ask(client, "DROP SCHEMA memory.qf_new")
