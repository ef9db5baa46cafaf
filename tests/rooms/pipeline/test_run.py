"""A query from submission to its one ending, over scripted engines."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from queryflux.config.routers import QueryRegexRouter, QueryRegexRule
from queryflux.engines.port import Capability
from queryflux.model.endings import EndReason, QueryStatus
from queryflux.model.errors import (
    AccessDenied,
    CapacityTimeout,
    EngineConnectionLost,
    EngineError,
    EngineUnavailable,
    InternalError,
    NoCapacity,
    QueryCancelled,
    QueryFluxError,
    QueryTimedOut,
    QueueFull,
    ShuttingDown,
    StatementTooLarge,
    Unavailable,
)
from queryflux.pipeline.face import Query
from queryflux.pipeline.state import State
from queryflux.results.answer import Batches, Done
from tests.kit.clock import settle
from tests.kit.pipelines import bench, statement
from tests.kit.scripted import ScriptedEngine, Step

pytestmark = pytest.mark.usefixtures("both_ways")

ROWS = pa.table({"n": pa.array(range(10), pa.int64())})


async def drained(query: Query) -> int:
    answer = await query.start()
    assert isinstance(answer, Batches)
    rows = 0
    while (batch := await query.next()) is not None:
        rows += len(batch)  # type: ignore[arg-type]
    return rows


async def test_a_query_is_answered_and_remembered() -> None:
    engine = ScriptedEngine(script=lambda request: Step(ROWS, rows_per_batch=3))
    table = bench(engine)
    query = table.talk().submit(statement("SELECT n FROM t"))
    assert await drained(query) == 10
    await query.close()
    [record] = table.records
    assert record.status is QueryStatus.SUCCESS
    assert record.reason is EndReason.COMPLETED
    assert (record.rows_returned, record.cluster_group, record.cluster_name) == (10, "main", "scripted")
    assert record.proxy_query_id == query.id
    assert record.engine_stats is not None
    assert record.engine_stats.backend_query_id == "scripted-1"
    assert record.trace is not None
    assert record.trace()["final_group"] == "main"
    assert [line.id for line in table.log.lines] == [query.id]
    assert (
        table.metric(
            "queryflux_queries_total",
            engine_type="scripted",
            cluster_group="main",
            status="Success",
            protocol="PostgresWire",
        )
        == 1
    )
    table.assert_idle()


async def test_the_text_is_translated_for_the_engine() -> None:
    engine = ScriptedEngine(dialect="trino")
    table = bench(engine)
    await drained(table.talk().submit(statement("SELECT now()::date AS today")))
    assert engine.statements == ["SELECT CAST(CURRENT_TIMESTAMP AS DATE) AS today"]
    [record] = table.records
    assert record.translated_sql is not None
    assert (record.source_dialect, record.target_dialect) == ("postgres", "trino")


async def test_the_same_dialect_is_passed_on_as_it_is() -> None:
    engine = ScriptedEngine(dialect="postgres")
    table = bench(engine)
    await drained(table.talk().submit(statement("SELECT  1 -- as written")))
    assert engine.statements == ["SELECT  1 -- as written"]


async def test_what_does_not_parse_is_forwarded_or_refused_by_mode() -> None:
    engine = ScriptedEngine(dialect="duckdb")
    await drained(bench(engine).talk().submit(statement("SELECT FROM WHERE (")))
    assert engine.statements == ["SELECT FROM WHERE ("]
    strict = bench(ScriptedEngine(dialect="duckdb"), strict=True)
    with pytest.raises(QueryFluxError) as caught:
        await strict.talk().submit(statement("SELECT FROM WHERE (")).start()
    assert caught.value.code == "SYNTAX_ERROR"
    assert caught.value.position is not None
    assert strict.records[0].status is QueryStatus.FAILED
    strict.assert_idle()


async def test_a_count_ends_the_query_at_once() -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(done=Done("INSERT", 3))))
    answer = await table.talk().submit(statement("INSERT INTO t VALUES (1)")).start()
    assert isinstance(answer, Done)
    assert table.records[0].rows_returned == 3
    table.assert_idle()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (EngineError("no such table"), EngineError),
        (EngineConnectionLost("reset"), EngineConnectionLost),
        (ConnectionResetError("reset by peer"), EngineConnectionLost),
        (ZeroDivisionError("a bug"), InternalError),
    ],
)
async def test_an_error_of_the_engine_ends_it(error: Exception, raised: type[QueryFluxError]) -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(error=error)))
    with pytest.raises(raised):
        await table.talk().submit(statement()).start()
    [record] = table.records
    assert record.status is QueryStatus.FAILED
    assert record.error_code == raised.code
    table.assert_idle()


async def test_an_internal_error_shows_its_id_and_not_its_inside() -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(error=ZeroDivisionError("secret detail"))))
    query = table.talk().submit(statement())
    with pytest.raises(InternalError) as caught:
        await query.start()
    assert query.id in caught.value.message
    assert "secret" not in caught.value.message


async def test_an_error_in_the_middle_of_the_rows_ends_it() -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(ROWS, rows_per_batch=2, fail_after=2)))
    query = table.talk().submit(statement())
    with pytest.raises(EngineError, match="midway"):
        await drained(query)
    assert table.records[0].rows_returned == 4
    table.assert_idle()


async def test_a_reader_that_leaves_early_cancels_the_engine() -> None:
    engine = ScriptedEngine(script=lambda request: Step(ROWS, rows_per_batch=1))
    table = bench(engine)
    query = table.talk().submit(statement())
    await query.start()
    await query.next()
    await query.close()
    assert engine.cancels == 1
    assert table.records[0].reason is EndReason.CLIENT_GONE
    table.assert_idle()


async def test_cancel_while_the_engine_works() -> None:
    engine = ScriptedEngine(script=lambda request: Step(gate=asyncio.Event()))
    table = bench(engine)
    talk = table.talk()
    query = talk.submit(statement())
    starting = asyncio.create_task(query.start())
    await settle()
    await talk.cancel()
    assert table.records[0].reason is EndReason.CANCELLED
    with pytest.raises(QueryCancelled, match=query.id):
        await starting
    assert engine.cancels == 1
    table.assert_idle()


async def test_cancel_while_rows_stream() -> None:
    engine = ScriptedEngine(
        script=lambda request: Step(ROWS, rows_per_batch=1, batch_gate=asyncio.Semaphore(1))
    )
    table = bench(engine)
    query = table.talk().submit(statement())
    await query.start()
    await query.next()
    reading = asyncio.create_task(query.next())
    await settle()
    await query.cancel()
    with pytest.raises(QueryCancelled):
        await reading
    with pytest.raises(QueryCancelled):
        await query.next()
    assert [record.reason for record in table.records] == [EndReason.CANCELLED]
    table.assert_idle()


async def test_cancel_while_it_waits_for_room() -> None:
    gate = asyncio.Event()
    engine = ScriptedEngine(script=lambda request: Step(gate=gate))
    table = bench(engine, limit=1)
    first = asyncio.create_task(drained(table.talk().submit(statement())))
    second = table.talk().submit(statement("SELECT 2"))
    assert second.waiting
    starting = asyncio.create_task(second.start())
    await settle()
    await second.cancel()
    with pytest.raises(QueryCancelled):
        await starting
    gate.set()
    await first
    assert engine.statements == ["SELECT 1"]
    table.assert_idle()


async def test_a_task_that_is_cancelled_leaves_nothing_behind() -> None:
    engine = ScriptedEngine(script=lambda request: Step(gate=asyncio.Event()))
    table = bench(engine)
    starting = asyncio.create_task(table.talk().submit(statement()).start())
    await settle()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert table.records[0].reason is EndReason.CLIENT_GONE
    table.assert_idle()


async def test_a_query_that_runs_too_long_is_stopped() -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(gate=asyncio.Event())), query_timeout_secs=30)
    starting = asyncio.create_task(table.talk().submit(statement()).start())
    await table.clock.advance(29)
    assert not starting.done()
    await table.clock.advance(2)
    with pytest.raises(QueryTimedOut, match="30 s"):
        await starting
    assert table.records[0].reason is EndReason.TIMED_OUT
    table.assert_idle()


async def test_a_reader_that_has_what_it_wants_completes_without_an_error() -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(ROWS, rows_per_batch=1)))
    query = table.talk().submit(statement())
    await query.start()
    await query.next()
    await query.close(EndReason.COMPLETED)
    (record,) = table.records
    assert (record.reason, record.error_code, record.error_message) == (EndReason.COMPLETED, None, None)
    table.assert_idle()


async def test_a_time_limit_of_its_client_is_not_said_to_be_that_of_the_group() -> None:
    engine = ScriptedEngine(script=lambda request: Step(gate=asyncio.Event()))
    table = bench(engine, query_timeout_secs=30)
    query = table.talk().submit(statement())
    starting = asyncio.create_task(query.start())
    await table.clock.advance(1)
    await query.cancel(EndReason.TIMED_OUT)
    with pytest.raises(QueryTimedOut, match="longer than its client allows"):
        await starting
    assert table.records[0].reason is EndReason.TIMED_OUT
    table.assert_idle()


async def test_a_reader_that_stalls_is_held_to_the_time_limit_too() -> None:
    engine = ScriptedEngine(script=lambda request: Step(ROWS, rows_per_batch=1))
    table = bench(engine, query_timeout_secs=5)
    query = table.talk().submit(statement())
    await query.start()
    await query.next()
    await table.clock.advance(6)
    table.assert_idle()
    with pytest.raises(QueryTimedOut):
        await query.next()


async def test_waiting_is_in_the_record() -> None:
    gate = asyncio.Event()
    table = bench(ScriptedEngine(script=lambda request: Step(gate=gate)), limit=1)
    first = asyncio.create_task(drained(table.talk().submit(statement())))
    second = asyncio.create_task(drained(table.talk().submit(statement())))
    await table.clock.advance(3)
    gate.set()
    await asyncio.gather(first, second)
    assert [record.queue_duration_ms for record in table.records] == [0.0, 3000.0]
    assert table.metric("queryflux_queue_duration_seconds_sum", cluster_group="main") == 3.0


@pytest.mark.parametrize(
    ("settings", "error", "reason"),
    [
        ({"limit": 0}, NoCapacity, EndReason.NO_CAPACITY),
        ({"limit": 1, "max_queued": 0}, QueueFull, EndReason.QUEUE_FULL),
        ({"limit": 1, "wait_secs": 7}, CapacityTimeout, EndReason.CAPACITY_TIMEOUT),
    ],
)
async def test_no_room(settings: dict[str, Any], error: type[QueryFluxError], reason: EndReason) -> None:
    gate = asyncio.Event()
    table = bench(ScriptedEngine(script=lambda request: Step(gate=gate)), **settings)
    holder = asyncio.create_task(table.talk().submit(statement()).start())
    await settle()
    refused = asyncio.create_task(table.talk().submit(statement()).start())
    await table.clock.advance(8)
    with pytest.raises(error):
        await refused
    assert table.records[-1].reason is reason
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)
    table.assert_idle()


async def test_a_statement_that_is_too_large_reaches_nobody() -> None:
    engine = ScriptedEngine()
    table = bench(engine, max_statement_bytes=100)
    with pytest.raises(StatementTooLarge, match="maxStatementBytes"):
        await table.talk().submit(statement("SELECT '" + "é" * 60 + "'")).start()
    assert engine.statements == []
    assert len(table.records) == 1


async def test_a_denying_rule_is_recorded_with_its_trace() -> None:
    rule = QueryRegexRouter(rules=(QueryRegexRule(regex="(?i)^drop", action="deny", error="no DDL here"),))
    table = bench(ScriptedEngine(), routers=(rule,))
    with pytest.raises(AccessDenied, match="no DDL here"):
        await table.talk().submit(statement("DROP TABLE t")).start()
    [record] = table.records
    assert record.status is QueryStatus.DENIED
    assert record.trace is not None
    assert record.trace()["denied"] == "no DDL here"
    table.assert_idle()


async def test_an_unreachable_member_is_left_for_another() -> None:
    def refuse(_: object) -> Step:
        return Step(error=EngineUnavailable("connection refused"))

    down, up = ScriptedEngine("down", refuse), ScriptedEngine("up")
    table = bench(down, up)
    query = table.talk().submit(statement())
    assert await drained(query) == 1
    assert query.cluster == "up"
    assert table.members["down"].down == "connection refused"
    assert [record.cluster_name for record in table.records] == ["up"]
    assert table.metric("queryflux_cluster_up", cluster_name="down") == 0
    table.assert_idle()


async def test_with_every_member_unreachable_the_client_hears_why_and_later_it_works_again() -> None:
    broken = True

    def script(_: object) -> Step:
        return Step(error=EngineUnavailable("connection refused")) if broken else Step()

    engine = ScriptedEngine(script=script)
    table = bench(engine)
    with pytest.raises(EngineUnavailable, match="refused"):
        await table.talk().submit(statement()).start()
    engine.probe_error = EngineUnavailable("connection refused")
    with pytest.raises(Unavailable, match="scripted: connection refused"):
        await table.talk().submit(statement()).start()
    await table.clock.advance(10)
    assert engine.probes > 2, "a member that is down is probed soon"
    broken = False
    engine.probe_error = None
    await table.clock.advance(31)
    assert await drained(table.talk().submit(statement())) == 1
    table.assert_idle()


async def test_a_drain_refuses_new_queries_and_waits_for_those_that_run() -> None:
    gate = asyncio.Event()
    table = bench(ScriptedEngine(script=lambda request: Step(gate=gate)))
    running = asyncio.create_task(drained(table.talk().submit(statement())))
    await settle()
    draining = asyncio.create_task(table.pipeline.drain(30))
    await settle()
    with pytest.raises(ShuttingDown):
        table.pipeline.check_ready()
    with pytest.raises(ShuttingDown):
        await table.talk().submit(statement()).start()
    assert not draining.done()
    gate.set()
    assert await running == 1
    assert await draining is True


async def test_closing_ends_what_is_left_and_records_it() -> None:
    engine = ScriptedEngine(script=lambda request: Step(gate=asyncio.Event()))
    table = bench(engine)
    running = asyncio.create_task(table.talk().submit(statement()).start())
    await settle()
    await table.pipeline.close()
    with pytest.raises(ShuttingDown):
        await running
    assert [record.reason for record in table.records] == [EndReason.SHUTDOWN]
    assert engine.closed
    assert engine.open_connections == 0
    assert len(table.pipeline.tasks) == 0
    table.assert_idle()


async def test_two_hundred_clients_never_pass_a_limit_of_four() -> None:
    engine = ScriptedEngine(script=lambda request: Step(ROWS, rows_per_batch=1))
    table = bench(engine, limit=4)
    order: list[int] = []

    async def client(number: int) -> None:
        query = table.talk().submit(statement(f"SELECT {number}"))
        await query.start()
        order.append(number)
        while await query.next() is not None:
            await settle(1)

    await asyncio.gather(*(client(number) for number in range(200)))
    assert engine.peak == 4
    assert order == list(range(200)), "served in order of arrival"
    assert len(table.records) == 200
    table.assert_idle()


async def test_default_tags_of_the_group_yield_to_the_clients() -> None:
    engine = ScriptedEngine()
    table = bench(engine, default_tags={"team": "none", "tier": "gold"})
    await drained(table.talk(tags={"team": "bi"}).submit(statement()))
    assert table.records[0].query_tags == {"team": "bi", "tier": "gold"}
    assert engine.requests[0].tags == {"team": "bi", "tier": "gold"}


async def test_state_follows_the_table() -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(ROWS)))
    query = table.talk().submit(statement())
    states = [query.state]  # type: ignore[attr-defined]
    await query.start()
    states.append(query.state)  # type: ignore[attr-defined]
    await query.close()
    states.append(query.state)  # type: ignore[attr-defined]
    assert states == [State.ADMITTED, State.STREAMING, State.ENDED]


def test_scripted_engines_can_do_everything() -> None:
    assert ScriptedEngine().capabilities == frozenset(Capability)
