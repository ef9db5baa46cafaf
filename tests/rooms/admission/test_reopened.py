"""Leases in memory after a restart: what workers still run is adopted before anything new is granted."""

from random import Random

import pytest

from queryflux.admission.batched import LINGER_SECS
from queryflux.admission.leases import Leases
from queryflux.admission.lifecycle import Holding, State
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import UNLIMITED, Lease, Wanted
from queryflux.admission.sweep import LeaseSweep
from queryflux.model.errors import StoreUnavailable
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle
from tests.kit.metrics import NoMetrics


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_what_is_renewed_and_not_known_is_adopted_and_counts(clock: ManualClock) -> None:
    ledger = Ledger.reopened(clock, 60)
    worker, own = MemoryCapacityStore(ledger, "worker"), MemoryCapacityStore(ledger, "own")
    leases = [Lease("c", "a"), Lease("c", "b")]
    assert await worker.renew(leases) == {"a", "b"}
    await clock.advance(60)
    assert await own.counts() == {"c": 2}
    assert not await own.try_acquire("c", "x", 2), "they count against the cap"
    assert await worker.renew(leases) == {"a", "b"}
    assert await own.renew([Lease("c", "a")]) == set(), "what another holds is not adopted"
    await worker.release_many(leases)
    assert await own.try_acquire("c", "x", 2)


async def test_nothing_new_is_granted_until_everybody_must_have_renewed(clock: ManualClock) -> None:
    store = MemoryCapacityStore(Ledger.reopened(clock, 60), "worker")
    for seconds in (0, 59):
        await clock.advance(seconds)
        with pytest.raises(StoreUnavailable, match="not known yet after a start"):
            await store.try_acquire("c", "new", 5)
        with pytest.raises(StoreUnavailable):
            await store.counts()
    await clock.advance(1)
    assert await store.try_acquire("c", "new", 5)


async def test_what_runs_is_granted_in_the_meantime(clock: ManualClock) -> None:
    store = MemoryCapacityStore(Ledger.reopened(clock, 60), "worker")
    await store.renew([Lease("c", "a")])
    assert await store.try_acquire("c", "a", 1), "asked for again, for its reply was lost"
    assert await store.try_acquire_many("c", [Wanted("b", UNLIMITED)]) == [True]
    with pytest.raises(StoreUnavailable):
        await store.try_acquire_many("c", [Wanted("a", 1), Wanted("c", 1)], ["b"])
    assert await store.renew([Lease("c", "b")]) == {"b"}, "a call that fails does nothing"


async def test_what_was_adopted_ends_when_nobody_renews_it(clock: ManualClock) -> None:
    ledger = Ledger.reopened(clock, 60)
    store = MemoryCapacityStore(ledger, "worker")
    sweep = LeaseSweep(store, store, clock, NoMetrics(), interval_secs=120, expiry_secs=300)
    await store.renew([Lease("c", "a")])
    await clock.advance(301)
    assert await sweep.once()
    assert not ledger.rows


async def test_a_release_that_comes_before_a_renewal_of_the_same_lease_still_counts(
    clock: ManualClock,
) -> None:
    """Else the ledger would adopt a lease that nobody holds any more."""
    ledger = Ledger.reopened(clock, 0)
    store = FaultyStore(ledger)
    leases = Leases(store, clock, PrometheusMetrics(), chance=Random(1))
    holding = Holding(Lease("c", "a"))
    leases.ask(holding, 1, lambda verdict, why: None)
    await settle()
    store.hold()
    renewed = leases.tasks.spawn("renewal", leases.renew())
    await settle()
    store_release, store.release_many = store.release_many, MemoryCapacityStore(ledger, "one").release_many  # type: ignore[method-assign]
    leases.release(holding)
    await clock.advance(LINGER_SECS)
    assert not ledger.rows
    store.release_many = store_release  # type: ignore[method-assign]
    store.let_go()
    await clock.advance(LINGER_SECS)
    assert renewed.done()
    assert not ledger.rows
    assert holding.state is State.RELEASED
    await leases.tasks.close()
