"""A new configuration while queries run, wait, and hold transactions."""

import asyncio
from collections.abc import Mapping

import pytest

from queryflux.admission.slots import Group, Member
from queryflux.auth.groups import may_use_group
from queryflux.engines.port import Engine, TransactionStatus
from queryflux.model.errors import EngineUnavailable, Unavailable
from queryflux.pipeline.face import Query
from queryflux.pipeline.generation import Cluster, Generation, GroupPlan
from queryflux.pipeline.run import Run
from queryflux.pipeline.succession import LOOK_SECS
from queryflux.routing.chain import GroupAccess, compile_routing
from queryflux.runtime.clock import SystemClock
from queryflux.scripts.host import ScriptHost
from queryflux.sql.translate import Translator
from tests.kit.clock import settle
from tests.kit.pipelines import Bench, bench, statement
from tests.kit.scripted import ScriptedEngine, Step


def change(
    table: Bench,
    engines: Mapping[str, Engine],
    groups: Mapping[str, list[str]] | None = None,
    *,
    limit: int | None = None,
    translator: Translator | None = None,
    scripts: ScriptHost | None = None,
) -> Generation:
    """Another configuration from now on: engines by cluster, members by group (else one group, main)."""
    before = table.pipeline.active
    assert before is not None
    clusters = {name: Cluster(engine, Member(name, limit=limit)) for name, engine in engines.items()}
    plans = {
        name: GroupPlan(Group(name, [clusters[member].member for member in members]))
        for name, members in (groups or {"main": list(engines)}).items()
    }
    generation = Generation(
        revision="1" * 16,
        chain=compile_routing(
            (), next(iter(plans)), dict.fromkeys(plans, GroupAccess()), may_use=may_use_group
        ),
        groups=plans,
        clusters=clusters,
        translator=translator or before.translator,
        scripts=scripts,
    )
    table.pipeline.activate(generation)
    return generation


class Held:
    """An engine whose statements wait until they are let go."""

    def __init__(self, name: str = "a") -> None:
        self.gate = asyncio.Event()
        self.engine = ScriptedEngine(name, lambda request: Step(gate=self.gate))


def gone(engine: ScriptedEngine) -> bool:
    return engine.closed


async def read(query: Query) -> None:
    await query.start()
    while await query.next() is not None:
        pass


async def test_an_engine_that_stays_keeps_its_connections() -> None:
    engine = ScriptedEngine("a")
    table = bench(engine)
    talk = table.talk()
    await read(talk.submit(statement()))
    change(table, {"a": engine}, limit=5)
    await read(talk.submit(statement()))
    assert len(engine.connections) == 1
    assert not engine.closed
    assert engine.probes <= 1
    await table.clock.advance(31)
    assert engine.probes == 2  # one watcher, not two


async def test_a_query_goes_on_at_the_engine_it_has_and_new_ones_go_to_the_new() -> None:
    old, new = Held(), ScriptedEngine("a")
    table = bench(old.engine)
    running = asyncio.ensure_future(read(table.talk().submit(statement("SELECT 'old'"))))
    await settle()
    change(table, {"a": new})
    await read(table.talk().submit(statement("SELECT 'new'")))
    await table.clock.advance(LOOK_SECS * 3)
    assert (old.engine.closed, new.statements) == (False, ["SELECT 'new'"])
    old.gate.set()
    await running
    await table.clock.advance(LOOK_SECS)
    assert old.engine.closed
    assert table.records[-1].error_code is None
    table.assert_idle()


async def test_connections_to_an_engine_that_leaves_are_closed() -> None:
    old, new = ScriptedEngine("a"), ScriptedEngine("a")
    table = bench(old)
    talk, idle = table.talk(), table.talk()
    await read(talk.submit(statement()))
    await read(idle.submit(statement()))
    change(table, {"a": new})
    await read(talk.submit(statement()))
    await table.clock.advance(LOOK_SECS)
    assert old.open_connections == 0
    assert new.open_connections == 1


async def test_a_transaction_stays_where_it_is_until_its_end() -> None:
    old, new = ScriptedEngine("a"), ScriptedEngine("b")
    table = bench(old)
    talk = table.talk()
    await read(talk.submit(statement("BEGIN")))
    await read(talk.submit(statement("SELECT 1")))
    change(table, {"b": new}, {"others": ["b"]})
    await table.clock.advance(LOOK_SECS * 3)
    assert not gone(old)
    await read(talk.submit(statement("SELECT 2")))
    assert talk.transaction is TransactionStatus.OPEN
    await read(talk.submit(statement("COMMIT")))
    await table.clock.advance(LOOK_SECS)
    assert gone(old)
    assert old.statements == ["BEGIN", "SELECT 1", "SELECT 2", "COMMIT"]
    await read(talk.submit(statement("SELECT 3")))
    assert new.statements == ["SELECT 3"]


async def test_who_runs_counts_against_the_new_limit() -> None:
    old, new = Held(), Held()
    table = bench(old.engine, member_limit=2)
    first = [asyncio.ensure_future(read(table.talk().submit(statement()))) for _ in range(2)]
    await settle()
    change(table, {"a": new.engine}, limit=2)
    later = asyncio.ensure_future(read(table.talk().submit(statement())))
    await settle()
    assert new.engine.running == 0
    old.gate.set()
    await asyncio.gather(*first)
    await settle()
    assert new.engine.running == 1
    new.gate.set()
    await later
    table.assert_idle()


