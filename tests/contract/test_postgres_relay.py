"""Relayed statements on a real PostgreSQL: what the PostgreSQL door asks of the engine."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from queryflux.config.clusters import ClusterConfig, EngineTls
from queryflux.engines.port import ConnectionSpec, EngineRequest, TransactionStatus
from queryflux.engines.postgres.connection import PostgresConnection
from queryflux.engines.postgres.engine import PostgresEngine
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    EngineErrorKind,
    EngineUnavailable,
    InvalidRequest,
    QueryCancelled,
    TransactionFailed,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.results.answer import Done, Frames
from queryflux.runtime.clock import SystemClock
from queryflux.wire.postgres import client as wire
from queryflux.wire.postgres.native import BoundQuery, DescribeStatement, ExtendedQuery, SimpleQuery
from tests.contract.engine_suite import Footprint, resident_bytes, until
from tests.kit.link import Link
from tests.kit.postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]

Native = SimpleQuery | ExtendedQuery | BoundQuery | DescribeStatement


@dataclass
class Result:
    """The messages of an answer."""

    kinds: str
    rows: list[list[bytes | None]]
    tags: list[str]
    error: Exception | None
    frames: list[bytes]


def read(frames: list[bytes], failure: Exception | None = None) -> Result:
    result = Result("", [], [], failure, frames)
    for frame in frames:
        messages = wire.ServerMessages()
        messages.feed(frame)
        while kind := messages.next():
            result.kinds += chr(kind)
            if kind == ord("D"):
                result.rows.append(wire.parse_data_row(messages.body))
            elif kind == ord("C"):
                result.tags.append(messages.body.rstrip(b"\0").decode())
        assert messages.empty, "a frame holds whole messages"
    return result


class Client:
    """A PostgreSQL client as the door presents it to the engine."""

    def __init__(self, engine: PostgresEngine, **startup: str) -> None:
        self.session = Session(protocol=ClientProtocol.POSTGRES_WIRE, extra=startup)
        self.identity = VerifiedIdentity("tester")
        made = engine.connect(ConnectionSpec(self.identity, self.session))
        assert isinstance(made, PostgresConnection)
        self.connection = made

    def request(self, native: Native | None, sql: str = "") -> EngineRequest:
        text = native.text if isinstance(native, SimpleQuery) else native.sql if native else sql
        return EngineRequest("q", text, self.session, self.identity, native=native)

    async def start(self, native: Native) -> Frames:
        answer = await self.connection.execute(self.request(native))
        assert isinstance(answer, Frames)
        return answer

    async def ask(self, native: Native) -> Result:
        return await drained(await self.start(native))

    async def simple(self, sql: str) -> Result:
        return await self.ask(SimpleQuery(sql))

    async def scalar(self, sql: str) -> str | None:
        result = await self.simple(sql)
        assert result.error is None, result.error
        value = result.rows[0][0]
        return None if value is None else value.decode()

    @property
    def transaction(self) -> str:
        return str(self.connection.transaction.value)

    def holds(self) -> bool:
        """Whether a server connection is held."""
        return self.connection.link is not None

    async def close(self) -> None:
        await self.connection.close()


async def drained(answer: Frames) -> Result:
    frames = []
    while (frame := await answer.next()) is not None:
        assert isinstance(frame, bytes)
        frames.append(frame)
    assert await answer.next() is None
    await answer.close()
    return read(frames, answer.failure)


def extended(
    sql: str,
    *values: bytes | None,
    oids: tuple[int, ...] = (),
    max_rows: int = 0,
    describe: bool = False,
    sync: bool = True,
    results: tuple[int, ...] = (),
) -> ExtendedQuery:
    return ExtendedQuery(sql, oids, (), values, results, max_rows, describe, sync)


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
        assert engine.pool.count == 0
    await before.restored()


@pytest.fixture
def engine(make: Make, postgres_server: PostgresServer) -> PostgresEngine:
    return make(postgres_server.config(pool_size=4))


@pytest.fixture
async def client(engine: PostgresEngine) -> AsyncIterator[Client]:
    client = Client(engine)
    yield client
    await client.close()


# Frames.


async def test_a_simple_query_is_relayed_without_ready_for_query(client: Client) -> None:
    result = await client.simple("SELECT 1 AS a, 'x' AS b")
    assert result.kinds == "TDC"
    assert result.rows == [[b"1", b"x"]]
    assert result.tags == ["SELECT 1"]
    assert len(result.frames) == 1


async def test_rows_are_counted_from_the_tag(client: Client) -> None:
    answer = await client.start(SimpleQuery("SELECT generate_series(1, 1000)"))
    await drained(answer)
    assert answer.rows == 1000


async def test_an_empty_query(client: Client) -> None:
    assert (await client.simple("")).kinds == "I"
    assert (await client.ask(extended(""))).kinds == "I"


async def test_several_statements_in_one_text(client: Client) -> None:
    result = await client.simple("SELECT 1; SELECT 2; SELECT 1/0; SELECT 3")
    assert result.kinds == "TDCTDCE"
    assert isinstance(result.error, EngineError)


async def test_an_error_is_a_frame_and_a_failure(client: Client) -> None:
    result = await client.simple("SELECT * FROM no_such_table")
    assert result.kinds == "E"
    assert isinstance(result.error, EngineError)
    assert result.error.kind is EngineErrorKind.TABLE_NOT_FOUND
    assert (result.error.sqlstate, result.error.position) == ("42P01", 14)
    assert await client.scalar("SELECT 1") == "1"


async def test_an_error_after_rows(client: Client) -> None:
    result = await client.simple("SELECT 1/(3-x) FROM generate_series(1,5) x")
    assert result.kinds == "TDDE"
    assert isinstance(result.error, EngineError)


async def test_notices_come_where_they_stand(client: Client) -> None:
    result = await client.simple("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
    assert result.kinds == "NC"


async def test_an_extended_query_hides_our_own_messages(client: Client) -> None:
    for _ in range(4):
        result = await client.ask(extended("SELECT $1::int + 1", b"41"))
        assert (result.kinds, result.rows) == ("DC", [[b"42"]])
    result = await client.ask(extended("SELECT $1::int + 1", b"41", describe=True))
    assert result.kinds == "TDC"
    result = await client.ask(extended("SET LOCAL work_mem = 1000", describe=True))
    assert result.kinds.replace("N", "") == "nC"


async def test_binary_results_and_null_parameters(client: Client) -> None:
    result = await client.ask(extended("SELECT $1::int8, $2::int8", b"7", None, results=(1,)))
    assert result.rows == [[struct.pack("!q", 7), None]]


async def test_a_statement_is_prepared_once_and_only_when_it_comes_back(
    engine: PostgresEngine, client: Client
) -> None:
    for _ in range(5):
        await client.ask(extended("SELECT $1::int", b"1"))
    link = engine.pool.take(())
    assert link is not None
    assert list(link.statements) == [("SELECT $1::int", ())]
    engine.pool.give(link)
    prepared = await client.scalar("SELECT count(*) FROM pg_prepared_statements")
    assert prepared == "1"


async def test_old_statements_are_closed(engine: PostgresEngine, client: Client) -> None:
    for n in range(300):
        for _ in range(2):
            await client.ask(extended(f"SELECT {n} + $1::int", b"1"))
    assert await client.scalar("SELECT count(*) FROM pg_prepared_statements") == "256"
    for n in range(300):
        assert (await client.ask(extended(f"SELECT {n} + $1::int", b"1"))).rows == [[b"%d" % (n + 1)]]


async def test_a_statement_that_does_not_parse_is_not_remembered(client: Client) -> None:
    for _ in range(3):
        result = await client.ask(extended("SELECT $1 FROM no_such_table", b"1"))
        assert isinstance(result.error, EngineError)
        assert result.error.sqlstate == "42P01"


async def test_a_plan_whose_result_changed_is_made_anew(client: Client) -> None:
    await client.simple("DROP TABLE IF EXISTS plan_changes; CREATE TABLE plan_changes (a int)")
    for _ in range(3):
        await client.ask(extended("SELECT * FROM plan_changes", describe=True))
    await client.simple("ALTER TABLE plan_changes ADD b text")
    result = await client.ask(extended("SELECT * FROM plan_changes", describe=True))
    assert (result.kinds, result.error) == ("TC", None)
    await client.simple("DROP TABLE plan_changes")


async def test_a_statement_that_was_deallocated_behind_our_back_is_made_anew(client: Client) -> None:
    for _ in range(3):
        await client.ask(extended("SELECT 5 + $1::int", b"1"))
    await client.simple("DO $$ BEGIN EXECUTE 'DEAL' || 'LOCATE ALL'; END $$")
    result = await client.ask(extended("SELECT 5 + $1::int", b"1"))
    assert (result.rows, result.error) == ([[b"6"]], None)
    await client.simple("DEALLOCATE ALL")
    assert (await client.ask(extended("SELECT 5 + $1::int", b"1"))).rows == [[b"6"]]
    await client.simple("DO $$ BEGIN EXECUTE 'DEAL' || 'LOCATE ALL'; END $$")
    result = await client.ask(extended("SELECT 5 + $1::int", b"1", sync=False))
    assert (result.rows, result.error) == ([[b"6"]], None)
    await client.connection.sync()


async def test_in_a_transaction_a_lost_statement_is_an_error(client: Client) -> None:
    for _ in range(3):
        await client.ask(extended("SELECT 6 + $1::int", b"1"))
    await client.simple("BEGIN")
    await client.simple("DO $$ BEGIN EXECUTE 'DEAL' || 'LOCATE ALL'; END $$")
    result = await client.ask(extended("SELECT 6 + $1::int", b"1"))
    assert isinstance(result.error, EngineError)
    assert result.error.sqlstate == "26000"
    await client.simple("ROLLBACK")
    assert (await client.ask(extended("SELECT 6 + $1::int", b"1"))).rows == [[b"7"]]


async def test_what_cannot_be_sent_is_refused_and_nothing_is_lost(
    engine: PostgresEngine, client: Client
) -> None:
    for native in (
        SimpleQuery("SELECT '\0'"),
        extended("SELECT '\0'"),
        extended("SELECT 1", *[b""] * 65536),
        SimpleQuery("SELECT '\ud800'"),
    ):
        with pytest.raises(InvalidRequest):
            await client.start(native)
        assert engine.pool.idle == engine.pool.count == 1
    assert await client.scalar("SELECT 1") == "1"


async def test_large_values_and_results(client: Client) -> None:
    result = await client.simple("SELECT repeat('x', 30000000)")
    assert result.kinds == "TDC"
    assert result.rows[0][0] is not None
    assert len(result.rows[0][0]) == 30_000_000
    value = b"y" * 5_000_000
    assert (await client.ask(extended("SELECT $1::text", value))).rows == [[value]]


async def test_a_slow_reader_keeps_memory_bounded(client: Client) -> None:
    start = resident_bytes()
    answer = await client.start(SimpleQuery("SELECT x, repeat('x', 500) FROM generate_series(1,400000) x"))
    seen = highest = 0
    while (frame := await answer.next()) is not None:
        assert isinstance(frame, bytes)
        seen += len(frame)
        highest = max(highest, resident_bytes())
    assert seen > 200_000_000
    assert answer.rows == 400_000
    assert highest - start < 48 * 1024 * 1024


# Batches, portals, transactions.


async def test_a_batch_keeps_its_connection_until_sync(engine: PostgresEngine, client: Client) -> None:
    await client.simple("DROP TABLE IF EXISTS batch; CREATE TABLE batch (a int UNIQUE)")
    for n in (b"1", b"2"):
        result = await client.ask(extended("INSERT INTO batch VALUES ($1)", n, oids=(23,), sync=False))
        assert result.kinds == "C"
        assert engine.pool.idle == 0
    other = Client(engine)
    assert await other.scalar("SELECT count(*) FROM batch") == "0"
    await client.connection.sync()
    assert engine.pool.idle == 2
    assert await other.scalar("SELECT count(*) FROM batch") == "2"
    result = await client.ask(extended("INSERT INTO batch VALUES (3)", sync=False))
    result = await client.ask(extended("INSERT INTO batch VALUES (1)", sync=False))
    assert result.kinds == "E"
    await client.connection.sync()
    assert await other.scalar("SELECT count(*) FROM batch") == "2"
    await client.ask(extended("INSERT INTO batch VALUES (4)", sync=False))
    await client.ask(extended("INSERT INTO batch VALUES (5)", sync=True))
    assert not client.holds()
    assert await other.scalar("SELECT count(*) FROM batch") == "4"
    await other.simple("DROP TABLE batch")
    await other.close()


async def test_describe_in_the_midst_of_a_batch(client: Client) -> None:
    await client.ask(extended("SELECT 1", sync=False))
    shape = await client.connection.describe(client.request(DescribeStatement("SELECT 2 AS b", ())))
    assert isinstance(shape.native, bytes)
    assert read([shape.native]).kinds == "tT"
    await client.ask(extended("SELECT 2", sync=True))
    assert not client.holds()


async def test_describe(client: Client) -> None:
    shape = await client.connection.describe(client.request(DescribeStatement("SELECT $1::date, 2", ())))
    assert isinstance(shape.native, bytes)
    assert read([shape.native]).kinds == "tT"
    shape = await client.connection.describe(client.request(DescribeStatement("DISCARD PLANS", ())))
    assert isinstance(shape.native, bytes)
    assert read([shape.native]).kinds == "tn"
    with pytest.raises(EngineError) as caught:
        await client.connection.describe(client.request(DescribeStatement("SELECT * FROM nowhere", ())))
    assert caught.value.sqlstate == "42P01"
    assert not client.holds()


async def test_a_portal_gives_rows_as_they_are_asked_for(client: Client) -> None:
    await client.simple("BEGIN")
    native = extended("SELECT generate_series(1, 5)", max_rows=2)
    answer = await client.start(native)
    first = await answer.next()
    assert isinstance(first, bytes)
    assert read([first]).kinds == "DDs"
    assert await client.scalar("SELECT 'meanwhile'") == "meanwhile"
    native.max_rows = 1
    second = await answer.next()
    assert isinstance(second, bytes)
    assert read([second]).kinds == "Ds"
    native.max_rows = 0
    rest = await drained(answer)
    assert rest.kinds == "DDC"
    assert client.transaction == "open"
    await client.simple("COMMIT")
    assert not client.holds()


async def test_a_portal_ends_with_its_transaction(client: Client) -> None:
    answer = await client.start(extended("SELECT generate_series(1, 5)", max_rows=2))
    frame = await answer.next()
    assert isinstance(frame, bytes)
    assert read([frame]).kinds == "DDs"
    assert not client.holds()
    assert await answer.next() is None
    answer = await client.start(extended("SELECT generate_series(1, 5)", max_rows=2, sync=False))
    assert await answer.next()
    assert client.holds()
    await answer.close()
    await client.connection.sync()
    assert not client.holds()
    with pytest.raises(QueryCancelled):
        await answer.next()


async def test_a_transaction_holds_one_connection(engine: PostgresEngine, client: Client) -> None:
    await client.simple("BEGIN")
    assert client.transaction == "open"
    pid = await client.scalar("SELECT pg_backend_pid()")
    assert await client.scalar("SELECT pg_backend_pid()") == pid
    await client.simple("SELECT 1/0")
    assert client.transaction == "failed"
    await client.simple("ROLLBACK")
    assert client.transaction == "idle"
    assert engine.pool.idle == engine.pool.count


async def test_transactions_that_the_pipeline_makes(client: Client) -> None:
    begun = await client.connection.execute(client.request(None, "BEGIN"))
    assert begun == Done("BEGIN")
    assert client.transaction == "open"
    await client.simple("CREATE TEMP TABLE t (a int)")
    ended = await client.connection.execute(client.request(None, "COMMIT"))
    assert isinstance(ended, Done)
    assert ended.tag == "COMMIT"
    assert client.transaction == "idle"


async def test_a_client_that_leaves_is_rolled_back(engine: PostgresEngine, client: Client) -> None:
    await client.simple("DROP TABLE IF EXISTS leaving; CREATE TABLE leaving (a int)")
    leaver = Client(engine)
    await leaver.simple("BEGIN")
    await leaver.simple("INSERT INTO leaving VALUES (1)")
    await leaver.close()
    assert await client.scalar("SELECT count(*) FROM leaving") == "0"
    batcher = Client(engine)
    await batcher.ask(extended("INSERT INTO leaving VALUES (1)", sync=False))
    await batcher.close()
    await client.simple("DROP TABLE leaving")
    assert engine.pool.idle == engine.pool.count


# Session state.


async def test_session_state_pins_and_is_reset(engine: PostgresEngine) -> None:
    for statement, question, dirty in (
        ("SET work_mem = '7MB'", "SHOW work_mem", "7MB"),
        ("SELECT set_config('work_mem', '8MB', false)", "SHOW work_mem", "8MB"),
        ("CREATE TEMP TABLE mine (a int)", "SELECT to_regclass('mine')", "mine"),
        ("LISTEN news", "SELECT pg_listening_channels()", "news"),
        ("SELECT pg_advisory_lock(42)", "SELECT count(*) FROM pg_locks WHERE locktype='advisory'", "1"),
        ("PREPARE p AS SELECT 1", "SELECT name FROM pg_prepared_statements WHERE name = 'p'", "p"),
    ):
        client = Client(engine)
        await client.simple(statement)
        assert client.holds(), statement
        assert await client.scalar(question) == dirty
        await client.close()
        assert engine.pool.idle == engine.pool.count == 1
        after = Client(engine)
        clean = await after.simple(question)
        assert [dirty.encode()] not in clean.rows, statement
        await after.close()


async def test_discard_all_frees_a_pinned_connection(engine: PostgresEngine, client: Client) -> None:
    await client.simple("SET work_mem = '7MB'")
    assert client.holds()
    await client.simple("DISCARD ALL")
    assert not client.holds()
    assert await client.scalar("SHOW work_mem") == "4MB"


async def test_tracked_settings_follow_the_client(engine: PostgresEngine) -> None:
    a = Client(engine, application_name="a", TimeZone="Asia/Tokyo", options='-c search_path="x\\ y",public')
    b = Client(engine, application_name="b", DateStyle="German")
    for _ in range(3):
        assert await a.scalar("SHOW application_name") == "a"
        assert await b.scalar("SHOW application_name") == "b"
        assert await a.scalar("SHOW TimeZone") == "Asia/Tokyo"
        assert await b.scalar("SHOW TimeZone") == "UTC"
        assert await b.scalar("SELECT date '2024-02-01'") == "01.02.2024"
        assert await a.scalar("SELECT date '2024-02-01'") == "2024-02-01"
    assert await a.scalar("SHOW search_path") == '"x y",public'
    assert not a.holds()
    await a.simple("SET extra_float_digits = 3")
    await a.simple("SET TIME ZONE 'Europe/Paris'")
    assert not a.holds()
    assert await b.scalar("SHOW TimeZone") == "UTC"
    assert await a.scalar("SHOW TimeZone") == "Europe/Paris"
    assert await a.scalar("SHOW extra_float_digits") == "3"
    await a.simple("RESET TimeZone")
    assert await b.scalar("SHOW TimeZone") == "UTC"
    assert await a.scalar("SHOW TimeZone") == "Asia/Tokyo"
    assert await a.scalar("SHOW extra_float_digits") == "3"
    await a.simple("RESET ALL")
    assert await a.scalar("SHOW TimeZone") == "Asia/Tokyo"
    assert await a.scalar("SHOW extra_float_digits") == "1"
    failed = await a.simple("SET TIME ZONE 'nowhere'")
    assert failed.kinds == "E"
    assert await a.scalar("SHOW TimeZone") == "Asia/Tokyo"
    await a.close()
    await b.close()


async def test_a_setting_that_the_server_refuses(engine: PostgresEngine) -> None:
    client = Client(engine, TimeZone="nowhere'; DROP TABLE x; --")
    with pytest.raises(EngineError) as caught:
        await client.simple("SELECT 1")
    assert caught.value.sqlstate == "22023"
    assert engine.pool.idle == engine.pool.count == 1
    await client.close()


# COPY.


def uploads(*messages: bytes) -> Callable[[], object]:
    queue = list(messages)

    async def upload() -> bytes:
        await asyncio.sleep(0)
        return queue.pop(0)

    return upload


def data(text: bytes) -> bytes:
    return b"d" + struct.pack("!I", len(text) + 4) + text


@pytest.fixture
async def copied(client: Client) -> AsyncIterator[Client]:
    await client.simple("DROP TABLE IF EXISTS copied; CREATE TABLE copied (a int, b text)")
    yield client
    await client.simple("DROP TABLE copied")


@pytest.mark.parametrize("kind", ["simple", "extended", "batch"])
async def test_copy_in(copied: Client, kind: str) -> None:
    async def copy(*messages: bytes) -> Result:
        native: SimpleQuery | ExtendedQuery = SimpleQuery("COPY copied FROM STDIN")
        if kind != "simple":
            native = extended("COPY copied FROM STDIN", sync=kind == "extended")
        native.upload = uploads(*messages)  # type: ignore[assignment]
        result = await copied.ask(native)
        if kind == "batch":
            await copied.connection.sync()
        return result

    result = await copy(data(b"1\tone\n"), data(b"2\ttwo\n"), wire.COPY_DONE)
    assert (result.kinds, result.tags, result.error) == ("GC", ["COPY 2"], None)
    result = await copy(data(b"3\tthree\n"), wire.copy_fail("changed my mind"))
    assert result.kinds == "GE"
    result = await copy(data(b"x\tone\n"), *[data(b"y\n" * 1000)] * 2000, wire.COPY_DONE)
    assert result.kinds == "GE"
    assert isinstance(result.error, EngineError)
    assert result.error.sqlstate == "22P02"
    assert await copied.scalar("SELECT count(*) FROM copied") == "2"
    assert not copied.holds()


async def test_copy_out(copied: Client) -> None:
    await copied.simple("INSERT INTO copied SELECT x, 'y' FROM generate_series(1, 3) x")
    result = await copied.simple("COPY copied TO STDOUT")
    assert result.kinds == "HdddcC"
    assert (await copied.ask(extended("COPY copied TO STDOUT"))).kinds == "HdddcC"


async def test_a_copy_whose_client_vanishes(copied: Client) -> None:
    started = asyncio.Event()

    async def upload() -> bytes:
        started.set()
        await asyncio.sleep(60)
        raise AssertionError

    for native in (
        SimpleQuery("COPY copied FROM STDIN", upload),
        ExtendedQuery("COPY copied FROM STDIN", (), (), (), (), sync=True, upload=upload),
    ):
        started.clear()
        answer = await copied.start(native)
        waiting = asyncio.create_task(drained(answer))
        await started.wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        async with asyncio.timeout(5):
            await answer.close()
        assert await copied.scalar("SELECT count(*) FROM copied") == "0"


async def test_a_second_copy_to_the_wrong_kind_of_statement(copied: Client) -> None:
    result = await copied.simple("COPY copied FROM STDIN; SELECT 1")
    assert result.kinds == "GE"


# Endings.


async def running(server: PostgresServer, count: int) -> None:
    async def there() -> bool:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE state='active' AND query LIKE '%pg_sleep(6%'"
        return bool(server.scalar(sql + " AND pid <> pg_backend_pid()") == count)

    await until(there)


@pytest.mark.parametrize(
    "native", [SimpleQuery("SELECT pg_sleep(600)"), extended("SELECT pg_sleep(600)", sync=False)]
)
async def test_cancel_before_the_first_row(
    postgres_server: PostgresServer, engine: PostgresEngine, client: Client, native: Native
) -> None:
    waiting = asyncio.create_task(client.ask(native))
    await running(postgres_server, 1)
    async with asyncio.timeout(10):
        await client.connection.cancel()
    with pytest.raises(QueryCancelled):
        await waiting
    await client.connection.sync()
    await running(postgres_server, 0)
    assert await client.scalar("SELECT 1") == "1"
    assert engine.pool.idle == engine.pool.count == 1


async def test_cancel_at_once_is_not_lost(engine: PostgresEngine, client: Client) -> None:
    for _ in range(10):
        waiting = asyncio.create_task(client.ask(SimpleQuery("SELECT pg_sleep(600)")))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await client.connection.cancel()
        with pytest.raises(QueryCancelled):
            await waiting
        assert await client.scalar("SELECT 1") == "1"
    assert engine.pool.idle == engine.pool.count


async def test_an_answer_closed_midway(engine: PostgresEngine, client: Client) -> None:
    big = "SELECT x, repeat('y', 1000) FROM generate_series(1, 5000000) x"
    for native in (SimpleQuery(big), extended(big), extended(big, sync=False)):
        answer = await client.start(native)
        await answer.next()
        async with asyncio.timeout(10):
            await answer.close()
        with pytest.raises(QueryCancelled):
            await answer.next()
        await client.connection.sync()
        assert await client.scalar("SELECT 1") == "1"
    await client.simple("BEGIN")
    answer = await client.start(SimpleQuery(big))
    await answer.next()
    await answer.close()
    assert client.transaction == "failed"
    await client.simple("ROLLBACK")
    assert engine.pool.idle == engine.pool.count


async def test_a_new_statement_ends_one_that_was_left(client: Client) -> None:
    answer = await client.start(SimpleQuery("SELECT x, repeat('y', 1000) FROM generate_series(1, 5000000) x"))
    assert await client.scalar("SELECT 2") == "2"
    await answer.close()


async def test_a_cancelled_task_stops_the_server(
    postgres_server: PostgresServer, engine: PostgresEngine, client: Client
) -> None:
    waiting = asyncio.create_task(client.ask(SimpleQuery("SELECT pg_sleep(600)")))
    await running(postgres_server, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await running(postgres_server, 0)
    assert await client.scalar("SELECT 1") == "1"


async def test_waiting_for_a_connection_can_be_cancelled(make: Make, postgres_server: PostgresServer) -> None:
    engine = make(postgres_server.config(pool_size=1))
    holder, waiter, third = Client(engine), Client(engine), Client(engine)
    await holder.simple("BEGIN")
    waiting = asyncio.create_task(waiter.simple("SELECT 1"))
    queued = asyncio.create_task(third.simple("SELECT 3"))
    await asyncio.sleep(0.01)
    await waiter.connection.cancel()
    with pytest.raises(QueryCancelled):
        await waiting
    await holder.simple("COMMIT")
    assert (await queued).rows == [[b"3"]]
    assert (await waiter.simple("SELECT 2")).rows == [[b"2"]]
    for client in (holder, waiter, third):
        await client.close()


async def test_more_clients_than_connections(engine: PostgresEngine) -> None:
    async def one(n: int) -> None:
        client = Client(engine)
        for _ in range(10):
            assert (await client.ask(extended("SELECT $1::int", b"%d" % n))).rows == [[b"%d" % n]]
        await client.close()

    await asyncio.gather(*(one(n) for n in range(40)))
    assert engine.pool.count <= 4


# Links that break.


async def test_a_link_cut_in_the_midst_of_a_row(make: Make, postgres_server: PostgresServer) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        await client.simple("SELECT 1")
        link.cut_after = 100_000
        with pytest.raises(EngineConnectionLost):
            await client.simple("SELECT repeat('x', 50000) FROM generate_series(1, 100)")
        link.cut_after = None
        assert await client.scalar("SELECT 1") == "1"
        await client.close()
        await engine.close()


async def test_a_server_that_talks_garbage(make: Make, postgres_server: PostgresServer) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        await client.simple("SELECT 1")
        link.garble_after = 50_000
        with pytest.raises(EngineConnectionLost):
            await client.simple("SELECT repeat('x', 500) FROM generate_series(1, 1000)")
        link.garble_after = 10
        with pytest.raises(EngineUnavailable):
            await client.simple("SELECT 1")
        link.garble_after = None
        assert await client.scalar("SELECT 1") == "1"
        await client.close()
        await engine.close()


async def test_a_transaction_whose_connection_is_lost_stays_failed_until_it_ends(
    make: Make, postgres_server: PostgresServer
) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        await client.simple("BEGIN")
        link.cut()
        with pytest.raises(EngineConnectionLost):
            await client.simple("INSERT INTO nowhere VALUES (1)")
        assert client.connection.transaction is TransactionStatus.FAILED
        with pytest.raises(TransactionFailed):
            await client.simple("SELECT 1")
        assert (await client.simple("COMMIT")).tags == ["ROLLBACK"]
        assert client.transaction == "idle"
        assert await client.scalar("SELECT 1") == "1"
        await client.close()
        await engine.close()


async def test_session_state_that_is_lost_is_not_done_without(
    make: Make, postgres_server: PostgresServer
) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        await client.simple("SET ROLE pg_read_all_data")
        link.cut()
        for _ in range(2):
            with pytest.raises(EngineConnectionLost):
                await client.simple("SELECT 1")
        await client.close()
        again = Client(engine)
        assert await again.scalar("SELECT current_user") == "scram"
        await again.close()
        await engine.close()


async def test_a_restarted_server(make: Make, postgres_server: PostgresServer) -> None:
    engine = make(postgres_server.config(pool_size=4))
    clients = [Client(engine) for _ in range(3)]
    for client in clients:
        await client.simple("BEGIN")
    for client in clients:
        await client.simple("COMMIT")
    assert engine.pool.idle == 3
    postgres_server.restart()
    for client in clients:
        assert await client.scalar("SELECT 1") == "1"
        await client.close()


async def test_a_backend_that_is_terminated_under_a_statement(
    postgres_server: PostgresServer, client: Client
) -> None:
    waiting = asyncio.create_task(client.simple("SELECT pg_sleep(600)"))
    await running(postgres_server, 1)
    postgres_server.scalar(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(6%'"
        " AND pid <> pg_backend_pid()"
    )
    with pytest.raises(EngineConnectionLost, match="57P01"):
        await waiting
    assert await client.scalar("SELECT 1") == "1"


async def test_a_server_that_does_not_answer_a_cancel(make: Make, postgres_server: PostgresServer) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        engine = make(postgres_server.config(port=link.port))
        client = Client(engine)
        await client.simple("SELECT 1")
        link.stall()
        waiting = asyncio.create_task(client.simple("SELECT pg_sleep(0.01)"))
        await asyncio.sleep(0.05)
        cancelling = asyncio.create_task(client.connection.cancel())
        await asyncio.sleep(0.3)
        link.resume()
        async with asyncio.timeout(10):
            await cancelling
        with pytest.raises(QueryCancelled):
            await waiting
        await client.close()
        await engine.close()


# Ways in.


@pytest.mark.parametrize("user", ["scram", "md5", "trusted"])
async def test_authentication(make: Make, postgres_server: PostgresServer, user: str) -> None:
    engine = make(postgres_server.config(user=user))
    await engine.probe()
    assert await Client(engine).scalar("SELECT current_user") == user


async def test_tls(make: Make, postgres_server: PostgresServer) -> None:
    postgres_server.needs_tls()
    question = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    verified = EngineTls(ca_file=str(postgres_server.ca_file))
    for tls, user in (
        (verified, "scram"),
        (verified, "clear"),
        (EngineTls(insecure_skip_verify=True), "clear"),
        (EngineTls(ca_file=str(postgres_server.ca_file), server_name="localhost"), "scram"),
    ):
        engine = make(postgres_server.config(user=user, tls=tls))
        client = Client(engine)
        assert await client.scalar(question) == "t"
        waiting = asyncio.create_task(client.simple("SELECT pg_sleep(600)"))
        await running(postgres_server, 1)
        await client.connection.cancel()
        with pytest.raises(QueryCancelled):
            await waiting
        await client.close()


async def test_refusals_say_why(make: Make, postgres_server: PostgresServer) -> None:
    postgres_server.needs_tls()
    unknown_ca = EngineTls()
    wrong_name = EngineTls(ca_file=str(postgres_server.ca_file), server_name="elsewhere.example")
    for config, reason in (
        (postgres_server.config(password="wrong"), "password authentication failed"),
        (postgres_server.config(user="clear"), "in clear"),
        (postgres_server.config(database="nowhere"), "does not exist"),
        (postgres_server.config(tls=unknown_ca), "certificate"),
        (postgres_server.config(tls=wrong_name), "certificate"),
        (postgres_server.config(tls=EngineTls(ca_file="/nowhere/ca.pem")), "CA file"),
        (postgres_server.config(port=1), "cannot be reached"),
    ):
        engine = make(config)
        with pytest.raises(EngineUnavailable, match=reason) as caught:
            await Client(engine).simple("SELECT 1")
        assert "correct horse" not in str(caught.value)
        with pytest.raises(EngineUnavailable):
            await engine.probe()
