"""The ordinary query's lane: when a statement may take it, and that nothing tells it from the stages."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from queryflux.auth.groups import may_use_group
from queryflux.config.routers import QueryRegexRouter, QueryRegexRule, Router, TagsRouter, TagsRule
from queryflux.engines.port import (
    Capability,
    ConnectionSpec,
    EngineConnection,
    EngineRequest,
    TransactionStatus,
)
from queryflux.history.record import QueryRecord
from queryflux.model.endings import EndReason
from queryflux.model.errors import AccessDenied, EngineError, EngineUnavailable, ShuttingDown
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Parameter, Session, Statement
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.face import Query
from queryflux.pipeline.generation import Generation
from queryflux.pipeline.lane import LONGEST, MOST_TEXTS, MOST_WAYS, OrdinaryRun
from queryflux.pipeline.run import Run
from queryflux.pipeline.state import State
from queryflux.results.answer import Answer, Done, EngineStats, Frames
from queryflux.routing.chain import GroupAccess, compile_routing
from tests.kit.clock import settle
from tests.kit.pipelines import Bench, bench, statement
from tests.kit.scripted import ScriptedConnection, ScriptedEngine, Step

POSTGRES = ClientProtocol.POSTGRES_WIRE


class Relayed(Frames):
    """``frames`` that are all here at once."""

    protocol = POSTGRES

    def __init__(self, engine: "RelayEngine", *frames: bytes) -> None:
        self.stats = EngineStats(backend_query_id="b1")
        self.rows = 1
        self._engine = engine
        self._frames = list(frames)
        self._stopped = False
        engine.running += 1

    def take(self) -> bytes | None:
        frame = self._frames.pop(0) if self._frames else None
        if not self._frames:
            self.complete = True
            self._stop()
        return frame

    async def next(self) -> bytes | None:
        return self.take()

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._engine.running -= 1

    async def close(self) -> None:
        self._frames.clear()
        self._stop()


class RelayEngine(ScriptedEngine):
    """Answers every statement with frames; ``failure`` is among them."""

    def __init__(self, name: str = "scripted", failure: Exception | None = None, frames: int = 1) -> None:
        super().__init__(name, native=POSTGRES)
        self.failure = failure
        self.frames = frames

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        connection = RelayConnection(self)
        self.connections.append(connection)
        return connection


class RelayConnection(ScriptedConnection):
    """Relays, but for transaction control."""

    def __init__(self, engine: RelayEngine) -> None:
        super().__init__(engine)
        self.relay = engine

    async def execute(self, request: EngineRequest) -> Answer:
        if (control := self._control(request.sql)) is not None:
            return control
        self.relay.requests.append(request)
        answer = Relayed(self.relay, *[b"frame"] * self.relay.frames)
        answer.failure = self.relay.failure
        return answer

    def leave(self) -> bool:
        self.closed = self.transaction is TransactionStatus.IDLE
        return self.closed


async def through(query: Query) -> None:
    """Read it as a door does that asks for what is here before it waits."""
    await query.start()
    while query.take() is not None or not query.finish():
        if query.finish() or await query.next() is None:
            break
    await query.close()


# Both ways leave the same.


def shown(record: QueryRecord) -> dict[str, Any]:
    """A record without what differs from one query to the next, its trace in words."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    fields["trace"] = fields["trace"]() if fields["trace"] is not None else None
    return fields


async def left_by(made: Callable[[], Bench], texts: list[str]) -> tuple[object, ...]:
    table = made()
    talk = table.talk(catalog="shop", database="d", tags={"team": "bi"})
    for text in texts:
        query = talk.submit(statement(text))
        await table.clock.advance(0.25)
        try:
            await through(query)
        except EngineError:
            await query.close()
    table.assert_idle()
    records = [shown(record) for record in table.records]
    metrics = [row for row in table.metrics.render().decode().splitlines() if row.startswith("queryflux_")]
    return records, [msgspec.structs.asdict(line) for line in table.log.lines], metrics


@pytest.mark.parametrize(
    "engine",
    [
        lambda: RelayEngine(),
        lambda: RelayEngine(frames=3),
        lambda: RelayEngine(failure=EngineError("no such table")),
        lambda: ScriptedEngine(),
        lambda: ScriptedEngine(script=lambda request: Step(done=Done("INSERT", 3))),
        lambda: ScriptedEngine(script=lambda request: Step(error=EngineError("no"))),
    ],
    ids=["frames", "many frames", "failure among frames", "batches", "count", "error"],
)
async def test_both_ways_leave_the_same(
    engine: Callable[[], ScriptedEngine], request: pytest.FixtureRequest
) -> None:
    def made() -> Bench:
        return bench(engine(), default_tags={"tier": "gold"}, limit=1, query_timeout_secs=9)

    texts = ["SELECT 1", "SELECT 1", "INSERT INTO t VALUES (1)", "SELECT 2"]
    short = await left_by(made, texts)
    request.getfixturevalue("by_the_stages")
    assert short == await left_by(made, texts)


