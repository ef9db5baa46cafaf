"""Queries that are ended, over real engines: the engine itself says that it has stopped."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from queryflux.model.endings import EndReason
from tests.kit.cable import cable
from tests.kit.doors import (
    DOORS,
    HOST,
    Client,
    Door,
    MysqlClient,
    PostgresClient,
    Refusal,
    TrinoClient,
    every_door,
)
from tests.kit.leaks import nothing_left
from tests.kit.postgres import DATABASE, PASSWORD, PostgresServer, shared_server
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the ADBC PostgreSQL driver is not installed")

TRINO, POSTGRES, MYSQL, FLIGHT = DOORS
DUCK_WORK = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE x + y = -7"
DUCK_ROWS = "SELECT range AS x FROM range(2000000000)"
POSTGRES_WORK = "SELECT pg_sleep(120)"
POSTGRES_ROWS = "SELECT n, n + 1 AS m FROM generate_series(1, 1000000000) AS g(n)"
ONE = """
clusterGroups:
  main: {members: [one], maxRunningQueries: 2}
routingFallback: main
"""


@pytest.fixture(scope="module")
def duck() -> Iterator[Serving]:
    with serving("clusters:\n  one: {engine: duckDb}\n" + ONE) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture(scope="module")
def postgres(server: PostgresServer) -> Iterator[Serving]:
    yaml = f"""
clusters:
  one:
    engine: postgres
    endpoint: {server.host}:{server.port}
    database: {DATABASE}
    auth: {{type: basic, username: scram, password: "{PASSWORD}"}}
"""
    with serving(yaml + ONE) as running:
        yield running


class Running:
    """A statement that runs in a thread of its own."""

    def __init__(self, client: Client, sql: str) -> None:
        self.told: Exception | None = None
        self._client, self._sql = client, sql
        self._thread = threading.Thread(target=self._run, name="asking")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._client.ask(self._sql)
        except Exception as error:
            self.told = error

    def over(self) -> None:
        """It was stopped, and its client knows."""
        self.join()
        assert self.told is not None

    def join(self) -> None:
        """It was answered, one way or the other."""
        self._thread.join(20)
        assert not self._thread.is_alive(), "the client was never told"


def cancel(running: Serving, door: Door, client: Client) -> None:
    """What clients of a protocol do to stop a query; one of Flight SQL's is cut off."""
    if isinstance(client, PostgresClient):
        client.connection.cancel_safe()
    elif isinstance(client, MysqlClient):
        with MYSQL.connect(running.port(MYSQL.name)) as other:
            other.ask(f"KILL QUERY {client.number}")
    elif isinstance(client, TrinoClient):
        (query_id,) = running.standalone.pipeline.running
        with TRINO.connect(running.port(TRINO.name)) as other:
            assert isinstance(other, TrinoClient)
            _until(lambda: _deleted(other, query_id))


def _deleted(client: TrinoClient, query_id: str) -> bool:
    """Its id is known to nobody before its first page was answered."""
    try:
        client.request("DELETE", f"/v1/query/{query_id}")
    except Refusal:
        return False
    return True


@contextmanager
def warm(running: Serving, door: Door) -> Iterator[None]:
    """What is made once is made before anything is counted."""
    with door.connect(running.port(door.name)) as one, door.connect(running.port(door.name)) as two:
        for asking in [Running(one, "SELECT 1"), Running(two, "SELECT 2")]:
            asking.join()
    running.assert_idle()
    yield


def running_one(running: Serving) -> bool:
    return running.standalone.generation.clusters["one"].member.running == 1


def newest(running: Serving, sql: str) -> EndReason:
    """How the last query of this text ended; its record comes a moment after its slot is back."""
    _until(lambda: any(record.sql_text == sql for record in running.records))
    return next(record for record in reversed(running.records) if record.sql_text == sql).reason


@pytest.mark.parametrize("sql", [DUCK_WORK, DUCK_ROWS], ids=["works", "streams"])
@every_door
def test_duckdb_is_interrupted(duck: Serving, door: Door, sql: str) -> None:
    with warm(duck, door), cable(HOST, duck.port(door.name)) as wire:
        with nothing_left(duck, sockets=door is not FLIGHT):
            client = door.connect(wire.port)
            asked = Running(client, sql)
            duck.wait_for(lambda: running_one(duck))
            if door is FLIGHT:
                wire.cut()
            else:
                cancel(duck, door, client)
            duck.assert_idle()
            asked.over()
            client.close()
        expected = EndReason.CLIENT_GONE if door is FLIGHT else EndReason.CANCELLED
        assert newest(duck, sql) is expected
    assert door.ask(duck.port(door.name), "SELECT 42 AS x") == [(42,)]


@pytest.mark.parametrize("sql", [POSTGRES_WORK, POSTGRES_ROWS], ids=["works", "streams"])
@pytest.mark.parametrize("gone", [False, True], ids=["cancelled", "gone"])
@every_door
def test_postgres_is_cancelled(
    postgres: Serving,
    server: PostgresServer,
    door: Door,
    gone: bool,
    sql: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = gone or door is FLIGHT
    if gone and door is TRINO and sql == POSTGRES_ROWS:
        pytest.skip("a Trino client may come back for the next page over another connection")
    if gone:  # a Trino client that has had its first page may come back too: it is cut while it waits for it
        monkeypatch.setattr("queryflux.frontends.trino_http.exchange.FIRST_HOLD_SECONDS", 60)
    marked = f"{sql} -- {door.name} {gone}"

    def active() -> bool:
        text = "pg_sleep" if sql == POSTGRES_WORK else "generate_series"
        look = f"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ILIKE '%{text}(%'"
        return bool(server.scalar(f"{look} AND pid <> pg_backend_pid()"))

    with warm(postgres, door), cable(HOST, postgres.port(door.name)) as wire:
        client = door.connect(wire.port)
        asked = Running(client, marked)
        _until(active)
        if gone:
            wire.cut()
        else:
            cancel(postgres, door, client)
        postgres.assert_idle()
        _until(lambda: not active())  # its session says so a moment after it has told us
        asked.over()
        client.close()
        assert newest(postgres, marked) is (EndReason.CLIENT_GONE if gone else EndReason.CANCELLED)
    assert door.ask(postgres.port(door.name), "SELECT 42 AS x") == [(42,)]


def _until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


@pytest.mark.parametrize("door", DOORS[1:3], ids=lambda door: door.name)
def test_postgres_an_idle_transaction_is_rolled_back(server: PostgresServer, door: Door) -> None:
    """Whoever waited for its lock goes on."""
    yaml = f"""
clusters:
  one:
    engine: postgres
    endpoint: {server.host}:{server.port}
    database: {DATABASE}
    auth: {{type: basic, username: scram, password: "{PASSWORD}"}}
"""
    group = ONE.replace("maxRunningQueries: 2", "idleInTransactionTimeoutSecs: 2")
    table = f"idle_{door.name}"
    with server.admin() as admin, serving(yaml + group) as running:
        admin.execute(f"CREATE TABLE {table} (a integer)".encode())
        with door.connect(running.port(door.name)) as client:
            client.ask("BEGIN")
            client.ask(f"INSERT INTO {table} VALUES (1)")
            admin.execute(f"SET lock_timeout = '10s'; DROP TABLE {table}".encode())
            with pytest.raises(Refusal):
                client.ask("SELECT 1 AS y")
            client.ask("ROLLBACK")
            assert client.ask("SELECT 1 AS y") == [(1,)]
        running.assert_idle()
