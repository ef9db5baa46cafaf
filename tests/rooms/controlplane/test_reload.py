"""A process follows its store: coalesced, last good kept, caught up after an outage."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from msgspec.structs import replace

from queryflux.config.clusters import ClusterConfig
from queryflux.config.rows import updated
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import StoredConfig
from queryflux.config.tables import ClusterRow
from queryflux.controlplane.reload import COALESCE_SECS, STOPPING, PrepareFailed, Reloader, Swap
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.persistence.memory_config import MemoryConfigStore
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.clock import ManualClock


class Outage(MemoryConfigStore):
    """A store that can be out of reach, and that need not tell of changes."""

    down = False
    silent = False
    loads = 0

    async def load(self) -> StoredConfig:
        self.loads += 1
        if self.down:
            raise StoreUnavailable("cannot connect to db:5432")
        return await super().load()

    async def changes(self) -> AsyncGenerator[None, None]:
        async for _ in super().changes():
            if not self.silent:
                yield


class Process:
    """What uses the configuration; refuses clusters named ``bad``."""

    def __init__(self, interval: float = 30) -> None:
        self.clock = ManualClock()
        self.metrics = PrometheusMetrics()
        self.store = Outage()
        self.used: list[list[str]] = []
        self.prepared = 0
        self.said: list[tuple[int, float]] = []
        """Sequence, and when the store was read, of what is in use."""
        self.reloader = Reloader(
            self.store,
            self.prepare,
            clock=self.clock,
            metrics=self.metrics,
            interval_secs=interval,
            used=lambda stored, read_at: self.said.append((stored.sequence, read_at)),
        )

    async def prepare(self, stored: StoredConfig) -> Swap:
        self.prepared += 1
        names = [row.name for row in stored.tables.clusters]
        if "bad" in names:
            raise ConfigError("clusters.bad: no such engine")
        if "bad auth" in names:
            raise PrepareFailed("auth_rebuild", ConfigError("auth is wrong"))
        if "broken" in names:
            raise RuntimeError("a fault of ours")
        return lambda: self.used.append(names)

    async def begin(self) -> None:
        stored = await self.store.load()
        self.reloader.begin(stored, await self.prepare(stored), self.clock.monotonic())

    async def put(self, *names: str) -> None:
        before = await MemoryConfigStore.load(self.store)
        clusters = {name: ClusterConfig(engine="duckDb") for name in names}
        await self.store.save(before, updated(before.tables, Snapshot(clusters=clusters), {"clusters"}))

    async def put_newer(self, name: str) -> None:
        before = await MemoryConfigStore.load(self.store)
        row = ClusterRow(name=name, engine_key="hive9")
        await self.store.save(before, replace(before.tables, clusters=(*before.tables.clusters, row)))

    def failures(self, stage: str) -> float:
        name = "queryflux_config_reload_failures_total"
        return self.metrics.registry.get_sample_value(name, {"stage": stage}) or 0


@pytest.fixture
async def process() -> AsyncGenerator[Process, None]:
    process = Process()
    await process.put("a")
    await process.begin()
    process.reloader.follow()
    await process.clock.advance(1)
    assert process.used == [["a"]]
    yield process
    await process.reloader.close()
    assert process.clock.pending == 0


async def test_a_change_is_used_soon(process: Process) -> None:
    await process.put("a", "b")
    await process.clock.advance(COALESCE_SECS)
    assert process.used[1:] == [["a", "b"]]
    assert process.reloader.state.sequence == 2
    assert process.reloader.state.failure == ""


async def test_what_is_left_out_is_said_as_long_as_it_is_stored(process: Process) -> None:
    await process.put_newer("hive")
    await process.clock.advance(COALESCE_SECS)
    said = ("cluster hive is left out: this version has no engine 'hive9'",)
    assert (process.reloader.state.warnings, process.reloader.state.failure) == (said, "")
    await process.put("bad")
    await process.clock.advance(COALESCE_SECS)
    assert process.reloader.state.failure
    assert process.reloader.state.warnings == said
    before = await process.store.load()
    await process.store.save(before, replace(before.tables, clusters=()))
    await process.clock.advance(COALESCE_SECS)
    assert not process.reloader.state.warnings


async def test_a_burst_is_one_reload(process: Process) -> None:
    for number in range(20):
        await process.put("a", f"b{number}")
        await process.clock.advance(0.005)
    await process.clock.advance(COALESCE_SECS)
    assert process.used[1:] == [["a", "b19"]]


async def test_a_change_during_a_reload_is_not_missed(process: Process) -> None:
    await process.put("b")
    await process.clock.advance(COALESCE_SECS)
    await process.put("c")
    await process.clock.advance(COALESCE_SECS)
    assert process.used[1:] == [["b"], ["c"]]


async def test_a_lost_notice_is_made_good_by_the_poll(process: Process) -> None:
    process.store.silent = True
    await process.put("b")
    await process.clock.advance(28)
    assert process.used[1:] == []
    await process.clock.advance(2)
    assert process.used[1:] == [["b"]]


async def test_nothing_new_prepares_nothing(process: Process) -> None:
    since = process.reloader.state.since
    await process.clock.advance(300)
    assert process.prepared == 1
    assert process.store.loads > 10
    assert process.reloader.state.since == since, "it is in use all the time"


async def test_without_an_interval_only_notices_count() -> None:
    process = Process(interval=0)
    await process.begin()
    process.reloader.follow()
    await process.clock.advance(1)
    loads = process.store.loads
    await process.clock.advance(3600)
    assert process.store.loads == loads
    await process.put("b")
    await process.clock.advance(COALESCE_SECS)
    assert process.used[-1] == ["b"]
    await process.reloader.close()


async def test_a_bad_configuration_keeps_the_last_good(process: Process) -> None:
    await process.put("a", "bad")
    await process.clock.advance(COALESCE_SECS)
    state = process.reloader.state
    assert process.used == [["a"]]
    assert (state.sequence, state.failure, state.stage) == (1, "clusters.bad: no such engine", "reload")
    assert process.failures("reload") == 1
    await process.put("a", "good")
    await process.clock.advance(COALESCE_SECS)
    assert process.used[-1] == ["a", "good"]
    assert (process.reloader.state.sequence, process.reloader.state.failure) == (3, "")


async def test_going_back_to_the_last_good_ends_the_failure(process: Process) -> None:
    await process.put("a", "bad")
    await process.clock.advance(COALESCE_SECS)
    await process.put("a")
    await process.clock.advance(COALESCE_SECS)
    assert process.reloader.state.failure == ""
    assert process.used == [["a"]]


async def test_failures_are_counted_by_their_stage_and_faults_of_ours_do_no_harm(process: Process) -> None:
    for names in (["bad auth"], ["broken"], ["a", "b"]):
        await process.put(*names)
        await process.clock.advance(COALESCE_SECS)
    assert (process.failures("auth_rebuild"), process.failures("reload")) == (1, 1)
    assert process.used == [["a"], ["a", "b"]]


async def test_a_bad_configuration_is_logged_once_and_tried_again(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    await process.put("bad")
    await process.clock.advance(100)
    assert process.failures("reload") == 4
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the configuration in use stays at 1 (reload): clusters.bad: no such engine"
    ]


async def test_an_outage_is_over_when_the_store_is_back(process: Process) -> None:
    process.store.down = True
    await process.put("b")
    await process.clock.advance(10)
    assert process.reloader.state.failure == "cannot connect to db:5432"
    assert process.failures("load") == 4  # at once, then after 1, 2 and 4 s
    process.store.down = False
    await process.clock.advance(9)
    assert process.used[-1] == ["b"]
    assert process.reloader.state.failure == ""


async def test_attempts_during_an_outage_do_not_add_up(process: Process) -> None:
    process.store.down = True
    for _ in range(5):
        await process.reloader.apply()
        await process.clock.advance(0.3)
    assert process.clock.pending == 2, "the poll, and one next attempt"


async def test_whoever_has_edited_learns_what_became_of_it(process: Process) -> None:
    await process.put("b")
    assert await process.reloader.apply() == ""
    assert process.used[-1] == ["b"]
    await process.put("bad")
    assert await process.reloader.apply() == "clusters.bad: no such engine"


async def test_an_edit_at_the_moment_of_the_end_is_not_put_to_use() -> None:
    process = Process()
    await process.put("a")
    await process.begin()
    began = asyncio.Event()

    async def prepare(stored: StoredConfig) -> Swap:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    process.reloader = Reloader(
        process.store, prepare, clock=process.clock, metrics=process.metrics, interval_secs=0
    )
    applying = asyncio.ensure_future(process.reloader.apply())
    await began.wait()
    await process.reloader.close()
    assert await applying == STOPPING
    assert await process.reloader.apply() == STOPPING
    assert process.used == [["a"]]


async def test_every_read_that_is_in_use_is_said_with_its_time_and_no_other(process: Process) -> None:
    process.said.clear()
    await process.clock.advance(30)
    (read,) = process.said
    assert read[0] == 1
    assert process.clock.monotonic() - 30 <= read[1] <= process.clock.monotonic()
    process.store.silent = True
    for trouble in ("bad", "broken"):
        await process.put("a", trouble)
        await process.reloader.apply()
    process.store.down = True
    await process.reloader.apply()
    assert process.said == [read]
    process.store.down = False
    await process.put("a", "b")
    process.reloader.want()
    await process.clock.advance(COALESCE_SECS)
    assert process.said[1:] == [(4, process.clock.monotonic())]
