"""What engines say they run is published by one process and read by all, and shown beside the leases."""

from collections.abc import Mapping

from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.model.errors import EngineUnavailable, StoreUnavailable
from queryflux.pipeline.reconcile import INTERVAL_SECS, FleetCounts, Reconcile
from tests.kit.clock import settle
from tests.kit.pipelines import Bench, bench
from tests.kit.scripted import ScriptedEngine


class CountingEngine(ScriptedEngine):
    """Says what it is told to; an error is raised."""

    says: int | Exception | None = 0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[str | None] = []

    async def count_running(self, query: str | None = None) -> int | None:
        self.asked.append(query)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


class DeafStore(MemoryCapacityStore):
    """Does not answer while it is told not to."""

    deaf = False

    async def counts(self) -> dict[str, int]:
        if self.deaf:
            raise StoreUnavailable("gone")
        return await super().counts()


def reconcile_of(table: Bench, ledger: Ledger, instance: str, queries: Mapping[str, str] = {}) -> Reconcile:
    store = DeafStore(ledger, instance)
    return Reconcile(store, store, lambda: table.pipeline.active, queries.get, table.clock, table.metrics)


async def test_one_asks_and_all_read() -> None:
    east, west = CountingEngine("east"), CountingEngine("west")
    east.says, west.says = 7, None
    table = bench(east, west)
    ledger = Ledger(table.clock)
    ledger.add("q", "east", "a")
    one = reconcile_of(table, ledger, "a", {"east": "SELECT mine"})
    other = reconcile_of(table, ledger, "b")
    assert await one.once()
    assert not await other.once(), "it is not due"
    assert (east.asked, west.asked) == (["SELECT mine"], [None])
    assert one.counts == other.counts == FleetCounts({"east": 1}, {"east": 7})
    assert table.metric("queryflux_engine_running_queries", cluster_name="east") == 7
    assert table.metric("queryflux_cluster_leases", cluster_name="east") == 1
    await table.clock.advance(INTERVAL_SECS)
    assert await other.once()
    assert east.asked == ["SELECT mine", None]
    await table.pipeline.close()


async def test_an_engine_that_fails_keeps_no_other_from_being_counted() -> None:
    east, west = CountingEngine("east"), CountingEngine("west")
    east.says, west.says = EngineUnavailable("refused"), 3
    table = bench(east, west)
    reconcile = reconcile_of(table, Ledger(table.clock), "a")
    assert await reconcile.once()
    assert reconcile.counts.engine == {"west": 3}
    table.members["west"].enabled = False
    east.says = 1
    await table.clock.advance(INTERVAL_SECS)
    assert await reconcile.once()
    assert reconcile.counts.engine == {"east": 1, "west": 3}
    assert len(west.asked) == 1, "one that is not used is not asked"
    await table.pipeline.close()


async def test_counts_are_never_part_of_admission() -> None:
    east = CountingEngine("east")
    east.says = 1000
    table = bench(east, member_limit=1)
    ledger = Ledger(table.clock)
    assert await reconcile_of(table, ledger, "a").once()
    assert await MemoryCapacityStore(ledger, "a").try_acquire("east", "q", 1)
    await table.pipeline.close()


async def test_it_goes_on_when_the_store_is_back() -> None:
    east = CountingEngine("east")
    table = bench(east)
    ledger = Ledger(table.clock)
    store = DeafStore(ledger, "a")
    reconcile = Reconcile(
        store, store, lambda: table.pipeline.active, lambda _: None, table.clock, table.metrics
    )
    store.deaf = True
    reconcile.start()
    await settle()
    assert table.metric("queryflux_coordination_failures_total", operation="reconcile") == 1
    store.deaf = False
    ledger.add("q", "east", "b")
    await table.clock.advance(INTERVAL_SECS)
    await settle()
    assert reconcile.counts.leases == {"east": 1}
    await reconcile.close()
    await table.pipeline.close()
