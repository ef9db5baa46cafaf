"""Transactions: what they hold, for how long, and how they end."""

import asyncio

import pytest

from queryflux.config.routers import QueryRegexRouter, QueryRegexRule
from queryflux.engines.port import Capability, EngineConnection, TransactionStatus
from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    AccessDenied,
    EngineConnectionLost,
    EngineError,
    InvalidRequest,
    NotSupported,
    QueryCancelled,
    QueryFluxError,
    TransactionFailed,
)
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.run import Run
from queryflux.results.answer import Answer, Done
from tests.kit.clock import settle
from tests.kit.pipelines import bench, statement
from tests.kit.scripted import ScriptedEngine, Step

pytestmark = pytest.mark.usefixtures("both_ways")

NO_TRANSACTIONS = frozenset({Capability.WRITES, Capability.CANCEL})


async def say(talk: Talk, text: str) -> Answer:
    query = talk.submit(statement(text))
    answer = await query.start()
    while await query.next() is not None:
        pass
    await query.close()
    return answer


def expect(talk: Talk, status: TransactionStatus) -> None:
    assert talk.transaction is status


async def test_begin_takes_nothing_until_there_is_something_to_do() -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1)
    talk = table.talk()
    assert await say(talk, "BEGIN") == Done("BEGIN")
    expect(talk, TransactionStatus.OPEN)
    assert engine.statements == []
    table.assert_idle()
    assert await say(talk, "COMMIT") == Done("COMMIT")
    expect(talk, TransactionStatus.IDLE)
    assert engine.statements == []
    assert table.records == []


async def test_a_transaction_keeps_its_slot_and_connection_to_its_end() -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1)
    talk = table.talk()
    await say(talk, "BEGIN ISOLATION LEVEL SERIALIZABLE")
    await say(talk, "SELECT 1")
    await say(talk, "SELECT 2")
    assert table.members["scripted"].running == 1
    assert engine.statements[0] == "START TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    assert engine.statements[1:] == ["SELECT 1", "SELECT 2"]
    assert len(engine.connections) == 1
    waiting = table.talk().submit(statement("SELECT 3"))
    assert waiting.waiting
    await say(talk, "COMMIT")
    await waiting.start()
    await waiting.close()
    assert engine.statements[3:] == ["COMMIT", "SELECT 3"]
    assert [record.sql_text for record in table.records] == ["SELECT 1", "SELECT 2", "SELECT 3"]
    table.assert_idle()


async def test_commit_does_not_wait_for_room() -> None:
    table = bench(ScriptedEngine(), limit=1)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    queued = [table.talk().submit(statement()) for _ in range(3)]
    assert await say(talk, "COMMIT") == Done("COMMIT")
    for query in queued:
        await query.start()
        await query.close()
    table.assert_idle()


async def test_a_failed_transaction_can_only_be_rolled_back() -> None:
    engine = ScriptedEngine(
        script=lambda request: Step(error=EngineError("boom")) if "bad" in request.sql else Step()
    )
    table = bench(engine)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    with pytest.raises(EngineError, match="boom"):
        await say(talk, "SELECT bad")
    expect(talk, TransactionStatus.FAILED)
    with pytest.raises(EngineError, match="failed"):
        await say(talk, "SELECT 2")
    assert await say(talk, "COMMIT") == Done("ROLLBACK"), "the client is told that nothing was kept"
    table.assert_idle()
    await say(talk, "SELECT 3")


async def test_a_transaction_that_idles_too_long_is_rolled_back() -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1, idle_in_transaction_secs=60)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    await table.clock.advance(59)
    await say(talk, "SELECT 2")
    await table.clock.advance(59)
    assert table.members["scripted"].running == 1, "a statement starts the time anew"
    await table.clock.advance(2)
    table.assert_idle()
    expect(talk, TransactionStatus.FAILED)
    with pytest.raises(TransactionFailed, match="idle for longer than 60 s"):
        await say(talk, "SELECT 3")
    assert await say(talk, "COMMIT") == Done("ROLLBACK")
    await say(talk, "SELECT 4")
    table.assert_idle()


async def test_a_statement_that_runs_is_not_idle() -> None:
    gate = asyncio.Event()
    engine = ScriptedEngine(script=lambda request: Step(gate=gate if "slow" in request.sql else None))
    table = bench(engine, idle_in_transaction_secs=60)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    slow = asyncio.create_task(say(talk, "SELECT slow"))
    await table.clock.advance(600)
    gate.set()
    await slow
    expect(talk, TransactionStatus.OPEN)
    await talk.close()


async def test_a_client_that_goes_gives_everything_back() -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    await talk.close()
    assert engine.open_connections == 0
    await settle()
    assert table.clock.pending == 1, "only the health probe's timer is left"
    table.assert_idle()


