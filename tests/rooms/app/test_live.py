"""What a process tells operators of itself: members, queries that run or wait, cancelling them, doors."""

import asyncio

import pytest
from msgspec.structs import replace

from queryflux.app.live import LiveProcess, MemberChange, MemberState, OwnWorkers, shared_by, unreachable
from queryflux.config.clusters import ClusterConfig
from queryflux.config.listeners import FrontendsConfig, ListenerConfig
from queryflux.config.process import ProcessConfig
from queryflux.controlplane.live import RunningQuery
from queryflux.model.errors import QueryCancelled
from queryflux.model.shared import SharedRow
from queryflux.pipeline.reconcile import FleetCounts
from tests.kit.claims import shared_query
from tests.kit.clock import START, settle
from tests.kit.pipelines import Bench, bench, statement
from tests.kit.scripted import ScriptedEngine, Step


async def nowhere(query_id: str) -> bool:
    """No other process shares our database."""
    return False


async def elsewhere() -> list[RunningQuery]:
    """What another process runs."""
    query = shared_query("q_9", text="SELECT 'x'", created_at=START - 5)
    row = SharedRow(query=query, executing=True, owner="qf-b", cluster="east")
    table = bench(ScriptedEngine())
    return [shared_by(row, "engine-9", table.pipeline, table.clock)]


class TwoWorkers(OwnWorkers):
    """Two that run queries; one cannot reach the cluster."""

    def __init__(self) -> None:
        self.changes: list[MemberChange] = []

    async def members(self) -> list[MemberState]:
        other = MemberState(group="other", cluster="scripted", running=9, queued=9, down="", enabled=True)
        one = MemberState(group="main", cluster="scripted", running=2, queued=1, down="", enabled=True)
        return [other, one, replace(one, running=1, down="worker 2: no route")]

    async def change(self, change: MemberChange) -> None:
        self.changes.append(change)


async def test_clusters_are_what_all_workers_say_of_them_and_a_change_reaches_them_all() -> None:
    table = bench(ScriptedEngine(), limit=4)
    workers = TwoWorkers()
    process = live(table, workers=workers)
    (state,) = await process.clusters_with_workers()
    assert (state.running_queries, state.queued_queries, state.enabled) == (3, 2, True)
    assert (state.is_healthy, state.unhealthy_reason) == (False, "worker 2: no route")
    changed = await process.change_with_workers("main", "scripted", False, 3)
    assert changed is not None
    assert (changed.enabled, changed.max_running_queries, changed.running_queries) == (False, 3, 3)
    assert workers.changes == [MemberChange("main", "scripted", False, 3)]
    assert await process.change_with_workers("main", "other", False, None) is None
    await table.pipeline.close()


async def test_clusters_that_do_not_answer_are_named_without_their_addresses() -> None:
    table = bench(ScriptedEngine())
    assert unreachable(table.pipeline) == ""
    table.pipeline.generation.clusters["scripted"].member.down = "connection to 10.0.0.7 refused"
    assert unreachable(table.pipeline).endswith(": scripted")
    assert "10.0" not in unreachable(table.pipeline)
    await table.pipeline.close()


def live(table: Bench, counts: FleetCounts | None = None, workers: OwnWorkers | None = None) -> LiveProcess:
    doors = FrontendsConfig(postgres_wire=ListenerConfig(port=5432, enabled=False))
    return LiveProcess(
        table.pipeline,
        ProcessConfig(frontends=doors, external_address="https://sql.example"),
        lambda: {"scripted": ClusterConfig(engine="trino", endpoint="https://trino:1")},
        lambda: {"trinoHttp": 18080, "adminApi": 19000},
        nowhere,
        lambda: counts,
        table.clock,
        elsewhere,
        "qf-a",
        workers or OwnWorkers(),
    )


