"""Queries of a process that has gone: cancelled at their engine where that keeps them, and recorded once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from queryflux.admission.claims import REFRESH_SECS, STALE_SECS
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.engines.port import ConnectionSpec, EngineConnection, EngineRequest
from queryflux.model.endings import EndReason
from queryflux.model.protocol import ClientProtocol
from queryflux.model.shared import Kept, SharedQuery, SharedRow
from queryflux.pipeline.eviction import WAITERS, WAITERS_PATIENCE, ZOMBIES, Eviction
from queryflux.results.answer import Answer, EngineStats, Frames
from tests.kit.claims import MemoryClaims, MemoryClaimStore, shared_query
from tests.kit.clock import ManualClock, settle
from tests.kit.pipelines import Bench, bench
from tests.kit.scripted import ScriptedConnection, ScriptedEngine

KEPT = Kept(3, "http://lake/v1/statement/executing/t1/y/3")


class Resumed(Frames):
    """What an engine keeps; stopped when it is closed."""

    protocol = ClientProtocol.TRINO_HTTP

    def __init__(self, engine: "KeepingEngine") -> None:
        self.stats = EngineStats()
        self._engine = engine

    async def next(self) -> None:
        """Nobody reads."""

    async def close(self) -> None:
        self._engine.stopped += 1


class KeepingEngine(ScriptedEngine):
    """Keeps results at addresses of its own."""

    def __init__(self) -> None:
        super().__init__("lake", dialect="trino", native=ClientProtocol.TRINO_HTTP)
        self.resumed: list[tuple[str, str]] = []
        self.stopped = 0

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        return KeepingConnection(self, spec)


class KeepingConnection(ScriptedConnection):
    """Remembers who came back to what."""

    def __init__(self, engine: KeepingEngine, spec: ConnectionSpec) -> None:
        super().__init__(engine)
        self._keeping = engine
        self._user = spec.identity.user

    def resume(self, request: EngineRequest, uri: str, had: int) -> Answer:
        self._keeping.resumed.append((self._user, uri))
        return Resumed(self._keeping)


@dataclass
class House:
    """A process, and the rows of one that has gone."""

    clock: ManualClock
    bench: Bench
    engine: KeepingEngine
    shared: MemoryClaims
    gone: MemoryClaimStore
    eviction: Eviction

    async def sweep(self, name: str) -> int:
        """One sweep, and the time it takes."""
        task = asyncio.ensure_future(self.eviction.once(name))
        await settle()
        await self.clock.advance(REFRESH_SECS)
        return await task


@pytest.fixture
async def house() -> AsyncIterator[House]:
    clock = ManualClock()
    engine = KeepingEngine()
    table = bench(engine, clock=clock)
    shared = MemoryClaims(Ledger(clock))
    here = MemoryClaimStore(shared, "here")
    sweeps = MemoryCapacityStore(shared.ledger, "here")
    eviction = Eviction(here, sweeps, table.pipeline, clock, table.metrics, interval_secs=120)
    yield House(clock, table, engine, shared, MemoryClaimStore(shared, "gone"), eviction)
    await table.pipeline.close()


def query(house: House, **changes: Any) -> SharedQuery:
    return shared_query(created_at=house.clock.now(), **changes)


async def test_what_its_engine_keeps_is_cancelled_there(house: House) -> None:
    await house.gone.run(query(house, waited_secs=2.0), "lake", "t1", KEPT, waited=False)
    await house.clock.advance(STALE_SECS + 1)
    assert await house.sweep(ZOMBIES) == 1
    assert house.engine.resumed == [("ann", KEPT.uri)]
    assert house.engine.stopped == 1
    (record,) = house.bench.records
    assert (record.proxy_query_id, record.username, record.cluster_name) == ("q_1", "ann", "lake")
    assert (record.status.value, record.reason) == ("Cancelled", EndReason.CANCELLED)
    assert "process gone" in (record.error_message or "")
    assert record.queue_duration_ms == pytest.approx(2000)
    assert record.execution_duration_ms == pytest.approx((STALE_SECS + 1 + REFRESH_SECS - 2) * 1000)
    assert not house.shared.rows
    house.bench.assert_idle()


async def test_what_only_its_process_had_is_recorded(house: House) -> None:
    await house.gone.run(query(house), "lake", "q_1", None, waited=False)
    await house.clock.advance(STALE_SECS + 1)
    assert await house.sweep(ZOMBIES) == 1
    assert house.engine.resumed == []
    assert [record.status.value for record in house.bench.records] == ["Cancelled"]
    house.bench.assert_idle()


async def test_a_cluster_that_is_not_configured_any_more(house: House) -> None:
    await house.gone.run(query(house), "sold", "t1", KEPT, waited=False)
    await house.clock.advance(STALE_SECS + 1)
    assert await house.sweep(ZOMBIES) == 1
    assert [record.status.value for record in house.bench.records] == ["Cancelled"]
    assert not house.shared.rows


async def test_what_waited_is_left_to_its_client_for_longer_and_has_failed_then(house: House) -> None:
    await house.gone.wait(query(house))
    await house.clock.advance(STALE_SECS + 1)
    assert await house.sweep(ZOMBIES) == await house.sweep(WAITERS) == 0
    await house.clock.advance(STALE_SECS * WAITERS_PATIENCE)
    assert await house.sweep(WAITERS) == 1
    (record,) = house.bench.records
    assert (record.status.value, record.reason, record.cluster_group) == ("Failed", EndReason.FAILED, "main")
    assert record.queue_duration_ms > STALE_SECS * WAITERS_PATIENCE * 1000
    assert not house.shared.rows
    house.bench.assert_idle()


async def test_an_owner_that_is_back_before_the_end_keeps_its_query(house: House) -> None:
    await house.gone.run(query(house), "lake", "t1", KEPT, waited=False)
    await house.clock.advance(STALE_SECS + 1)
    task = asyncio.ensure_future(house.eviction.once(ZOMBIES))
    await settle()
    await house.gone.refresh({"q_1": 0})
    await house.clock.advance(REFRESH_SECS)
    assert await task == 0
    assert house.engine.stopped == 0
    assert house.shared.rows


async def test_only_one_process_sweeps(house: House) -> None:
    other = MemoryCapacityStore(house.shared.ledger, "other")
    assert await other.try_lock(ZOMBIES) is not None
    await house.gone.run(query(house), "lake", "t1", KEPT, waited=False)
    await house.clock.advance(STALE_SECS + 1)
    assert await house.sweep(ZOMBIES) == 0
    assert house.shared.rows


async def test_a_row_that_cannot_be_read_does_not_end_the_sweeps(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = MemoryClaimStore.stale
    asked: list[bool] = []

    async def stale(self: MemoryClaimStore, *, executing: bool, idle_secs: float) -> Sequence[SharedRow]:
        asked.append(executing)
        if len(asked) <= 2:
            raise ValueError("a row of a version that we do not know")
        return await whole(self, executing=executing, idle_secs=idle_secs)

    monkeypatch.setattr(MemoryClaimStore, "stale", stale)
    await house.gone.run(query(house), "lake", "q_1", None, waited=False)
    sweeps = asyncio.ensure_future(house.eviction.run())
    for _ in range(3):
        await house.clock.advance(121)
    sweeps.cancel()
    assert asked[:2] == [True, False]
    assert [record.status.value for record in house.bench.records] == ["Cancelled"]
    house.bench.assert_idle()