async def test_the_engine_is_asked_the_same(request: pytest.FixtureRequest) -> None:
    asked = []
    for _ in range(2):
        engine = RelayEngine()
        talk = bench(engine, default_tags={"tier": "gold"}).talk()
        await through(talk.submit(Statement("SELECT 1", "postgres", native="message")))
        asked.append(engine.requests)
        request.getfixturevalue("by_the_stages")
    assert asked[0] == asked[1]
    assert asked[0][0].native == "message"


# What may take it.


def way_of(query: Query) -> str:
    return "lane" if isinstance(query, OrdinaryRun) else "stages" if isinstance(query, Run) else "local"


@pytest.mark.parametrize(
    ("said", "way"),
    [
        (statement("SELECT 1"), "lane"),
        (statement("insert into t values (1)"), "lane"),
        (statement("SELECT '" + "x" * LONGEST + "'"), "stages"),
        (statement("CREATE TABLE t (a int)"), "stages"),
        (statement("SET x = 1"), "stages"),
        (statement("SELECT 1", "trino"), "stages"),
        (statement("SELECT 1", ""), "stages"),
        (Statement("SELECT $1", "postgres", (Parameter(1),)), "stages"),
        (Statement("SELECT $1", "postgres", (Parameter(1),), "message"), "stages"),
        (statement("BEGIN"), "local"),
        (statement("SELECT relname FROM pg_class"), "local"),
    ],
)
async def test_which_statements_are_ordinary(said: Statement, way: str) -> None:
    for _ in range(2):
        table = bench(ScriptedEngine())
        query = table.talk().submit(said)
        assert way_of(query) == way
        await query.close()
        table.assert_idle()


@pytest.mark.parametrize(("can", "way"), [(frozenset(Capability), "lane"), (frozenset(), "stages")])
async def test_parameters_in_the_clients_own_message_are_for_engines_that_bind(
    can: frozenset[Capability], way: str
) -> None:
    engine = RelayEngine()
    engine.capabilities = can
    query = bench(engine).talk().submit(Statement("SELECT $1", "postgres", (Parameter(1),), "message"))
    assert way_of(query) == way
    await through(query)
    assert engine.requests[0].native == "message"
    assert engine.requests[0].parameters == ()


async def test_bound_values_in_native_form_are_ordinary_where_every_engine_takes_it() -> None:
    said = Statement("SELECT $1", "postgres", (Parameter(1),), native="message")
    engine = RelayEngine()
    table = bench(engine)
    query = table.talk().submit(said)
    assert way_of(query) == "lane"
    await through(query)
    assert engine.requests[0].native == "message"
    bare = Statement("SELECT $1", "postgres", (Parameter(1),))
    query = table.talk().submit(bare)
    assert way_of(query) == "stages"
    await query.close()
    query = bench(ScriptedEngine()).talk().submit(said)
    assert way_of(query) == "stages"
    await query.close()


async def test_in_a_transaction_nothing_is_ordinary() -> None:
    table = bench(RelayEngine())
    talk = table.talk()
    await through(talk.submit(statement("BEGIN")))
    first = talk.submit(statement())
    assert way_of(first) == "stages"
    await through(first)
    second = talk.submit(statement())
    assert way_of(second) == "stages"
    await through(second)
    assert table.members["scripted"].running == 1
    assert not talk.leave(), "it holds a transaction"
    await through(talk.submit(statement("COMMIT")))
    third = talk.submit(statement())
    assert way_of(third) == "lane"
    await through(third)
    await talk.begin_implicit()
    fourth = talk.submit(statement())
    assert way_of(fourth) == "stages"
    await through(fourth)
    await talk.sync()
    assert talk.leave()
    table.assert_idle()


async def test_a_statement_that_leaves_a_transaction_open_keeps_its_slot() -> None:
    table = bench(RelayEngine(), limit=1)
    talk = table.talk()
    query = talk.submit(statement("SELECT opens_one()"))
    await query.start()
    [connection] = table.engines["scripted"].connections  # type: ignore[attr-defined]
    connection._control("BEGIN")
    query.take()
    assert query.finish()
    assert table.members["scripted"].running == 1
    second = talk.submit(statement())
    assert way_of(second) == "stages"
    await through(second)
    await through(talk.submit(statement("COMMIT")))
    table.assert_idle()