async def test_a_client_that_goes_while_its_query_runs() -> None:
    engine = ScriptedEngine(script=lambda request: Step(gate=asyncio.Event()))
    table = bench(engine)
    talk = table.talk()
    running = asyncio.create_task(talk.submit(statement()).start())
    await settle()
    await talk.close()
    with pytest.raises(QueryFluxError):
        await running
    assert engine.open_connections == 0
    table.assert_idle()


async def test_without_transactions_reads_pass_and_writes_are_refused() -> None:
    engine = ScriptedEngine(capabilities=NO_TRANSACTIONS)
    table = bench(engine)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    expect(talk, TransactionStatus.OPEN)
    with pytest.raises(NotSupported, match="no transactions"):
        await say(talk, "INSERT INTO t VALUES (1)")
    await say(talk, "COMMIT")
    assert engine.statements == ["SELECT 1"]
    await say(talk, "INSERT INTO t VALUES (1)")
    table.assert_idle()


async def test_several_statements_of_one_message_are_one_transaction() -> None:
    engine = ScriptedEngine()
    table = bench(engine)
    talk = table.talk()
    await talk.begin_implicit()
    await say(talk, "INSERT INTO t VALUES (1)")
    expect(talk, TransactionStatus.IDLE)
    await say(talk, "INSERT INTO t VALUES (2)")
    await talk.sync()
    assert [text.split()[0] for text in engine.statements] == ["BEGIN", "INSERT", "INSERT", "COMMIT"]
    table.assert_idle()


async def test_several_statements_of_which_one_fails_are_undone() -> None:
    engine = ScriptedEngine(
        script=lambda request: Step(error=EngineError("boom")) if "bad" in request.sql else Step()
    )
    table = bench(engine)
    talk = table.talk()
    await talk.begin_implicit()
    await say(talk, "INSERT INTO t VALUES (1)")
    with pytest.raises(EngineError):
        await say(talk, "INSERT INTO bad VALUES (2)")
    await talk.sync(failed=True)
    assert engine.statements[-1] == "ROLLBACK"
    expect(talk, TransactionStatus.IDLE)
    table.assert_idle()


async def test_begin_inside_a_batch_makes_the_transaction_the_clients() -> None:
    engine = ScriptedEngine()
    table = bench(engine)
    talk = table.talk()
    await talk.begin_implicit()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    await talk.sync()
    expect(talk, TransactionStatus.OPEN)
    await say(talk, "ROLLBACK")
    assert engine.statements == ["BEGIN", "SELECT 1", "ROLLBACK"]
    table.assert_idle()


async def test_a_session_variable_of_the_door_reaches_the_engine() -> None:
    engine = ScriptedEngine()
    table = bench(engine)
    talk = table.talk(database="sales")
    await say(talk, "SELECT 1")
    assert engine.requests[0].session.database == "sales"


async def test_a_transaction_lost_with_its_engine_has_to_be_rolled_back() -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    engine.connections[0].lose()
    with pytest.raises(EngineConnectionLost):
        await say(talk, "SELECT 2")
    table.assert_idle()
    expect(talk, TransactionStatus.FAILED)
    with pytest.raises(TransactionFailed, match="lost at the engine"):
        await say(talk, "SELECT 3")
    assert await say(talk, "COMMIT") == Done("ROLLBACK")
    await say(talk, "SELECT 4")
    table.assert_idle()


async def test_savepoints_where_the_engine_has_none() -> None:
    engine = ScriptedEngine(capabilities=frozenset(Capability) - {Capability.SAVEPOINTS})
    table = bench(engine)
    talk = table.talk()
    with pytest.raises(InvalidRequest, match="only be used in a transaction"):
        await say(talk, "SAVEPOINT a")
    await say(talk, "BEGIN")
    assert await say(talk, "SAVEPOINT a") == Done("SAVEPOINT")
    await say(talk, "SELECT 1")
    assert await say(talk, "RELEASE SAVEPOINT a") == Done("RELEASE")
    with pytest.raises(NotSupported, match="no savepoints"):
        await say(talk, "ROLLBACK TO SAVEPOINT a")
    await say(talk, "COMMIT")
    assert engine.statements == ["BEGIN", "SELECT 1", "COMMIT"]


async def test_savepoints_reach_an_engine_that_has_them() -> None:
    engine = ScriptedEngine()
    talk = bench(engine).talk()
    await say(talk, "BEGIN")
    await say(talk, "SAVEPOINT a")
    await say(talk, "ROLLBACK TO a")
    await say(talk, "COMMIT")
    assert engine.statements == ["BEGIN", "SAVEPOINT a", "ROLLBACK TO a", "COMMIT"]


DENY_DROP = QueryRegexRouter(rules=(QueryRegexRule(regex="(?i)drop", action="deny"),))


