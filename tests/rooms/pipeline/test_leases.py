"""Queries and transactions of one process among several: what they hold of the cap, and for how long."""

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from queryflux.admission.batched import LINGER_SECS
from queryflux.admission.decide import Strategy
from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.lifecycle import Holding
from queryflux.admission.memory import Ledger
from queryflux.admission.port import Lease
from queryflux.engines.port import Engine
from queryflux.model.endings import EndReason
from queryflux.model.errors import CapacityTimeout, EngineUnavailable, QueryCancelled
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.lane import OrdinaryRun
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle
from tests.kit.pipelines import Bench, bench, statement
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.pipeline.test_lane import RelayEngine


class Fleet:
    """A pipeline whose leases are in a store that can be disturbed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.store = FaultyStore(self.ledger)
        self.leases = Leases(self.store, self.clock, PrometheusMetrics(), chance=Random(1))
        self.admission = LeasedAdmission(self.clock, self.leases, Random(1))

    def bench(self, *engines: Engine, **settings: Any) -> Bench:
        return bench(*engines, clock=self.clock, admission=self.admission, **settings)

    @property
    def rows(self) -> dict[str, str]:
        """Query ids and their clusters."""
        return {query_id: row.cluster for query_id, row in self.ledger.rows.items()}


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    await fleet.leases.tasks.close()


async def say(talk: Talk, text: str) -> str:
    query = talk.submit(statement(text))
    await query.start()
    while await query.next() is not None:
        pass
    await query.close()
    return query.id


async def test_a_query_holds_a_lease_while_it_runs_and_gives_it_back_when_its_engine_has_stopped(
    fleet: Fleet,
) -> None:
    gate = asyncio.Event()
    engine = ScriptedEngine(script=lambda request: Step(gate=gate))
    table = fleet.bench(engine, limit=1)
    query = table.talk().submit(statement())
    starting = asyncio.ensure_future(query.start())
    await settle()
    assert fleet.rows == {query.id: "scripted"}
    assert engine.running == 1
    cancelling = asyncio.ensure_future(query.cancel())
    while fleet.leases.held:
        assert not cancelling.done() or engine.running == 0
        await asyncio.sleep(0)
    assert engine.running == 0
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == {}
    with pytest.raises(QueryCancelled):
        await starting
    await cancelling
    table.assert_idle()


async def test_a_query_without_a_limit_takes_the_short_lane_and_asks_nobody(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine())
    talk = table.talk()
    query = talk.submit(statement())
    assert isinstance(query, OrdinaryRun)
    await query.start()
    while await query.next() is not None:
        pass
    await settle()
    assert fleet.store.calls == []
    assert len(table.records) == 1
    table.assert_idle()


async def test_a_query_under_a_limit_costs_one_call_and_its_release(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine(), limit=1)
    talk = table.talk()
    for _ in range(3):
        fleet.store.calls.clear()
        query_id = await say(talk, "SELECT 1")
        await fleet.clock.advance(LINGER_SECS)
        assert fleet.store.calls == [("one", query_id), ("release", [query_id])]


async def test_a_client_that_asks_one_query_after_another_costs_one_call_for_each(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine(), limit=1)
    talk = table.talk()
    ids = []
    for _ in range(5):
        ids.append(await say(talk, "SELECT 1"))
        await fleet.clock.advance(LINGER_SECS * 0.4)
    await fleet.clock.advance(LINGER_SECS)
    taking_along = [("many", ([later], [earlier])) for earlier, later in pairwise(ids)]
    assert fleet.store.calls == [("one", ids[0]), *taking_along, ("release", ids[-1:])]
    assert fleet.rows == {}


async def test_a_transaction_keeps_one_lease_from_its_first_statement_to_its_end(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine(), limit=1)
    talk = table.talk()
    await say(talk, "BEGIN")
    assert fleet.rows == {}
    first = await say(talk, "SELECT 1")
    await say(talk, "SELECT 2")
    assert fleet.rows == {first: "scripted"}
    assert [call for call in fleet.store.calls if call[0] != "release"] == [("one", first)]
    await fleet.leases.renew()
    assert fleet.store.calls[-1] == ("renew", [first])
    await say(talk, "COMMIT")
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == {}
    assert len(table.records) == 2
    table.assert_idle()


@pytest.fixture
async def congested(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Task[str]]:
    """A query that has come to its end while as many releases are queued as may be, and none gets through."""
    monkeypatch.setattr(fleet.leases.store, "_most", 1)
    table = fleet.bench(ScriptedEngine(), limit=9)
    fleet.store.down = "away"
    fleet.leases.release(Holding(Lease("scripted", "before")))
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.store.calls == [("release", ["before"])]
    fleet.store.down = ""
    talk = table.talk()
    query = talk.submit(statement())
    await query.start()
    fleet.leases.store.release(Lease("other", "before"))
    assert fleet.leases.congested
    fleet.store.hold()

    async def finish() -> str:
        while await query.next() is not None:
            pass
        return query.id

    finishing = asyncio.ensure_future(finish())
    await settle()
    assert not finishing.done(), "its release goes by itself, and it waits for it"
    yield finishing
    assert finishing.done()
    table.assert_idle()


async def test_with_a_full_queue_a_query_waits_for_its_release(
    fleet: Fleet, congested: "asyncio.Task[str]"
) -> None:
    fleet.store.let_go()
    query_id = await congested
    assert ("release", [query_id]) in fleet.store.calls
    assert fleet.rows == {}


async def test_also_an_answer_that_ends_at_once_waits_for_its_release_then(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = fleet.bench(RelayEngine(), limit=9)
    query = table.talk().submit(statement())
    await query.start()
    while query.take() is not None:
        pass
    with monkeypatch.context() as patch:
        patch.setattr(fleet.leases.store, "_most", 0)
        assert not query.finish()
        assert await query.next() is None
    assert ("release", [query.id]) in fleet.store.calls
    assert fleet.rows == {}
    table.assert_idle()


@pytest.mark.parametrize("how", ["fails", "takes too long"])
async def test_a_release_by_itself_that_does_not_get_through_is_given_up_and_runs_out(
    fleet: Fleet, congested: "asyncio.Task[str]", how: str, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "fails":
        fleet.store.down = "still away"
        fleet.store.let_go()
    else:
        await fleet.clock.advance(4.9)
        assert not congested.done()
        await fleet.clock.advance(0.1)
    query_id = await congested
    assert f"the lease of query {query_id} is left to run out" in caplog.text
    fleet.store.down = ""
    fleet.store.let_go()
    await fleet.clock.advance(1)
    assert set(fleet.rows) == {query_id}
    assert fleet.leases.releasing == 0
    await fleet.leases.renew()
    assert not [call for call in fleet.store.calls if call[0] == "renew"], "nobody names it any more"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_the_end_of_a_transaction_waits_for_no_store(fleet: Fleet, end: str) -> None:
    table = fleet.bench(ScriptedEngine(), limit=1)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    fleet.store.hold()
    ending = asyncio.ensure_future(say(talk, end))
    await settle()
    assert ending.done()
    table.assert_idle()
    fleet.store.let_go()
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == {}


async def test_a_client_that_goes_away_in_a_transaction_leaves_no_lease(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine(), limit=1)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    await talk.close()
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == {}
    table.assert_idle()


async def test_an_idle_transaction_is_rolled_back_and_its_lease_goes_back(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine(), limit=1, idle_in_transaction_secs=60)
    talk = table.talk()
    await say(talk, "BEGIN")
    await say(talk, "SELECT 1")
    await fleet.clock.advance(61)
    assert fleet.rows == {}
    table.assert_idle()


async def test_a_query_can_be_cancelled_while_the_store_is_asked(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine(), limit=1)
    fleet.store.hold()
    query = table.talk().submit(statement())
    starting = asyncio.ensure_future(query.start())
    await settle()
    assert query.waiting
    await query.cancel()
    with pytest.raises(QueryCancelled):
        await starting
    fleet.store.let_go()
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == {}
    table.assert_idle()
    assert table.records[0].reason is EndReason.CANCELLED


async def test_a_query_that_goes_to_another_member_takes_its_lease_there(fleet: Fleet) -> None:
    down = EngineUnavailable("connection refused")
    first = ScriptedEngine("first", script=lambda request: Step(error=down))
    gate = asyncio.Event()
    second = ScriptedEngine("second", script=lambda request: Step(gate=gate))
    table = fleet.bench(first, second, limit=1, strategy=Strategy.FAILOVER)
    query = table.talk().submit(statement())
    starting = asyncio.ensure_future(query.start())
    await settle()
    assert fleet.rows == {query.id: "second"}
    assert fleet.store.calls == [("one", query.id), ("release", [query.id]), ("one", query.id)]
    gate.set()
    await starting
    await query.close()
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == {}
    table.assert_idle()


async def test_without_an_answer_of_the_store_queries_wait_and_are_refused_with_the_reason(
    fleet: Fleet,
) -> None:
    engine = ScriptedEngine()
    table = fleet.bench(engine, limit=5, wait_secs=10)
    fleet.store.down = "the database is read-only"
    query = table.talk().submit(statement())
    starting = asyncio.ensure_future(query.start())
    await fleet.clock.advance(9)
    assert not starting.done()
    table.pipeline.check_ready()
    await fleet.clock.advance(2)
    with pytest.raises(CapacityTimeout, match="the database is read-only"):
        await starting
    [record] = table.records
    assert record.reason is EndReason.CAPACITY_TIMEOUT
    assert "read-only" in (record.error_message or "")
    assert engine.statements == [], "nothing ran on a guess"
    table.assert_idle()


async def test_without_a_limit_queries_run_whatever_the_store_does(fleet: Fleet) -> None:
    table = fleet.bench(ScriptedEngine())
    fleet.store.down = "gone"
    await say(table.talk(), "SELECT 1")
    assert table.records[0].reason is EndReason.COMPLETED


async def test_a_lone_process_does_nothing_but_count_to_admit(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    table = bench(ScriptedEngine(script=lambda request: Step(gate=gate)), limit=1)
    talk = table.talk()
    await talk.submit(statement("SELECT 0")).cancel()  # whatever is imported late is there now
    seen: list[str] = []
    watching = True

    def audit(event: str, arguments: object) -> None:
        if watching and event.partition(".")[0] in {"socket", "open", "subprocess", "sqlite3"}:
            seen.append(event)

    sys.addaudithook(audit)
    loop, tasks, timers = asyncio.get_running_loop(), asyncio.all_tasks(), table.clock.pending
    for name in ("call_soon", "call_later", "create_task", "run_in_executor", "_add_writer"):
        monkeypatch.setattr(loop, name, None, raising=False)
    query = talk.submit(statement("SELECT 1"))
    monkeypatch.undo()
    watching = False
    assert table.members["scripted"].running == 1, "admitted, without having waited for anything"
    assert not query.waited
    assert seen == []
    assert asyncio.all_tasks() == tasks
    assert table.clock.pending == timers
    await query.cancel()