async def test_a_waiter_goes_to_the_engine_there_is_when_it_is_its_turn() -> None:
    old, new = Held(), ScriptedEngine("b")
    table = bench(old.engine, member_limit=1)
    running = asyncio.ensure_future(read(table.talk().submit(statement("SELECT 1"))))
    waiting = asyncio.ensure_future(read(table.talk().submit(statement("SELECT 2"))))
    await settle()
    change(table, {"b": new}, limit=1)
    await waiting
    assert new.statements == ["SELECT 2"]
    old.gate.set()
    await running


async def test_a_waiter_of_a_group_that_is_removed_is_told() -> None:
    old = Held()
    table = bench(old.engine, member_limit=1)
    running = asyncio.ensure_future(read(table.talk().submit(statement())))
    waiting = asyncio.ensure_future(read(table.talk().submit(statement())))
    await settle()
    change(table, {"a": old.engine}, {"others": ["a"]}, limit=1)
    with pytest.raises(Unavailable, match="'main' was removed"):
        await waiting
    old.gate.set()
    await running
    table.assert_idle()


async def test_a_slot_on_a_cluster_that_is_removed_before_the_query_goes_on() -> None:
    engine, new = Held(), ScriptedEngine("b")
    table = bench(engine.engine, member_limit=1)
    running = table.talk().submit(statement())
    waiting = asyncio.ensure_future(read(table.talk().submit(statement("SELECT 2"))))
    await settle()
    assert isinstance(running, Run)
    assert running.slot is not None
    running.slot.release()  # the waiter has it, and has not gone on yet
    change(table, {"b": new})
    await waiting
    await running.close()
    assert new.statements == ["SELECT 2"]
    table.assert_idle()


async def test_what_befalls_an_engine_that_leaves_is_not_its_successors_fault() -> None:
    old, new = ScriptedEngine("a"), ScriptedEngine("a")
    table = bench(old)
    cluster = table.pipeline.generation.clusters["a"]
    generation = change(table, {"a": new})
    table.pipeline.lost(cluster, EngineUnavailable("gone"))
    assert not generation.clusters["a"].member.down


async def test_a_new_engine_gets_a_new_chance() -> None:
    old, new = ScriptedEngine("a"), ScriptedEngine("a")
    table = bench(old)
    cluster = table.pipeline.generation.clusters["a"]
    table.pipeline.lost(cluster, EngineUnavailable("wrong port"))
    change(table, {"a": new})
    await read(table.talk().submit(statement()))
    assert new.statements == ["SELECT 1"]


async def test_a_removed_cluster_is_probed_and_shown_no_more() -> None:
    a, b = ScriptedEngine("a"), ScriptedEngine("b")
    table = bench(a, b)
    await settle()
    change(table, {"b": b})
    await table.clock.advance(100)
    assert (a.probes, b.probes > 1) == (1, True)
    assert table.metrics.registry.get_sample_value("queryflux_cluster_up", {"cluster_name": "a"}) is None
    assert table.metric("queryflux_cluster_up", cluster_name="b") == 1


class Translates(Translator):
    closed = False

    async def close(self) -> None:
        self.closed = True


class Scripts(ScriptHost):
    def __init__(self) -> None:
        super().__init__((), SystemClock())

    @property
    def closed(self) -> bool:
        return self._closed


@pytest.mark.parametrize("between", [0, 2], ids=["the last one", "one of some with the same"])
async def test_translator_and_scripts_leave_after_the_last_query_of_a_configuration_with_them(
    between: int,
) -> None:
    engine = Held()
    table = bench(engine.engine)
    translator, scripts = Translates(), Scripts()
    change(table, {"a": engine.engine}, translator=translator, scripts=scripts)
    running = asyncio.ensure_future(read(table.talk().submit(statement())))
    await settle()
    for _ in range(between):
        change(table, {"a": engine.engine}, translator=translator, scripts=scripts)
    change(table, {"a": engine.engine}, translator=Translates(), scripts=Scripts())
    await table.clock.advance(LOOK_SECS * 2)
    assert [one.closed for one in (translator, scripts)] == [False, False]
    engine.gate.set()
    await running
    await table.clock.advance(LOOK_SECS)
    assert [one.closed for one in (translator, scripts)] == [True, True]


async def test_the_end_of_the_process_closes_what_still_leaves() -> None:
    old = Held()
    table = bench(old.engine)
    running = asyncio.ensure_future(read(table.talk().submit(statement())))
    await settle()
    change(table, {"b": ScriptedEngine("b")})
    await table.pipeline.close()
    assert old.engine.closed
    with pytest.raises(Unavailable):
        await running


async def test_many_changes_under_load_lose_no_query() -> None:
    table = bench(ScriptedEngine("a"), member_limit=3)
    stop = asyncio.Event()
    done = 0

    async def client() -> None:
        nonlocal done
        talk = table.talk()
        while not stop.is_set():
            await read(talk.submit(statement()))
            done += 1
            await asyncio.sleep(0)

    clients = [asyncio.ensure_future(client()) for _ in range(10)]
    engines = []
    for _ in range(50):
        engine = ScriptedEngine("a")
        engines.append(engine)
        change(table, {"a": engine}, limit=3)
        await settle(5)
    stop.set()
    await asyncio.gather(*clients)
    await table.clock.advance(LOOK_SECS)
    assert done >= 50
    assert {record.status.value for record in table.records} == {"Success"}
    assert all(engine.closed for engine in engines[:-1])
    assert not engines[-1].closed
    assert max(engine.peak for engine in engines) <= 3
    table.assert_idle()
