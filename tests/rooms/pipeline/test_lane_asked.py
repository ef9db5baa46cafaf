"""Queries of the lane that an engine is asked without being waited for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from queryflux.engines.port import AskedFrames, ConnectionSpec, EngineConnection
from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineConnectionLost, QueryCancelled, QueryFluxError
from queryflux.model.statement import Statement
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.face import Query
from queryflux.pipeline.lane import OrdinaryRun
from queryflux.pipeline.state import State
from tests.kit.clock import settle
from tests.kit.pipelines import Bench, bench, statement
from tests.kit.scripted import ScriptedEngine
from tests.rooms.pipeline.test_lane import RelayConnection, Relayed, RelayEngine, through

SAID = Statement("SELECT 1", "postgres", native="message")


class Asked(Relayed, AskedFrames):
    """What an engine was asked; the test answers it."""

    def __init__(self, engine: "AskedEngine", answered: Callable[[], object]) -> None:
        super().__init__(engine, b"frame")
        self.answered = answered
        self.error: QueryFluxError | None = None

    def whole(self) -> None:
        """All of the answer is here."""
        self.complete = True
        self._stop()
        self.answered()

    async def begin(self) -> None:
        if self.error is not None:
            self._stop()
            raise self.error


class AskedConnection(RelayConnection):
    """Takes questions while ``engine.takes``."""

    def ask(self, native: object, answered: Callable[[], object]) -> AskedFrames | None:
        engine = self.relay
        assert isinstance(engine, AskedEngine)
        if not engine.takes:
            return None
        engine.asked.append(Asked(engine, answered))
        return engine.asked[-1]

    async def cancel(self) -> None:
        engine = self.relay
        assert isinstance(engine, AskedEngine)
        for asked in engine.asked:
            asked.error = QueryCancelled("cancelled at the engine")
            asked.answered()


class AskedEngine(RelayEngine):
    """An engine that can be asked without waiting."""

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(name)
        self.takes = True
        self.asked: list[Asked] = []

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        connection = AskedConnection(self)
        self.connections.append(connection)
        return connection


async def talking(engine: RelayEngine, **settings: Any) -> tuple[Bench, Talk]:
    """A conversation that has a connection already."""
    table = bench(engine, **settings)
    talk = table.talk()
    await through(talk.submit(statement("SELECT 0")))
    return table, talk


def asked(talk: Talk, told: list[str], said: Statement = SAID) -> Query:
    query = talk.ask(said, lambda: told.append("answered"))
    assert isinstance(query, OrdinaryRun)
    return query


async def test_a_query_that_is_asked_and_answered() -> None:
    engine = AskedEngine()
    table, talk = await talking(engine)
    told: list[str] = []
    query = asked(talk, told)
    assert isinstance(query, OrdinaryRun)
    assert (query.state, table.members["scripted"].running) == (State.RUNNING, 1)
    assert list(table.pipeline.running) == [query.id]
    await table.clock.advance(0.5)
    engine.asked[0].whole()
    assert told == ["answered"]
    assert not query.stopped
    assert query.finish()
    assert query.finish()
    assert talk.leave()
    table.assert_idle()
    record = table.records[-1]
    assert (record.reason, record.rows_returned, record.sql_text) == (EndReason.COMPLETED, 1, "SELECT 1")
    assert record.execution_duration_ms == 500
    assert len(table.records) == 2


async def test_nothing_is_done_when_it_cannot_be_asked() -> None:
    def refused(talk: Talk, said: Statement = SAID) -> bool:
        return talk.ask(said, lambda: None) is None

    engine = AskedEngine()
    table = bench(engine, limit=1)
    assert refused(table.talk()), "it has no connection"
    table, talk = await talking(engine, limit=1)
    assert refused(talk, Statement("CREATE TABLE t (a int)", "postgres", native="message"))
    engine.takes = False
    assert refused(talk)
    engine.takes = True
    waiting = table.talk().submit(statement())
    assert refused(talk), "there is no room"
    await through(waiting)
    await through(talk.submit(statement("BEGIN")))
    assert refused(talk)
    await through(talk.submit(statement("ROLLBACK")))
    table.pipeline.begin_drain()
    assert refused(talk)
    table.assert_idle()
    assert engine.asked == []
    assert [record.sql_text for record in table.records] == ["SELECT 0", "SELECT 1"]
    foreign = ScriptedEngine()
    table = bench(foreign)
    talk = table.talk()
    await through(talk.submit(statement()))
    assert refused(talk), "it speaks another protocol"


async def test_start_goes_on_with_an_answer_that_is_not_whole() -> None:
    engine = AskedEngine()
    table, talk = await talking(engine)
    query = asked(talk, [])
    assert not query.finish()
    assert await query.start() is engine.asked[0]
    assert query.take() == b"frame"
    assert query.finish()
    table.assert_idle()
    assert [record.reason for record in table.records] == [EndReason.COMPLETED] * 2
    assert len(engine.requests) == 1, "it was not asked again"


async def test_an_error_is_told_by_start() -> None:
    engine = AskedEngine()
    table, talk = await talking(engine)
    query = asked(talk, [])
    engine.asked[0].error = EngineConnectionLost("reset by peer")
    with pytest.raises(EngineConnectionLost):
        await query.start()
    table.assert_idle()
    assert table.records[-1].reason is EndReason.FAILED


@pytest.mark.parametrize("answered_first", [False, True])
async def test_a_cancel_while_the_engine_is_at_work(answered_first: bool) -> None:
    engine = AskedEngine()
    table, talk = await talking(engine)
    told: list[str] = []
    query = asked(talk, told)
    cancelling = asyncio.create_task(query.cancel())
    await asyncio.sleep(0)
    if answered_first:
        engine.asked[0].whole()
    assert query.stopped
    assert not query.finish()
    await settle()
    assert told
    with pytest.raises(QueryCancelled):
        await query.start()
    await cancelling
    table.assert_idle()
    assert [record.reason for record in table.records] == [EndReason.COMPLETED, EndReason.CANCELLED]


async def test_the_time_out_of_its_group() -> None:
    engine = AskedEngine()
    table, talk = await talking(engine, query_timeout_secs=5.0)
    query = asked(talk, [])
    await table.clock.advance(6)
    assert query.stopped
    await query.close()
    table.assert_idle()
    assert table.records[-1].reason is EndReason.TIMED_OUT


async def test_who_is_asked_first_writes_down_what_ended_before() -> None:
    engine = AskedEngine()
    table, talk = await talking(engine)
    query = asked(talk, [])
    assert len(table.history._records) == 1
    await query.close()