async def test_queries_that_run_and_wait_and_their_end() -> None:
    gate = asyncio.Event()
    table = bench(ScriptedEngine(script=lambda request: Step(gate=gate)), limit=1)
    process = live(table)
    first = table.talk("ann").submit(statement("SELECT 'first' " + "x" * 200))
    running = asyncio.ensure_future(first.start())
    second = table.talk("bob").submit(statement("SELECT 'second'"))
    waiting = asyncio.ensure_future(second.start())
    await table.clock.advance(2.5)
    one, two = process.running()
    assert (one.id, one.submitted_by, one.state, one.cluster) == (first.id, "ann", "executing", "scripted")
    assert (len(one.sql_preview), one.elapsed_secs, one.frontend_protocol) == (160, 2.5, "PostgresWire")
    assert (two.id, two.submitted_by, two.state, two.cluster) == (second.id, "bob", "queued", None)
    assert one.instance_id == two.instance_id == "qf-a"
    (state,) = process.clusters()
    assert (state.running_queries, state.queued_queries, state.max_running_queries) == (1, 1, 1)
    assert (state.group_name, state.cluster_name, state.endpoint) == ("main", "scripted", "https://trino:1")
    for query, task in ((second, waiting), (first, running)):
        assert await process.cancel(query.id)
        with pytest.raises(QueryCancelled):
            await task
    assert not await process.cancel(first.id)
    table.assert_idle()


async def test_a_query_of_another_process_is_shown_as_its_row_says() -> None:
    (query,) = await live(bench(ScriptedEngine())).running_elsewhere()
    assert (query.id, query.backend_query_id, query.instance_id) == ("q_9", "engine-9", "qf-b")
    assert (query.state, query.cluster, query.elapsed_secs) == ("executing", "east", 5.0)
    assert (query.sql_preview, query.frontend_protocol) == ("SELECT 'x'", "TrinoHttp")


async def test_a_query_is_found_by_its_engines_id() -> None:
    table = bench(ScriptedEngine())
    process = live(table)
    query = table.talk().submit(statement())
    await query.start()
    (running,) = process.running()
    assert running.backend_query_id == "scripted-1"
    assert not await process.cancel("scripted-2")
    assert await process.cancel("scripted-1")
    table.assert_idle()


async def test_a_member_is_changed_here_and_now() -> None:
    gate = asyncio.Event()
    table = bench(ScriptedEngine(script=lambda request: Step(gate=gate)), limit=1)
    process = live(table)
    tasks = [asyncio.ensure_future(table.talk().submit(statement()).start()) for _ in range(2)]
    await settle()
    assert [query.state for query in process.running()] == ["executing", "queued"]
    state = process.change_cluster("main", "scripted", None, 2)
    assert state is not None
    assert (state.running_queries, state.max_running_queries, state.enabled) == (2, 2, True)
    state = process.change_cluster("main", "scripted", False, None)
    assert state is not None
    assert (state.max_running_queries, state.enabled) == (2, False)
    assert process.change_cluster("main", "other", True, None) is None
    assert process.change_cluster("other", "scripted", True, None) is None
    gate.set()
    await asyncio.gather(*tasks)
    await table.pipeline.close()


async def test_trying_out_a_cluster_that_is_not_there() -> None:
    process = live(bench(ScriptedEngine()))
    reason = await process.probe("new", ClusterConfig(engine="trino", endpoint="http://127.0.0.1:9"))
    assert "127.0.0.1:9" in reason
    assert await process.probe("new", ClusterConfig(engine="duckDb")) == ""


async def test_doors() -> None:
    process = live(bench(ScriptedEngine()))
    doors = {door.id: (door.enabled, door.port) for door in process.frontends()}
    assert doors == {
        "trinoHttp": (True, 18080),
        "postgresWire": (False, None),
        "mysqlWire": (False, None),
        "flightSql": (False, None),
    }
    assert (process.external_address, process.admin_port) == ("https://sql.example", 19000)


async def test_what_the_fleet_has_leased_and_what_the_engine_runs_stand_beside_each_other() -> None:
    table = bench(ScriptedEngine())
    (state,) = live(table).clusters()
    assert (state.leases, state.engine_running_queries) == (None, None)
    (state,) = live(table, FleetCounts({"scripted": 3}, {"scripted": 7})).clusters()
    assert (state.running_queries, state.leases, state.engine_running_queries) == (0, 3, 7)
    (state,) = live(table, FleetCounts()).clusters()
    assert (state.leases, state.engine_running_queries) == (0, None)
    await table.pipeline.close()
