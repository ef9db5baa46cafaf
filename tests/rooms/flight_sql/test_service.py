"""Flight SQL over a whole pipeline and a scripted engine, without gRPC."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

from queryflux.engines.port import Capability, EngineRequest
from queryflux.frontends.flight_sql import service as service_module
from queryflux.frontends.flight_sql import transactions as transactions_module
from queryflux.frontends.flight_sql.caller import Client
from queryflux.frontends.flight_sql.handles import Limits
from queryflux.frontends.flight_sql.marks import numbered
from queryflux.frontends.flight_sql.service import FlightSqlService
from queryflux.frontends.flight_sql.stream import Opened
from queryflux.frontends.flight_sql.updates import Update
from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    AccessDenied,
    EngineError,
    InvalidRequest,
    NotSupported,
    QueryEnded,
    QueryFluxError,
    QueryNotFound,
    ShuttingDown,
    StatementTooLarge,
    TooManyConnections,
    TransactionFailed,
    Unavailable,
)
from queryflux.model.statement import Parameter
from queryflux.results.answer import Done
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message, encode
from tests.kit.metrics import NoMetrics
from tests.kit.pipelines import Bench, bench, identity
from tests.kit.scripted import ScriptedEngine, Step

TAG = "test2"
ANNE = Client(identity("anne"), {"x-workload": "bi"}, "127.0.0.1:1")
BOB = Client(identity("bob"), {}, "127.0.0.1:2")
COMMIT, ROLLBACK = m.EndTransaction.COMMIT, m.EndTransaction.ROLLBACK


class Setting:
    """A service over one scripted engine."""

    def __init__(
        self, script: Callable[[EngineRequest], Step] | None, most_results: int, **engine: Any
    ) -> None:
        self.engine = ScriptedEngine(script=script, **engine)
        self.bench: Bench = bench(self.engine)
        self.service = FlightSqlService(
            self.bench.pipeline,
            self.bench.clock,
            TAG,
            most_results=most_results,
            refused=NoMetrics().counter("refused"),
        )

    async def query(self, sql: str, transaction: bytes = b"", client: Client = ANNE) -> Opened:
        return await self.fetch(m.CommandStatementQuery(sql, transaction), client)

    async def fetch(self, command: Message, client: Client = ANNE) -> Opened:
        ticket, _ = await self.service.ticket(client, command)
        opened = Opened()
        await self.service.open(client, ticket, opened)
        return opened

    async def table(self, command: Message) -> pa.Table:
        opened = await self.fetch(command)
        return pa.Table.from_batches(await rest(opened), opened.schema)

    @property
    def reasons(self) -> list[EndReason]:
        return [record.reason for record in self.bench.history.newest()][::-1]


async def rest(opened: Opened) -> list[pa.RecordBatch]:
    batches = []
    while (batch := await opened.next()) is not None:
        batches.append(batch)
    return batches


@asynccontextmanager
async def setting(
    script: Callable[[EngineRequest], Step] | None = None, *, most_results: int = 0, **engine: Any
) -> AsyncIterator[Setting]:
    made = Setting(script, most_results, **engine)
    yield made
    await made.service.close()
    await made.bench.pipeline.close()
    assert made.engine.running == 0
    assert made.engine.open_connections == 0
    assert all(member.running == 0 for member in made.bench.members.values())


async def at_work(made: Setting) -> None:
    """Return when the engine runs a statement."""
    async with asyncio.timeout(10):
        while made.engine.running == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)


def numbers(count: int) -> pa.Table:
    return pa.table({"x": pa.array(range(count), pa.int64())})


# Tickets and results.


async def test_a_statement_runs_when_its_ticket_is_used() -> None:
    async with setting(lambda _: Step(table=numbers(5), rows_per_batch=2)) as s:
        ticket, schema = await s.service.ticket(ANNE, m.CommandStatementQuery("SELECT x FROM t"))
        assert schema is None
        assert s.engine.requests == []
        opened = Opened()
        await s.service.open(ANNE, ticket, opened)
        assert opened.schema == numbers(0).schema
        assert [batch.num_rows for batch in await rest(opened)] == [2, 2, 1]
        assert await opened.next() is None
        assert s.engine.statements == ["SELECT x FROM t"]
        assert s.engine.requests[0].session.extra == {"x-workload": "bi"}
        assert s.reasons == [EndReason.COMPLETED]


async def test_a_ticket_is_used_once_and_by_its_owner_within_300_seconds() -> None:
    async with setting() as s:
        ticket, _ = await s.service.ticket(ANNE, m.CommandStatementQuery("SELECT 1"))
        with pytest.raises(AccessDenied):
            await s.service.open(BOB, ticket, Opened())
        await rest_of(s, ticket)
        with pytest.raises(QueryNotFound):
            await s.service.open(ANNE, ticket, Opened())
        late, _ = await s.service.ticket(ANNE, m.CommandStatementQuery("SELECT 1"))
        await s.bench.clock.advance(301)
        with pytest.raises(QueryNotFound):
            await s.service.open(ANNE, late, Opened())
        for no_ticket in (b"", b"x", m.pack(m.CommandStatementQuery("SELECT 1"))):
            with pytest.raises(InvalidRequest):
                await s.service.open(ANNE, no_ticket, Opened())


async def rest_of(s: Setting, ticket: bytes) -> list[pa.RecordBatch]:
    opened = Opened()
    await s.service.open(ANNE, ticket, opened)
    return await rest(opened)


async def test_a_statement_without_rows_gives_an_empty_result() -> None:
    async with setting(lambda _: Step(done=Done("CREATE TABLE"))) as s:
        opened = await s.query("CREATE TABLE t (x int)")
        assert opened.schema == pa.schema([])
        assert await rest(opened) == []


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("", InvalidRequest),
        (" -- nothing\n", InvalidRequest),
        ("BEGIN", InvalidRequest),
        ("commit", InvalidRequest),
        ("SELECT 1; SELECT 2", InvalidRequest),
        ("SET x = 1", NotSupported),
        ("USE other", NotSupported),
        ("SELECT '" + "x" * (2 << 20) + "'", StatementTooLarge),
    ],
)
async def test_statements_that_are_refused(sql: str, kind: type[QueryFluxError]) -> None:
    async with setting() as s:
        for command in (m.CommandStatementQuery(sql), m.CommandStatementUpdate(sql)):
            with pytest.raises(kind):
                await (
                    s.fetch(command)
                    if isinstance(command, m.CommandStatementQuery)
                    else s.service.update(ANNE, command, Update())
                )
        with pytest.raises(kind):
            await s.service.prepare(ANNE, m.ActionCreatePreparedStatementRequest(sql))
        assert s.engine.requests == []


async def test_one_statement_may_end_in_a_semicolon() -> None:
    async with setting() as s:
        assert len(await rest(await s.query("SELECT ';' AS x;"))) == 1


async def test_an_error_of_the_engine_before_and_amid_the_rows() -> None:
    steps = [Step(error=EngineError("no table t")), Step(table=numbers(4), rows_per_batch=2, fail_after=1)]
    async with setting(lambda _: steps.pop(0)) as s:
        with pytest.raises(EngineError, match="no table"):
            await s.query("SELECT 1")
        opened = await s.query("SELECT 2")
        assert await opened.next() is not None
        with pytest.raises(EngineError, match="midway"):
            await opened.next()
        assert s.reasons == [EndReason.FAILED, EndReason.FAILED]


async def test_a_client_that_goes_away_ends_its_query() -> None:
    gate = asyncio.Semaphore(1)
    async with setting(lambda _: Step(table=numbers(4), rows_per_batch=1, batch_gate=gate)) as s:
        opened = await s.query("SELECT x")
        assert await opened.next() is not None
        await opened.close()
        await opened.close()
        assert s.engine.running == 0
        waiting = Opened()
        ticket, _ = await s.service.ticket(ANNE, m.CommandStatementQuery("SELECT y"))
        s.engine.script = lambda _: Step(gate=asyncio.Event())
        opening = asyncio.ensure_future(s.service.open(ANNE, ticket, waiting))
        await at_work(s)
        opening.cancel()
        await asyncio.wait({opening})
        await waiting.close()
        assert s.engine.running == 0
        assert s.reasons == [EndReason.CLIENT_GONE, EndReason.CLIENT_GONE]


async def test_results_at_a_time_are_bounded() -> None:
    async with setting(most_results=1) as s:
        first = await s.query("SELECT 1")
        with pytest.raises(TooManyConnections):
            await s.query("SELECT 2")
        await rest(first)
        await rest(await s.query("SELECT 3"))


async def test_draining_refuses_new_work_and_ends_what_is_open() -> None:
    async with setting(lambda _: Step(table=numbers(4), rows_per_batch=1)) as s:
        opened = await s.query("SELECT 1")
        s.service.draining = True
        with pytest.raises(ShuttingDown):
            await s.query("SELECT 2")
        with pytest.raises(ShuttingDown):
            await s.service.begin(ANNE)
        waiting = asyncio.ensure_future(s.service.wait_for_results())
        assert len(await rest(opened)) == 4
        await waiting


# Cancel.


async def test_cancel_of_a_running_query_and_of_a_ticket() -> None:
    async with setting(lambda _: Step(gate=asyncio.Event())) as s:
        ticket, _ = await s.service.ticket(ANNE, m.CommandStatementQuery("SELECT 1"))
        opening = asyncio.ensure_future(s.service.open(ANNE, ticket, Opened()))
        await at_work(s)
        with pytest.raises(QueryFluxError):
            await s.service.cancel(BOB, info_of(ticket))
        assert s.engine.running == 1
        assert await s.service.cancel(ANNE, info_of(ticket)) is m.CancelStatus.CANCELLED
        with pytest.raises(QueryEnded):
            await opening
        assert s.reasons == [EndReason.CANCELLED]
        unused, _ = await s.service.ticket(ANNE, m.CommandStatementQuery("SELECT 1"))
        assert await s.service.cancel(ANNE, info_of(unused)) is m.CancelStatus.CANCELLED
        with pytest.raises(QueryNotFound):
            await s.service.open(ANNE, unused, Opened())


def info_of(ticket: bytes) -> bytes:
    endpoint = encode(m.FlightEndpoint(encode(m.Ticket(ticket))))
    return encode(m.FlightInfo((endpoint,)))


# Prepared statements and updates.


async def test_a_prepared_query() -> None:
    async with setting() as s:
        made = await s.service.prepare(ANNE, m.ActionCreatePreparedStatementRequest("SELECT ? AS x"))
        assert pa.ipc.read_schema(pa.py_buffer(made.dataset_schema)).names == ["x"]
        row = (Parameter(7, "int8"),)
        await s.service.bind(ANNE, made.handle, row, 8)
        with pytest.raises(AccessDenied):
            await s.service.bind(BOB, made.handle, row, 8)
        command = m.CommandPreparedStatementQuery(made.handle)
        _, promised = await s.service.ticket(ANNE, command)
        assert promised is None
        for _ in range(2):
            await rest(await s.fetch(command))
        assert [request.parameters for request in s.engine.requests] == [row, row]
        await s.service.close_prepared(ANNE, made.handle)
        with pytest.raises(QueryNotFound):
            await s.fetch(command)


async def test_what_is_kept_for_clients_is_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "TICKETS", Limits(most=100, most_bytes=1000, idle_secs=300))
    monkeypatch.setattr(service_module, "PREPARED", Limits(most=100, most_bytes=1000, idle_secs=300))
    async with setting() as s:
        made = await s.service.prepare(ANNE, m.ActionCreatePreparedStatementRequest("SELECT ? AS x"))
        for size in (900, 100, 900):
            await s.service.bind(ANNE, made.handle, (Parameter(7),), size)
        with pytest.raises(Unavailable):
            await s.service.bind(ANNE, made.handle, (Parameter(7),), 1000)
        command = m.CommandPreparedStatementQuery(made.handle)
        await s.service.ticket(ANNE, command)
        with pytest.raises(Unavailable):
            await s.service.ticket(ANNE, command)
        with pytest.raises(Unavailable):
            await s.service.ticket(ANNE, m.CommandGetDbSchemas(None, "x" * 200))
        with pytest.raises(StatementTooLarge):
            await s.service.ticket(ANNE, m.CommandGetDbSchemas(None, "x" * (2 << 20)))
        with pytest.raises(StatementTooLarge):
            await s.service.bind(ANNE, made.handle, (Parameter(7),), 2 << 20)


async def test_an_update_counts_its_rows() -> None:
    async with setting(lambda _: Step(done=Done("INSERT", 3))) as s:
        update = Update()
        insert = m.CommandStatementUpdate("INSERT INTO t VALUES (1)")
        row = await s.service.update(ANNE, insert, update)
        await update.run([row], more=False)
        assert await update.end(failed=False) == 3
        assert s.engine.statements == ["INSERT INTO t VALUES (1)"]


async def test_several_rows_are_one_transaction() -> None:
    async with setting(lambda _: Step(done=Done("INSERT", 1))) as s:
        handle = await prepared_insert(s)
        update = Update()
        await s.service.update(ANNE, m.CommandPreparedStatementUpdate(handle), update)
        await update.run([(Parameter(1),), (Parameter(2),)], more=True)
        await update.run([(Parameter(3),)], more=True)
        assert await update.end(failed=False) == 3
        assert [sql.split()[0] for sql in s.engine.statements] == ["BEGIN", *["INSERT"] * 3, "COMMIT"]


async def test_several_rows_of_which_one_fails_are_rolled_back() -> None:
    steps = [Step(done=Done("INSERT", 1)), Step(error=EngineError("duplicate key"))]
    async with setting(lambda _: steps.pop(0)) as s:
        handle = await prepared_insert(s, steps)
        update = Update()
        await s.service.update(ANNE, m.CommandPreparedStatementUpdate(handle), update)
        with pytest.raises(EngineError, match="duplicate"):
            await update.run([(Parameter(1),), (Parameter(2),)], more=False)
        await update.end(failed=True)
        assert s.engine.statements[-1] == "ROLLBACK"


async def test_an_update_whose_client_goes_as_it_begins_leaves_its_transaction_usable() -> None:
    async with setting() as s:
        transaction = await s.service.begin(ANNE)
        update = Update()
        await s.service.update(ANNE, m.CommandStatementUpdate("DELETE FROM t", transaction), update)
        # What the server's thread does when it never hears of the beginning.
        await update.end(failed=True)
        await update.end(failed=True)
        assert len(await rest(await s.query("SELECT 1", transaction))) == 1
    assert await Update().end(failed=True) == 0


async def test_a_long_statement_is_prepared_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[bool] = []

    def watched(text: str) -> str:
        here.append(threading.current_thread() is threading.main_thread())
        return numbered(text)

    monkeypatch.setattr(service_module, "numbered", watched)
    async with setting() as s:
        for length in (10, 20_000):
            sql = f"SELECT '{'x' * length}', ? AS x"
            made = await s.service.prepare(ANNE, m.ActionCreatePreparedStatementRequest(sql))
            await s.service.bind(ANNE, made.handle, (Parameter(7, "int8"),), 8)
            await rest(await s.fetch(m.CommandPreparedStatementQuery(made.handle)))
            assert s.engine.requests[-1].sql == sql.replace("?", "$1")
    assert here == [True, False]


async def prepared_insert(s: Setting, steps: list[Step] | None = None) -> bytes:
    if steps is not None:
        steps.insert(0, Step())
    sql = "INSERT INTO t VALUES (?)"
    return (await s.service.prepare(ANNE, m.ActionCreatePreparedStatementRequest(sql))).handle


# Transactions.


@pytest.mark.parametrize(("action", "word"), [(COMMIT, "COMMIT"), (ROLLBACK, "ROLLBACK")])
async def test_a_transaction(action: m.EndTransaction, word: str) -> None:
    async with setting() as s:
        transaction = await s.service.begin(ANNE)
        for sql in ("SELECT 1", "SELECT 2"):
            await rest(await s.query(sql, transaction))
        with pytest.raises(AccessDenied):
            await s.query("SELECT 3", transaction, BOB)
        await s.service.end(ANNE, transaction, action)
        assert s.engine.statements == ["BEGIN", "SELECT 1", "SELECT 2", word]
        with pytest.raises(QueryNotFound):
            await s.query("SELECT 4", transaction)
        with pytest.raises(QueryNotFound):
            await s.service.end(ANNE, transaction, action)


async def test_a_commit_that_is_a_rollback_is_an_error() -> None:
    async with setting(lambda _: Step(error=EngineError("no table t"))) as s:
        transaction = await s.service.begin(ANNE)
        with pytest.raises(EngineError):
            await s.query("SELECT 1", transaction)
        with pytest.raises(TransactionFailed):
            await s.service.end(ANNE, transaction, COMMIT)


async def test_a_result_that_is_not_read_holds_up_a_commit_and_not_a_rollback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions_module, "TURN_SECONDS", 0.01)
    async with setting(lambda _: Step(table=numbers(4), rows_per_batch=1)) as s:
        transaction = await s.service.begin(ANNE)
        await s.query("SELECT 1", transaction)
        with pytest.raises(InvalidRequest, match="still running"):
            await s.query("SELECT 2", transaction)
        with pytest.raises(InvalidRequest, match="still running"):
            await s.service.end(ANNE, transaction, COMMIT)
        await s.service.end(ANNE, transaction, ROLLBACK)
        assert s.engine.running == 0


async def test_a_statement_that_waits_while_its_transaction_ends() -> None:
    async with setting(lambda _: Step(table=numbers(4), rows_per_batch=1)) as s:
        transaction = await s.service.begin(ANNE)
        first = await s.query("SELECT 1", transaction)
        ending = asyncio.ensure_future(s.service.end(ANNE, transaction, COMMIT))
        waiting = asyncio.ensure_future(s.query("SELECT 2", transaction))
        await asyncio.sleep(0.01)
        await rest(first)
        await ending
        with pytest.raises(QueryNotFound):
            await waiting
        assert s.engine.statements == ["BEGIN", "SELECT 1", "COMMIT"]


async def test_an_engine_without_transactions_begins_none() -> None:
    async with setting(capabilities=frozenset({Capability.CANCEL})) as s:
        with pytest.raises(NotSupported):
            await s.service.begin(ANNE)
        info = await s.table(m.CommandGetSqlInfo((8,)))
        assert info.column(1).to_pylist() == [0]


async def test_a_transaction_that_nobody_uses_is_rolled_back() -> None:
    async with setting() as s:
        transaction = await s.service.begin(ANNE)
        await rest(await s.query("SELECT 1", transaction))
        await s.bench.clock.advance(1900)
        assert s.engine.open_connections == 0
        with pytest.raises(QueryNotFound):
            await s.query("SELECT 2", transaction)


async def test_a_client_that_says_goodbye_leaves_no_transaction() -> None:
    async with setting() as s:
        left = await s.service.begin(ANNE)
        await rest(await s.query("SELECT 1", left))
        elsewhere = Client(ANNE.identity, {}, "127.0.0.1:3")
        for other in (BOB, elsewhere):
            await s.service.close_session(other)
        assert len(await rest(await s.query("SELECT 2", left))) == 1
        await s.query("SELECT 3", left)
        await s.service.close_session(ANNE)
        assert s.engine.open_connections == 0
        assert s.engine.running == 0
        with pytest.raises(QueryNotFound):
            await s.query("SELECT 4", left)


async def test_clients_that_share_a_connection_keep_their_transactions() -> None:
    async with setting() as s:
        both = [await s.service.begin(ANNE) for _ in range(2)]
        await s.service.close_session(ANNE)
        for transaction in both:
            await rest(await s.query("SELECT 1", transaction))


async def test_ends_that_make_no_sense() -> None:
    async with setting() as s:
        transaction = await s.service.begin(ANNE)
        for action in (0, 3):
            with pytest.raises(InvalidRequest):
                await s.service.end(ANNE, transaction, action)
        with pytest.raises(InvalidRequest):
            await s.service.end(ANNE, b"nonsense", COMMIT)


# Metadata.


async def test_what_is_answered_without_the_engine() -> None:
    async with setting() as s:
        assert (await s.table(m.CommandGetTableTypes())).to_pydict() == {"table_type": ["TABLE", "VIEW"]}
        for command in (m.CommandGetPrimaryKeys(), m.CommandGetImportedKeys(), m.CommandGetExportedKeys()):
            assert (await s.table(command)).num_rows == 0
        info = await s.table(m.CommandGetSqlInfo())
        facts = dict(zip(*(column.to_pylist() for column in info.columns), strict=True))
        assert facts[0] == "QueryFlux"
        assert facts[8] == 1
        assert (await s.table(m.CommandGetSqlInfo((3, 99_999)))).to_pydict() == {
            "info_name": [3],
            "value": [False],
        }
        assert s.engine.requests == []


async def test_schemas_without_running_anything() -> None:
    async with setting(lambda _: Step(table=numbers(1))) as s:
        assert await s.service.schema(ANNE, m.CommandStatementQuery("SELECT x")) == numbers(0).schema
        assert (await s.service.schema(ANNE, m.CommandGetCatalogs())).names == ["catalog_name"]
        with pytest.raises(InvalidRequest):
            await s.service.schema(ANNE, m.CommandStatementUpdate("DELETE FROM t"))
        with pytest.raises(InvalidRequest):
            await s.service.ticket(ANNE, m.CommandStatementUpdate("DELETE FROM t"))
        assert s.engine.requests == []
