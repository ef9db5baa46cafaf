"""What every store of leases holds: in memory, on both versions of PostgreSQL, and by a control plane."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from queryflux.admission.port import UNLIMITED, CapacityStore, Lease, SweepCoordinator, Wanted, sweeping
from queryflux.admission.sweep import LeaseSweep
from queryflux.model.errors import StoreUnavailable
from tests.kit.capacity_stores import KINDS, Fleet, WorkerFleet, open_fleet
from tests.kit.clock import ManualClock
from tests.kit.metrics import NoMetrics


@pytest.fixture(params=KINDS)
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    async with open_fleet(request.param) as fleet:
        yield fleet


@pytest.fixture
def one(fleet: Fleet) -> CapacityStore:
    return fleet.store("one")


@pytest.fixture
def two(fleet: Fleet) -> CapacityStore:
    return fleet.store("two")


async def test_a_limit_holds_across_instances(one: CapacityStore, two: CapacityStore) -> None:
    assert await one.try_acquire("c", "a", 2)
    assert await two.try_acquire("c", "b", 2)
    assert not await one.try_acquire("c", "x", 2)
    assert not await two.try_acquire("c", "y", 2)
    assert await two.try_acquire("d", "y", 2), "another cluster has its own"
    assert await one.counts() == {"c": 2, "d": 1}


async def test_what_is_released_can_be_had_again(one: CapacityStore, two: CapacityStore) -> None:
    assert await one.try_acquire("c", "a", 1)
    await one.release_many([Lease("c", "a")])
    assert await two.try_acquire("c", "b", 1)


async def test_the_same_query_again_is_granted_and_changes_nothing(one: CapacityStore) -> None:
    assert await one.try_acquire("c", "a", 1)
    assert await one.try_acquire("c", "a", 1)
    assert await one.try_acquire_many("c", [Wanted("a", 1), Wanted("b", 1)]) == [True, False]
    assert await one.counts() == {"c": 1}


async def test_the_same_query_on_another_cluster_waits_for_its_release(one: CapacityStore) -> None:
    assert await one.try_acquire("c", "a", 5)
    assert not await one.try_acquire("d", "a", 5)
    assert await one.try_acquire_many("d", [Wanted("a", 5), Wanted("b", 5)]) == [False, True]
    await one.release_many([Lease("c", "a")])
    assert await one.try_acquire("d", "a", 5)


async def test_the_same_query_of_another_instance_is_refused(one: CapacityStore, two: CapacityStore) -> None:
    assert await one.try_acquire("c", "a", 5)
    assert not await two.try_acquire("c", "a", 5)
    assert await two.try_acquire_many("c", [Wanted("a", 5)]) == [False]
    await two.release_many([Lease("c", "a")])
    assert await one.counts() == {"c": 1}, "and it is not theirs to release"


async def test_a_release_of_what_is_not_held_is_harmless(one: CapacityStore) -> None:
    assert await one.try_acquire("c", "a", 5)
    await one.release_many([Lease("c", "never"), Lease("d", "a")])
    await one.release_many([])
    assert await one.counts() == {"c": 1}, "a lease is released on its own cluster only"


async def test_a_group_is_granted_in_order_as_far_as_it_fits(one: CapacityStore) -> None:
    wanted = [Wanted(f"q{number}", 3) for number in range(5)]
    assert await one.try_acquire_many("c", wanted) == [True, True, True, False, False]
    assert await one.counts() == {"c": 3}


async def test_each_of_a_group_has_its_own_limit(one: CapacityStore) -> None:
    wanted = [Wanted("a", 1), Wanted("b", 1), Wanted("c", 3), Wanted("d", 2), Wanted("e", 3)]
    assert await one.try_acquire_many("c", wanted) == [True, False, True, False, True]


async def test_an_id_that_comes_twice_in_a_group_takes_one_place(one: CapacityStore) -> None:
    assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("a", 2), Wanted("b", 2)]) == [True] * 3
    assert await one.counts() == {"c": 2}


async def test_a_group_takes_releases_along(one: CapacityStore, two: CapacityStore) -> None:
    assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)]) == [True, True]
    assert await one.try_acquire_many("c", [Wanted("x", 2), Wanted("y", 2)], ["a"]) == [True, False]
    assert await two.try_acquire_many("c", [Wanted("z", 2)], ["b", "x"]) == [False], "not theirs"
    assert await one.try_acquire_many("c", [Wanted("b", 2)], ["b"]) == [True]
    assert await one.counts() == {"c": 2}


async def test_a_lost_lease_is_taken_again_above_the_cap(one: CapacityStore, two: CapacityStore) -> None:
    assert await two.try_acquire("c", "theirs", 1)
    assert await one.try_acquire_many("c", [Wanted("mine", UNLIMITED)]) == [True]
    assert await one.counts() == {"c": 2}
    await two.release_many([Lease("c", "theirs")])
    assert not await two.try_acquire("c", "next", 1), "nothing new until below the cap"


async def test_a_lowered_cap_grants_nothing_until_below_it(one: CapacityStore) -> None:
    assert all(await one.try_acquire_many("c", [Wanted(f"q{number}", 5) for number in range(5)]))
    for number in range(4):
        assert not await one.try_acquire("c", "x", 2)
        await one.release_many([Lease("c", f"q{number}")])
    assert await one.try_acquire("c", "x", 2)


async def test_an_instance_that_keeps_asking_is_left_a_place(
    fleet: Fleet, one: CapacityStore, two: CapacityStore
) -> None:
    three = fleet.store("three")
    assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)]) == [True, True]
    assert not await two.try_acquire("c", "x", 2)
    await fleet.wait(0.5)
    assert await one.try_acquire_many("c", [Wanted("d", 2)], ["a"]) == [True], "it has not waited for long"
    assert not await two.try_acquire("c", "x", 2)
    await fleet.wait(0.6)
    assert await one.try_acquire_many("c", [Wanted("e", 2)], ["d"]) == [False]
    assert not await three.try_acquire("c", "z", 2), "it is not for whoever comes later"
    assert await two.try_acquire("c", "x", 2)
    await two.release_many([Lease("c", "x")])
    assert await one.try_acquire("c", "e", 2), "nobody waits any more who has waited for long"


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_place_is_left_only_for_who_could_take_it(
    fleet: Fleet, one: CapacityStore, two: CapacityStore, grouped: bool
) -> None:
    """As where groups of one cluster have limits of their own."""
    three = fleet.store("three")
    assert await one.try_acquire("c", "a", 2)
    assert not await two.try_acquire("c", "x", 1)
    await fleet.wait(1.1)
    assert not await two.try_acquire("c", "x", 1)
    if grouped:
        assert await three.try_acquire_many("c", [Wanted("y", 1), Wanted("z", 2)]) == [False, True]
    else:
        assert await three.try_acquire("c", "z", 2)


async def test_a_lower_limit_has_its_turn_where_there_is_room_below_it(
    fleet: Fleet, one: CapacityStore, two: CapacityStore
) -> None:
    assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)]) == [True, True]
    assert not await two.try_acquire("c", "x", 1)
    await fleet.wait(1.1)
    assert await one.try_acquire_many("c", [Wanted("d", 1)], ["a", "b"]) == [False]
    assert not await one.try_acquire("c", "d", 1)
    assert await one.try_acquire("c", "e", 2), "as before, one place is left and not all below its limit"
    await one.release_many([Lease("c", "e")])
    assert await two.try_acquire("c", "x", 1)


async def test_who_is_refused_is_not_overtaken_at_its_limit_in_the_same_call(
    fleet: Fleet, one: CapacityStore, two: CapacityStore
) -> None:
    assert await one.try_acquire("c", "a", 1)
    assert not await two.try_acquire("c", "x", 1)
    assert not await fleet.store("three").try_acquire("c", "y", 1)
    await fleet.wait(1.1)
    wanted = [Wanted("d", 2), Wanted("e", 3), Wanted("f", 2)]
    assert await one.try_acquire_many("c", wanted, ["a"]) == [False, True, False]


async def test_who_waits_at_two_limits_keeps_its_turn_at_the_higher(
    fleet: Fleet, one: CapacityStore, two: CapacityStore
) -> None:
    assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)]) == [True, True]
    assert await two.try_acquire_many("c", [Wanted("x", 1), Wanted("y", 2)]) == [False, False]
    await fleet.wait(1.1)
    assert not await two.try_acquire("c", "x", 1)
    assert await one.try_acquire_many("c", [Wanted("d", 2)], ["a"]) == [False]
    assert await two.try_acquire("c", "y", 2)


async def test_who_waits_only_at_the_lower_limit_any_more_keeps_nobody_from_the_higher(
    fleet: Fleet, one: CapacityStore, two: CapacityStore
) -> None:
    assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)]) == [True, True]
    assert not await two.try_acquire("c", "y", 2)
    for _ in range(4):
        await fleet.wait(0.5)
        assert not await two.try_acquire("c", "x", 1)
    assert await one.try_acquire_many("c", [Wanted("d", 2)], ["a"]) == [True]
    assert await fleet.waiting() == {"two"}
    for _ in range(3):
        await fleet.wait(0.5)
        assert not await two.try_acquire("c", "x", 1)
    assert await one.try_acquire_many("c", [Wanted("e", 1)], ["b", "d"]) == [False], "below it they do"


async def test_a_wait_at_a_higher_limit_begins_when_it_is_refused_there(
    fleet: Fleet, one: CapacityStore, two: CapacityStore
) -> None:
    three = fleet.store("three")
    assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)]) == [True, True]
    assert not await two.try_acquire("c", "x", 1)
    await fleet.wait(1)
    assert not await three.try_acquire("c", "z", 2)
    await fleet.wait(0.1)
    assert await two.try_acquire_many("c", [Wanted("x", 1), Wanted("y", 2)]) == [False, False]
    await fleet.wait(1.1)
    await one.release_many([Lease("c", "a")])
    assert not await two.try_acquire("c", "y", 2), "it is not its turn"
    assert await three.try_acquire("c", "z", 2)


@pytest.mark.parametrize("grouped", [False, True])
async def test_who_asks_for_what_another_holds_keeps_no_place(
    fleet: Fleet, one: CapacityStore, two: CapacityStore, grouped: bool
) -> None:
    assert await one.try_acquire("c", "a", 2)
    for _ in range(4):
        if grouped:
            assert await two.try_acquire_many("c", [Wanted("a", 2)]) == [False]
        else:
            assert not await two.try_acquire("c", "a", 2)
        await fleet.wait(0.5)
    assert await fleet.store("three").try_acquire("c", "z", 2)


async def test_an_instance_that_stopped_asking_is_not_waited_for(
    fleet: Fleet, one: CapacityStore, two: CapacityStore
) -> None:
    assert await one.try_acquire("c", "a", 1)
    assert not await two.try_acquire("c", "x", 1)
    await fleet.wait(3)
    assert await one.try_acquire_many("c", [Wanted("b", 1)], ["a"]) == [True]


async def test_an_instance_that_ended_is_forgotten(fleet: Fleet, one: CapacityStore) -> None:
    assert await one.try_acquire("c", "a", 1)
    for name in ("gone", "two"):
        assert not await fleet.store(name).try_acquire("c", name, 1)
    await fleet.wait(31)
    assert not await fleet.store("two").try_acquire("c", "two", 1)
    assert await fleet.waiting() == {"gone", "two"}
    await fleet.sweeps.expire(30)
    assert await fleet.waiting() == {"two"}


async def test_renewal_gives_back_what_is_held(one: CapacityStore, two: CapacityStore) -> None:
    await one.try_acquire("c", "a", 5)
    await one.try_acquire("d", "b", 5)
    await two.try_acquire("c", "theirs", 5)
    named = [Lease("c", "a"), Lease("d", "b"), Lease("c", "theirs"), Lease("c", "never")]
    assert await one.renew(named) == {"a", "b"}
    assert await one.renew([]) == set()


async def test_what_is_not_renewed_in_time_ends(fleet: Fleet, one: CapacityStore) -> None:
    for query_id in ("a", "b"):
        await one.try_acquire("c", query_id, 5)
    await fleet.wait(200)
    assert await fleet.sweeps.expire(300) == 0
    assert await one.renew([Lease("c", "a")]) == {"a"}
    await fleet.wait(200)
    assert await fleet.sweeps.expire(300) == 1
    assert await one.renew([Lease("c", "a"), Lease("c", "b")]) == {"a"}
    assert await one.counts() == {"c": 1}


async def test_an_instance_gives_back_all_it_has(one: CapacityStore, two: CapacityStore) -> None:
    for cluster in ("c", "d", "e"):
        await one.try_acquire(cluster, f"one-{cluster}", 5)
    await two.try_acquire("c", "two", 5)
    assert await one.release_all() == 3
    assert await one.release_all() == 0
    assert await one.counts() == {"c": 1}


async def test_what_engines_run_is_published_and_never_counted(
    one: CapacityStore, two: CapacityStore
) -> None:
    await one.publish_running("c", 40)
    assert (await two.running())["c"] == 40
    assert await two.try_acquire("c", "a", 1)
    await two.publish_running("c", 2)
    assert (await one.running())["c"] == 2
    assert await one.counts() == {"c": 1}


async def test_counters_that_agree_are_left_alone(fleet: Fleet, one: CapacityStore) -> None:
    await one.try_acquire("c", "a", 5)
    assert await fleet.sweeps.settle() == []
    assert await one.counts() == {"c": 1}


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_lease_that_is_asked_for_again_is_as_good_as_new(
    fleet: Fleet, one: CapacityStore, grouped: bool
) -> None:
    """Else a query whose first reply was lost, and that waited long, would run on a lease about to end."""
    assert await one.try_acquire("c", "a", 2)
    await fleet.wait(299)
    if grouped:
        assert await one.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)]) == [True, True]
    else:
        assert await one.try_acquire("c", "a", 2)
    await fleet.wait(299)
    assert await fleet.sweeps.expire(300) == 0
    assert await one.counts() == {"c": 1 + grouped}


async def test_a_sweep_is_done_by_one_and_not_again_before_it_is_due(fleet: Fleet) -> None:
    async with sweeping(fleet.sweeps, "leases", 100) as ours:
        assert ours
        async with sweeping(fleet.sweeps, "leases", 100) as again:
            assert not again
        async with sweeping(fleet.sweeps, "another") as another:
            assert another
    assert await fleet.sweeps.try_lock("leases") is None
    assert await fleet.sweeps.try_lock("another") is not None
    await fleet.wait(101)
    assert await fleet.sweeps.try_lock("leases") is not None


async def test_a_sweep_that_nobody_ends_is_free_after_five_minutes(fleet: Fleet) -> None:
    dead = await fleet.sweeps.try_lock("leases")
    assert dead is not None
    await fleet.wait(200)
    assert await fleet.sweeps.try_lock("leases") is None
    await fleet.wait(101)
    assert await fleet.sweeps.try_lock("leases") is not None
    await fleet.sweeps.unlock("leases", dead, 0)
    assert await fleet.sweeps.try_lock("leases") is None, "an old token opens nothing"


async def test_a_sweep_may_be_free_sooner(fleet: Fleet) -> None:
    assert await fleet.sweeps.try_lock("leases", 10) is not None
    await fleet.wait(9)
    assert await fleet.sweeps.try_lock("leases", 10) is None
    await fleet.wait(2)
    assert await fleet.sweeps.try_lock("leases", 10) is not None


class SilentAtTheEnd:
    """A coordinator that cannot be told that a sweep is done: it died, or its connection did."""

    def __init__(self, sweeps: SweepCoordinator) -> None:
        self.try_lock = sweeps.try_lock

    async def unlock(self, name: str, token: str, rest_secs: float) -> None:
        raise StoreUnavailable("connection lost")


async def test_a_process_that_dies_in_its_sweep_keeps_others_from_one_at_most(fleet: Fleet) -> None:
    clock, metrics = ManualClock(), NoMetrics()
    dying = LeaseSweep(SilentAtTheEnd(fleet.sweeps), fleet.sweeps, clock, metrics, interval_secs=120)
    other = LeaseSweep(fleet.sweeps, fleet.sweeps, clock, metrics, interval_secs=120)
    with pytest.raises(StoreUnavailable):
        await dying.once()
    assert not await other.once()
    await fleet.wait(110)
    assert await other.once()


async def test_a_sweep_that_failed_is_due_at_once(fleet: Fleet) -> None:
    with pytest.raises(ZeroDivisionError):
        async with sweeping(fleet.sweeps, "leases", 100):
            raise ZeroDivisionError
    assert await fleet.sweeps.try_lock("leases") is not None


@pytest.mark.parametrize("limit", [1, 10, 100])
async def test_many_clients_of_several_instances_never_pass_the_cap(fleet: Fleet, limit: int) -> None:
    running, most, grants = 0, 0, 0
    stores = [fleet.store(f"i{number}") for number in range(4)]
    spinning = limit == 1 and isinstance(fleet, WorkerFleet)  # most asks are in vain, and each a request
    until = 30 if spinning else 300

    async def client(number: int) -> None:
        nonlocal running, most, grants
        store, chance = stores[number % 4], Random(number)
        for turn in range(10_000):
            if grants >= until:
                return
            ids = [f"{number}-{turn}-{part}" for part in range(chance.randint(1, 3))]
            if len(ids) == 1:
                granted = [await store.try_acquire("c", ids[0], limit)]
            else:
                granted = await store.try_acquire_many("c", [Wanted(query_id, limit) for query_id in ids])
            held = [Lease("c", query_id) for query_id, fits in zip(ids, granted, strict=True) if fits]
            running += len(held)
            grants += len(held)
            most = max(most, running)
            await asyncio.sleep(0)
            running -= len(held)
            await store.release_many(held)

    await asyncio.gather(*(client(number) for number in range(64)))
    assert grants >= until
    assert most <= limit
    assert await stores[0].counts() == {}
