"""What the PostgreSQL engine does for clients of other protocols, beyond the common suite."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from queryflux.config.clusters import ClusterConfig, EngineTls
from queryflux.engines.port import ConnectionSpec, EngineConnection, EngineRequest
from queryflux.engines.postgres.engine import PostgresEngine
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    QueryCancelled,
    QueryFluxError,
    TransactionFailed,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Parameter, Session
from queryflux.results.answer import Answer, Batches, Done
from queryflux.runtime.clock import SystemClock
from tests.contract.engine_suite import Footprint, drained, until
from tests.kit.link import Link
from tests.kit.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

BIG = "SELECT x, repeat('y', 1000) FROM generate_series(1, 5000000) x"


class Client:
    """A client of the Trino door."""

    def __init__(self, engine: PostgresEngine, schema: str | None = None) -> None:
        self.session = Session(protocol=ClientProtocol.TRINO_HTTP, database=schema)
        self.identity = VerifiedIdentity("tester")
        self.connection: EngineConnection = engine.connect(ConnectionSpec(self.identity, self.session))

    def request(self, sql: str, *values: Any) -> EngineRequest:
        parameters = tuple(v if isinstance(v, Parameter) else Parameter(v) for v in values)
        return EngineRequest("q", sql, self.session, self.identity, parameters)

    async def execute(self, sql: str, *values: Any) -> Answer:
        return await self.connection.execute(self.request(sql, *values))

    async def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        answer = await self.execute(sql, *values)
        assert isinstance(answer, Batches), answer
        table = await drained(answer)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    async def done(self, sql: str, *values: Any) -> tuple[str, int | None]:
        answer = await self.execute(sql, *values)
        assert isinstance(answer, Done)
        return answer.tag, answer.rows

    @property
    def transaction(self) -> str:
        return str(self.connection.transaction.value)

    async def close(self) -> None:
        await self.connection.close()


Make = Callable[..., PostgresEngine]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    before = Footprint.now()
    engines = []

    def build(config: ClusterConfig) -> PostgresEngine:
        engines.append(PostgresEngine("pg", config, SystemClock()))
        return engines[-1]

    yield build
    for engine in engines:
        async with asyncio.timeout(15):
            await engine.close()
    await before.restored()


@pytest.fixture
def engine(make: Make, postgres_server: PostgresServer) -> PostgresEngine:
    return make(postgres_server.config(pool_size=3))


@pytest.fixture
async def client(engine: PostgresEngine) -> AsyncIterator[Client]:
    client = Client(engine)
    yield client
    await client.close()


async def test_tags(client: Client) -> None:
    assert await client.done("") == ("", None)
    assert await client.done("-- nothing") == ("", None)
    assert await client.done("CREATE TEMP TABLE tags (a int)") == ("CREATE TABLE", None)
    assert await client.done("INSERT INTO tags SELECT generate_series(1, 3)") == ("INSERT", 3)
    assert await client.done("UPDATE tags SET a = a + 1 WHERE a > 1") == ("UPDATE", 2)
    assert await client.done("WITH x AS (SELECT 1) DELETE FROM tags WHERE a = 1") == ("DELETE", 1)
    assert await client.done("CREATE OR REPLACE TEMP VIEW seen AS SELECT 1 AS x") == ("CREATE VIEW", None)
    assert await client.done("CREATE UNIQUE INDEX ON tags (a)") == ("CREATE INDEX", None)
    assert await client.done("DROP TABLE tags") == ("DROP TABLE", None)
    assert await client.done("SELECT 1 AS a INTO TEMP made") == ("SELECT", 1)
    assert await client.done("SET work_mem = '5MB'") == ("SET", None)
    assert await client.done("ANALYZE made") == ("ANALYZE", None)
    assert await client.rows("SHOW work_mem") == [("5MB",)]
    assert (await client.rows("EXPLAIN SELECT 1"))[0][0].startswith("Result")


async def test_what_pins_a_lane_is_gone_with_its_client(engine: PostgresEngine) -> None:
    one = Client(engine)
    await one.done("CREATE TEMP TABLE mine (a int)")
    assert await one.rows("SELECT * FROM mine") == []
    await one.close()
    other = Client(engine)
    with pytest.raises(EngineError):
        await other.rows("SELECT * FROM mine")
    await other.close()


async def test_rows_from_writes(client: Client) -> None:
    await client.done("CREATE TEMP TABLE w (a int, b inet, c numeric(6,2))")
    sql = "INSERT INTO w VALUES (1, '10.0.0.1', 2.5), (2, NULL, NULL) RETURNING a, b, c"
    assert await client.rows(sql) == [(1, "10.0.0.1/32", Decimal("2.50")), (2, None, None)]
    sql = "WITH gone AS (DELETE FROM w WHERE a = 1 RETURNING b) SELECT b FROM gone"
    assert await client.rows(sql) == [("10.0.0.1/32",)]
    assert await client.rows("UPDATE w SET a = 3 RETURNING a") == [(3,)]
    sql = "WITH x AS (SELECT 9 AS n) INSERT INTO w SELECT n, '::1' FROM x RETURNING b"
    assert await client.rows(sql) == [("::1/128",)]
    await client.done("DELETE FROM w WHERE a = 9")
    assert await client.rows("SELECT count(*) FROM w") == [(1,)]


async def test_the_clients_schema_is_searched_first(engine: PostgresEngine) -> None:
    setup = Client(engine)
    await setup.done('CREATE SCHEMA IF NOT EXISTS "od d"')
    await setup.done('DROP TABLE IF EXISTS "od d".here')
    await setup.done('CREATE TABLE "od d".here AS SELECT 1 AS a')
    there = Client(engine, "od d")
    for _ in range(2):
        assert await there.rows("SELECT a FROM here") == [(1,)]
        with pytest.raises(EngineError):
            await setup.rows("SELECT a FROM here")
    await setup.done('DROP SCHEMA "od d" CASCADE')
    await setup.close()
    await there.close()


async def test_parameters_of_every_type(client: Client) -> None:
    for value in (
        5,
        -(2**31),
        -(2**63),
        2.5,
        True,
        Decimal("1.25"),
        b"\x00\xff",
        dt.date(2024, 2, 29),
        dt.time(1, 2, 3),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC),
    ):
        assert await client.rows("SELECT $1", value) == [(value,)]
    assert await client.rows("SELECT $1::text, $2::int", "it's \\ $2", None) == [("it's \\ $2", None)]
    assert await client.rows("SELECT 1 WHERE date '2024-01-01' = $1", "2024-01-01") == [(1,)]
    assert await client.rows("SELECT $1", Parameter("7", "smallint")) == [(7,)]
    assert await client.rows("SELECT $1", [1, None]) == [([1, None],)]
    with pytest.raises(InvalidRequest):
        await client.rows("SELECT $2", 1)


async def test_describe(client: Client) -> None:
    shape = await client.connection.describe(client.request("SELECT $1::date AS d, $2 || 'x' AS t"))
    assert shape.parameter_types == ("date", "text")
    assert shape.schema == pa.schema([("d", pa.date32()), ("t", pa.string())])
    shape = await client.connection.describe(client.request("CREATE TABLE nothing_happens (a int)"))
    assert shape.schema is None
    await client.done("BEGIN")
    await client.done("CREATE TABLE only_here (a numeric(5,1))")
    shape = await client.connection.describe(client.request("SELECT a FROM only_here"))
    assert shape.schema == pa.schema([("a", pa.decimal128(5, 1))])
    await client.done("ROLLBACK")


async def test_transactions(client: Client) -> None:
    assert await client.done("START TRANSACTION ISOLATION LEVEL SERIALIZABLE") == ("START TRANSACTION", None)
    assert await client.rows("SHOW transaction_isolation") == [("serializable",)]
    await client.done("SAVEPOINT a")
    with pytest.raises(EngineError):
        await client.rows("SELECT 1/0")
    assert client.transaction == "failed"
    with pytest.raises(TransactionFailed):
        await client.rows("SELECT 1")
    await client.done("ROLLBACK TO SAVEPOINT a")
    assert client.transaction == "open"
    assert await client.rows("SELECT 1") == [(1,)]
    with pytest.raises(EngineError):
        await client.rows("SELECT 1/(5-x) FROM generate_series(1, 10) x")
    assert await client.done("COMMIT") == ("ROLLBACK", None)
    assert client.transaction == "idle"
    with pytest.raises(EngineError):
        await client.done("INSERT INTO no_such_table VALUES (1)")
    assert client.transaction == "idle"


async def test_a_stream_in_a_transaction(client: Client) -> None:
    await client.done("BEGIN")
    answer = await client.execute("SELECT generate_series(1, 100000)")
    assert isinstance(answer, Batches)
    assert (await drained(answer)).num_rows == 100_000
    assert client.transaction == "open"
    await client.done("COMMIT")


async def test_a_short_stream_that_is_left_in_a_transaction_harms_nothing(client: Client) -> None:
    await client.done("BEGIN")
    answer = await client.execute("SELECT generate_series(1, 1000)")
    assert isinstance(answer, Batches)
    await answer.close()
    assert client.transaction == "open"
    await client.done("COMMIT")


async def test_a_stream_that_is_left_keeps_session_state(client: Client) -> None:
    await client.done("CREATE TEMP TABLE kept AS SELECT 1 AS a")
    for sql in (BIG, "SELECT 1"):
        answer = await client.execute(sql)
        assert isinstance(answer, Batches)
        await answer.next()
        await answer.close()
        assert await client.rows("SELECT a FROM kept") == [(1,)]


async def test_session_state_that_is_lost_is_not_done_without(
    make: Make, postgres_server: PostgresServer
) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        await client.done("SET application_name = 'mine'")
        link.cut()
        for _ in range(2):
            with pytest.raises(EngineConnectionLost):
                await client.rows("SELECT 1")
        await client.close()
        await engine.close()


async def test_the_default_schema_may_change(engine: PostgresEngine, client: Client) -> None:
    await client.done("CREATE SCHEMA IF NOT EXISTS moved")
    await client.done("CREATE TABLE IF NOT EXISTS moved.there AS SELECT 1 AS a")
    client.session = Session(protocol=ClientProtocol.TRINO_HTTP, database="moved")
    assert await client.rows("SELECT a FROM there") == [(1,)]
    await client.done("BEGIN")
    client.session = Session(protocol=ClientProtocol.TRINO_HTTP)
    with pytest.raises(EngineError):
        await client.rows("SELECT a FROM there")
    await client.done("ROLLBACK")
    await client.done("DROP SCHEMA moved CASCADE")


async def test_a_stream_that_is_left_in_a_transaction_fails_it(client: Client) -> None:
    await client.done("BEGIN")
    answer = await client.execute(BIG)
    assert isinstance(answer, Batches)
    await answer.next()
    await answer.close()
    assert client.transaction == "failed"
    with pytest.raises(TransactionFailed):
        await client.rows("SELECT 1")
    assert await client.done("ROLLBACK") == ("ROLLBACK", None)
    assert await client.rows("SELECT 1") == [(1,)]


async def test_a_cancelled_statement_leaves_a_transaction_to_roll_back(
    postgres_server: PostgresServer, client: Client
) -> None:
    await client.done("BEGIN")
    waiting = asyncio.create_task(client.rows("SELECT pg_sleep(600)"))
    await sleeping(postgres_server, 1)
    await client.connection.cancel()
    with pytest.raises(QueryCancelled):
        await waiting
    assert client.transaction == "failed"
    await client.done("ROLLBACK")
    assert await client.rows("SELECT 1") == [(1,)]


async def sleeping(server: PostgresServer, count: int) -> None:
    async def there() -> bool:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(6%'"
        return bool(server.scalar(sql + " AND pid <> pg_backend_pid()") == count)

    await until(there)


async def test_cancel_of_what_is_no_query(postgres_server: PostgresServer, client: Client) -> None:
    for sql in (
        "DO $$ BEGIN PERFORM pg_sleep(600); END $$",
        "CREATE TABLE slow AS SELECT 1 FROM pg_sleep(600)",
    ):
        waiting = asyncio.create_task(client.execute(sql))
        await sleeping(postgres_server, 1)
        await client.connection.cancel()
        with pytest.raises(QueryCancelled):
            await waiting
        await sleeping(postgres_server, 0)


async def test_cancel_at_once(client: Client) -> None:
    for pause in (0, 0, 0.001, 0.002, 0.005):
        waiting = asyncio.create_task(client.rows("SELECT pg_sleep(600)"))
        await asyncio.sleep(pause)
        async with asyncio.timeout(10):
            await client.connection.cancel()
        if not waiting.done() and pause == 0:
            waiting.cancel()
        with pytest.raises((QueryCancelled, asyncio.CancelledError)):
            await waiting
        assert await client.rows("SELECT 1") == [(1,)]


async def test_lanes_are_bounded_and_waiting_can_be_cancelled(engine: PostgresEngine) -> None:
    clients = [Client(engine) for _ in range(6)]
    for client in clients[:3]:
        await client.done("BEGIN")
    waiting = [asyncio.create_task(client.rows("SELECT 1")) for client in clients[3:]]
    await asyncio.sleep(0.01)
    await clients[3].connection.cancel()
    with pytest.raises(QueryCancelled):
        await waiting[0]
    for client in clients[:3]:
        await client.done("COMMIT")
    assert await asyncio.gather(*waiting[1:]) == [[(1,)], [(1,)]]
    assert engine.lanes.pool.count <= 3
    for client in clients:
        await client.close()


async def test_a_link_cut_in_the_midst_of_a_stream(make: Make, postgres_server: PostgresServer) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        assert await client.rows("SELECT 1") == [(1,)]
        link.cut_after = 5_000_000
        with pytest.raises(EngineConnectionLost):
            await client.rows(BIG)
        link.cut_after = None
        assert await client.rows("SELECT 1") == [(1,)]
        link.cut()
        assert await client.rows("SELECT 2") == [(2,)]
        await client.done("BEGIN")
        link.cut()
        with pytest.raises(EngineConnectionLost):
            await client.rows("SELECT 3")
        assert client.transaction == "failed"
        assert await client.done("COMMIT") == ("ROLLBACK", None)
        assert await client.rows("SELECT 4") == [(4,)]
        await client.close()
        await engine.close()


async def test_garbage_from_the_server(make: Make, postgres_server: PostgresServer) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        await client.rows("SELECT 1")
        link.garble_after = 2_000_000
        with pytest.raises(QueryFluxError):
            await client.rows(BIG)
        link.garble_after = None
        assert await client.rows("SELECT 1") == [(1,)]
        await client.close()
        await engine.close()


async def test_a_restarted_server(postgres_server: PostgresServer, engine: PostgresEngine) -> None:
    clients = [Client(engine) for _ in range(3)]
    for client in clients:
        await client.done("BEGIN")
    for client in clients:
        await client.done("COMMIT")
    postgres_server.restart()
    for client in clients:
        assert await client.rows("SELECT 1") == [(1,)]
        await client.close()


@pytest.mark.parametrize("user", ["scram", "md5", "trusted"])
async def test_authentication(make: Make, postgres_server: PostgresServer, user: str) -> None:
    client = Client(make(postgres_server.config(user=user)))
    assert await client.rows("SELECT current_user") == [(user,)]
    await client.close()


async def test_tls_and_refusals(make: Make, postgres_server: PostgresServer) -> None:
    postgres_server.needs_tls()
    verified = EngineTls(ca_file=str(postgres_server.ca_file))
    named = EngineTls(ca_file=str(postgres_server.ca_file), server_name="localhost")
    question = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    for tls in (verified, named, EngineTls(insecure_skip_verify=True)):
        client = Client(make(postgres_server.config(user="clear", tls=tls)))
        assert await client.rows(question) == [(True,)]
        await client.close()
    wrong = EngineTls(ca_file=str(postgres_server.ca_file), server_name="elsewhere.example")
    for config in (
        postgres_server.config(user="clear"),
        postgres_server.config(password="wrong"),
        postgres_server.config(tls=EngineTls()),
        postgres_server.config(tls=wrong),
    ):
        client = Client(make(config))
        with pytest.raises(EngineUnavailable) as caught:
            await client.rows("SELECT 1")
        assert "correct" not in str(caught.value)
        assert "wrong@" not in str(caught.value)
        await client.close()