async def test_an_engine_of_another_dialect_needs_the_stages() -> None:
    table = bench(ScriptedEngine("one"), ScriptedEngine("two", dialect="duckdb"))
    for _ in range(2):
        query = table.talk().submit(statement())
        assert way_of(query) == "stages"
        await through(query)


async def test_who_has_to_wait_waits_by_the_stages_and_nobody_overtakes() -> None:
    table = bench(RelayEngine(), limit=1)
    first, second = table.talk().submit(statement()), table.talk().submit(statement("SELECT 2"))
    assert (way_of(first), way_of(second)) == ("lane", "stages")
    assert second.waiting
    await through(first)
    third = table.talk().submit(statement("SELECT 3"))
    assert (third.waiting, second.waiting) == (True, True)
    await through(second)
    await through(third)
    assert [record.sql_text for record in table.records] == ["SELECT 1", "SELECT 2", "SELECT 3"]
    table.assert_idle()


async def test_members_take_turns() -> None:
    table = bench(RelayEngine("one"), RelayEngine("two"), RelayEngine("three"))
    talk = table.talk()
    for _ in range(6):
        await through(talk.submit(statement()))
    assert [record.cluster_name for record in table.records] == ["one", "two", "three"] * 2
    assert {record.engine_type for record in table.records} == {"scripted"}


async def test_a_drain_closes_the_lane() -> None:
    table = bench(RelayEngine())
    talk = table.talk()
    running = talk.submit(statement())
    table.pipeline.begin_drain()
    with pytest.raises(ShuttingDown):
        await talk.submit(statement()).start()
    draining = asyncio.create_task(table.pipeline.drain(10))
    await settle()
    assert not draining.done()
    await through(running)
    assert await draining, "the last one's end is noticed"
    assert [record.reason for record in table.records] == [EndReason.SHUTDOWN, EndReason.COMPLETED]


# Routing is remembered, and forgotten in time.


def reconfigure(table: Bench, *routers: Router) -> None:
    """Other rules from now on, and a group ``other`` with the members of ``main``."""
    before = table.pipeline.active
    assert before is not None
    plan = before.groups["main"]
    access = {"main": GroupAccess(), "other": GroupAccess()}
    table.pipeline.activate(
        Generation(
            revision="1" * 16,
            chain=compile_routing(routers, "main", access, may_use=may_use_group),
            groups={"main": plan, "other": plan},
            clusters=before.clusters,
        )
    )


def text_rule(regex: str, group: str) -> QueryRegexRouter:
    return QueryRegexRouter(rules=(QueryRegexRule(regex=regex, target_group=group),))


async def groups_of(talk: Talk, *texts: str) -> list[str]:
    found = []
    for text in texts:
        query = talk.submit(statement(text))
        assert way_of(query) == "lane"
        found.append(query.group)
        await through(query)
    return found


async def test_a_rule_about_the_text_is_asked_for_each_text() -> None:
    table = bench(RelayEngine())
    reconfigure(table, text_rule("orders", "other"))
    texts = ["SELECT 1", "SELECT * FROM orders", "SELECT 1", "SELECT * FROM orders"]
    assert await groups_of(table.talk(), *texts) == ["main", "other"] * 2
    assert [shown(record)["trace"]["final_group"] for record in table.records] == ["main", "other"] * 2


async def test_a_text_that_a_rule_denies_is_denied_every_time() -> None:
    deny = QueryRegexRouter(rules=(QueryRegexRule(regex="secret", action="deny", error="not here"),))
    table = bench(RelayEngine(), routers=(deny,))
    talk = table.talk()
    for _ in range(2):
        await through(talk.submit(statement("SELECT 1")))
        with pytest.raises(AccessDenied, match="not here"):
            await talk.submit(statement("SELECT secret")).start()
    assert [record.reason for record in table.records] == [EndReason.COMPLETED, EndReason.DENIED] * 2


async def test_a_new_session_is_routed_anew() -> None:
    table = bench(RelayEngine())
    rule = TagsRouter(rules=(TagsRule(tags={"team": "bi"}, target_group="other"),))
    reconfigure(table, rule)
    talk = table.talk()
    assert await groups_of(talk, "SELECT 1") == ["main"]
    talk.session = Session(POSTGRES, tags={"team": "bi"})
    assert await groups_of(talk, "SELECT 1") == ["other"]
    assert table.records[-1].query_tags == {"team": "bi"}


async def test_a_new_configuration_is_followed_at_once_by_those_who_talk_already() -> None:
    table = bench(RelayEngine())
    talk = table.talk()
    assert await groups_of(talk, "SELECT 1") == ["main"]
    reconfigure(table, text_rule("SELECT", "other"))
    assert await groups_of(talk, "SELECT 1") == ["other"]