async def test_what_a_rule_denies_is_denied_in_a_transaction_too() -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1, routers=(DENY_DROP,))
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    with pytest.raises(AccessDenied):
        await say(talk, "DROP TABLE t")
    with pytest.raises(AccessDenied):
        await talk.describe(statement("DROP TABLE t"))
    expect(talk, TransactionStatus.OPEN)
    assert engine.statements == ["BEGIN", "SELECT 1"]
    assert [record.reason for record in table.records[1:]] == [EndReason.DENIED] * 2
    await say(talk, "COMMIT")
    table.assert_idle()


@pytest.mark.parametrize("refused", ["SELECT '" + "x" * 200 + "'", "DROP TABLE t"])
async def test_a_transaction_idles_on_after_a_statement_that_was_refused_at_the_start(refused: str) -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1, max_statement_bytes=100, idle_in_transaction_secs=60, routers=(DENY_DROP,))
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    with pytest.raises(QueryFluxError):
        await say(talk, refused)
    assert table.members["scripted"].running == 1
    await table.clock.advance(61)
    await settle()
    expect(talk, TransactionStatus.FAILED)
    table.assert_idle()


async def test_a_statement_refused_on_its_way_fails_the_transaction_and_keeps_its_slot() -> None:
    engine = ScriptedEngine(dialect="duckdb")
    table = bench(engine, limit=1, strict=True, idle_in_transaction_secs=60)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    with pytest.raises(QueryFluxError):
        await say(talk, "SELECT ) FROM")
    expect(talk, TransactionStatus.FAILED)
    assert table.members["scripted"].running == 1
    with pytest.raises(TransactionFailed):
        await say(talk, "SELECT 2")
    assert await say(talk, "COMMIT") == Done("ROLLBACK")
    assert engine.open_connections == 0
    table.assert_idle()


async def test_a_cancel_while_the_engine_hears_begin_stops_the_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1)
    talk = table.talk()
    await say(talk, "BEGIN")
    begins, goes_on = asyncio.Event(), asyncio.Event()
    before = talk.before_statement

    async def slow(run: Run, connection: EngineConnection) -> None:
        begins.set()
        await goes_on.wait()
        await before(run, connection)

    monkeypatch.setattr(talk, "before_statement", slow)
    query = talk.submit(statement("SELECT 1"))
    running = asyncio.ensure_future(query.start())
    await begins.wait()
    await query.cancel()
    goes_on.set()
    with pytest.raises(QueryCancelled):
        await running
    assert "SELECT 1" not in engine.statements
    await talk.close()
    table.assert_idle()
    assert engine.open_connections == 0


async def test_whoever_wants_a_query_ended_waits_until_the_engine_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, stopped = asyncio.Event(), asyncio.Event()
    engine = ScriptedEngine(script=lambda request: Step(gate=gate))
    table = bench(engine, limit=1)
    talk = table.talk()
    query = talk.submit(statement())
    running = asyncio.ensure_future(query.start())
    await settle()
    connection = engine.connections[0]
    cancel = connection.cancel

    async def slow() -> None:
        await stopped.wait()
        await cancel()

    monkeypatch.setattr(connection, "cancel", slow)
    first = asyncio.ensure_future(query.cancel())
    await settle()
    second = asyncio.ensure_future(talk.close())
    await settle()
    assert table.members["scripted"].running == 1
    stopped.set()
    with pytest.raises(QueryCancelled):
        await running
    await asyncio.gather(first, second)
    table.assert_idle()


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("START TRANSACTION", "BEGIN"),
        ("begin read only", "START TRANSACTION READ ONLY"),
        (
            "BEGIN ISOLATION  LEVEL SERIALIZABLE, READ ONLY",
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        ),
        ("BEGIN DEFERRABLE", "BEGIN"),
    ],
)
async def test_the_standard_modes_of_a_transaction_reach_the_engine(said: str, heard: str) -> None:
    engine = ScriptedEngine()
    talk = bench(engine).talk()
    await say(talk, said)
    await say(talk, "SELECT 1")
    assert engine.statements == [heard, "SELECT 1"]


async def test_and_chain_is_refused_and_not_forgotten() -> None:
    table = bench(ScriptedEngine())
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    with pytest.raises(NotSupported, match="AND CHAIN"):
        await say(talk, "COMMIT AND CHAIN")
    table.assert_idle()


async def test_a_batch_that_never_ends_is_rolled_back_and_its_end_says_so() -> None:
    engine = ScriptedEngine()
    table = bench(engine, limit=1, idle_in_transaction_secs=60)
    talk = table.talk()
    await talk.begin_implicit()
    await say(talk, "INSERT INTO t VALUES (1)")
    await table.clock.advance(61)
    table.assert_idle()
    with pytest.raises(TransactionFailed, match="idle for longer than 60 s"):
        await talk.sync()
    await say(talk, "SELECT 1")
    table.assert_idle()