async def test_what_is_remembered_is_bounded() -> None:
    table = bench(RelayEngine())
    reconfigure(table, text_rule("orders", "other"))
    lane = table.pipeline.lane
    assert lane is not None
    talk = table.talk()
    for number in range(MOST_TEXTS + 10):
        await through(talk.submit(statement(f"SELECT {number}")))
    assert len(lane.known) <= MOST_TEXTS
    for number in range(MOST_WAYS + 10):
        await through(table.talk(peer=str(number)).submit(statement()))
    assert len(lane._ways) <= MOST_WAYS
    assert len({id(way) for way, _ in lane.known}) <= MOST_WAYS


# Endings.


async def test_a_query_whose_answer_is_complete_ends_without_waiting() -> None:
    table = bench(RelayEngine(frames=2))
    talk = table.talk()
    query = talk.submit(statement())
    assert not query.finish()
    assert query.take() is None
    await query.start()
    assert query.take() == b"frame"
    assert not query.finish(), "there is more"
    assert query.take() == b"frame"
    assert query.finish()
    table.assert_idle()
    [record] = table.records
    assert (record.rows_returned, record.reason) == (1, EndReason.COMPLETED)
    assert query.finish()
    assert await query.next() is None
    await query.close()
    assert len(table.records) == 1


async def test_a_stopped_query_cannot_be_finished() -> None:
    table = bench(RelayEngine(frames=2))
    query = table.talk().submit(statement())
    await query.start()
    query.take()
    await query.cancel()
    assert query.take() is None
    assert not query.finish()
    table.assert_idle()
    assert [record.reason for record in table.records] == [EndReason.CANCELLED]


async def test_a_query_that_is_stopped_before_it_started_reaches_no_engine() -> None:
    engine = RelayEngine()
    table = bench(engine)
    query = table.talk().submit(statement())
    await query.cancel(EndReason.CLIENT_GONE)
    with pytest.raises(Exception, match="cancelled"):
        await query.start()
    assert engine.requests == []
    table.assert_idle()
    assert [record.reason for record in table.records] == [EndReason.CLIENT_GONE]


async def test_an_unreachable_member_is_left_for_another() -> None:
    def lost(request: EngineRequest) -> Step:
        return Step(error=EngineUnavailable("connection refused"))

    table = bench(ScriptedEngine("one", lost), ScriptedEngine("two"))
    query = table.talk().submit(statement())
    assert way_of(query) == "lane"
    await through(query)
    [record] = table.records
    assert (record.cluster_name, record.reason) == ("two", EndReason.COMPLETED)
    assert table.members["one"].down
    table.assert_idle()


async def test_one_that_has_to_wait_after_all_keeps_its_place() -> None:
    gate = asyncio.Event()

    def script(request: EngineRequest) -> Step:
        return Step(gate=gate)

    def lost(request: EngineRequest) -> Step:
        return Step(error=EngineUnavailable("connection refused"))

    table = bench(ScriptedEngine("one", script), ScriptedEngine("two", lost), member_limit=1)
    first = asyncio.create_task(through(table.talk().submit(statement("SELECT 1"))))
    query = table.talk().submit(statement("SELECT 2"))
    assert way_of(query) == "lane"
    second = asyncio.create_task(through(query))
    await table.clock.advance(2)
    assert query.waiting
    gate.set()
    await asyncio.gather(first, second)
    assert [record.queue_duration_ms for record in table.records] == [0.0, 0.0]
    assert query.waited
    table.assert_idle()


async def test_the_state_of_an_ordinary_query_follows_the_table() -> None:
    gate = asyncio.Event()
    table = bench(ScriptedEngine(script=lambda request: Step(gate=gate)))
    query = table.talk().submit(statement())
    assert isinstance(query, OrdinaryRun)
    states = [query.state]
    starting = asyncio.create_task(query.start())
    await settle()
    states.append(query.state)
    gate.set()
    await starting
    states.append(query.state)
    await query.close()
    states.append(query.state)
    assert states == [State.ADMITTED, State.RUNNING, State.STREAMING, State.ENDED]


async def test_a_conversation_that_holds_nothing_is_left_without_waiting() -> None:
    engine = RelayEngine()
    table = bench(engine)
    talk = table.talk()
    query = talk.submit(statement())
    assert not talk.leave(), "a query runs"
    await through(query)
    assert talk.leave()
    assert talk.leave()
    assert engine.open_connections == 0
    await talk.close()


async def test_a_connection_that_may_hold_something_has_to_be_closed() -> None:
    engine = ScriptedEngine()
    table = bench(engine)
    talk = table.talk()
    await through(talk.submit(statement()))
    assert not talk.leave()
    assert engine.open_connections == 1
    await talk.close()
    assert engine.open_connections == 0
