"""Slots and the queue: caps, order, time-outs, and nothing lost however a waiter ends."""

import asyncio
import random

import pytest

from queryflux.admission.decide import Strategy
from queryflux.admission.slots import Admission, Group, Member, Ticket
from queryflux.model.errors import CapacityTimeout, NoCapacity, QueueFull, Unavailable
from tests.kit.clock import ManualClock, settle


def group_of(*members: Member, limit: int | None = None, **settings: object) -> Group:
    group = Group("bi", list(members), limit=limit, **settings)  # type: ignore[arg-type]
    for member in members:
        member.groups.append(group)
    return group


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def admission(clock: ManualClock) -> Admission:
    return Admission(clock)


async def test_a_slot_is_given_at_once_while_there_is_room(admission: Admission) -> None:
    member = Member("a", limit=2)
    group = group_of(member)
    first, second = admission.enter(group), admission.enter(group)
    assert first.slot is not None
    assert second.slot is not None
    assert member.running == 2
    assert admission.enter(group).slot is None


async def test_releasing_twice_frees_one_slot(admission: Admission) -> None:
    member = Member("a", limit=1)
    ticket = admission.enter(group_of(member))
    assert ticket.slot is not None
    ticket.slot.release()
    ticket.slot.release()
    assert member.running == 0


async def test_waiters_are_served_in_order_and_nobody_overtakes(admission: Admission) -> None:
    group = group_of(Member("a", limit=1))
    held = admission.enter(group)
    order: list[int] = []

    async def wait(number: int, ticket: Ticket) -> None:
        slot = await ticket.wait()
        order.append(number)
        await asyncio.sleep(0)
        slot.release()

    tasks = [asyncio.create_task(wait(number, admission.enter(group))) for number in range(20)]
    assert held.slot is not None
    held.slot.release()
    await asyncio.gather(*tasks)
    assert order == list(range(20))


async def test_waiters_of_two_groups_that_share_a_cluster_are_served_by_arrival(admission: Admission) -> None:
    shared = Member("a", limit=1)
    one, two = group_of(shared), group_of(shared)
    held = admission.enter(one)
    tickets = [admission.enter(group) for group in (two, one, two)]
    assert held.slot is not None
    held.slot.release()
    for ticket in tickets:
        assert ticket.slot is not None, "the one that came first is served first"
        assert sum(other.slot is not None for other in tickets) == tickets.index(ticket) + 1
        ticket.slot.release()


async def test_a_full_queue_refuses(admission: Admission) -> None:
    group = group_of(Member("a", limit=1), max_queued=1)
    admission.enter(group)
    admission.enter(group)
    with pytest.raises(QueueFull, match="maxQueuedQueries"):
        admission.enter(group)


async def test_a_limit_of_zero_is_refused_with_its_reason(admission: Admission) -> None:
    with pytest.raises(NoCapacity, match="maxRunningQueries is 0"):
        admission.enter(group_of(Member("a"), limit=0))


async def test_the_clusters_own_limit_beats_the_groups(admission: Admission) -> None:
    group = group_of(Member("a", limit=3), limit=1)
    assert [admission.enter(group).slot is not None for _ in range(4)] == [True, True, True, False]


async def test_no_limit_anywhere_always_admits(admission: Admission) -> None:
    group = group_of(Member("a"))
    assert all(admission.enter(group).slot is not None for _ in range(1000))


async def test_waiting_ends_after_the_groups_time(admission: Admission, clock: ManualClock) -> None:
    group = group_of(Member("a", limit=1), wait_secs=5)
    admission.enter(group)
    waiting = asyncio.create_task(admission.enter(group).wait())
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.2)
    with pytest.raises(CapacityTimeout, match="5 s"):
        await waiting
    assert not group.waiters


async def test_a_waiter_that_is_cancelled_leaves_the_queue(admission: Admission, clock: ManualClock) -> None:
    member = Member("a", limit=1)
    group = group_of(member)
    held = admission.enter(group)
    waiting = asyncio.create_task(admission.enter(group).wait())
    await settle()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not group.waiters
    assert held.slot is not None
    held.slot.release()
    assert member.running == 0
    assert clock.pending == 0


async def test_a_grant_that_meets_a_cancelled_waiter_goes_back(admission: Admission) -> None:
    member = Member("a", limit=1)
    group = group_of(member)
    held = admission.enter(group)
    waiting = asyncio.create_task(admission.enter(group).wait())
    await settle()
    assert held.slot is not None
    held.slot.release()  # the grant is on its way
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert member.running == 0


async def test_a_group_whose_last_member_goes_down_refuses_its_waiters(admission: Admission) -> None:
    member = Member("a", limit=1)
    group = group_of(member)
    admission.enter(group)
    waiting = asyncio.create_task(admission.enter(group).wait())
    await settle()
    admission.mark_down(member, "connection refused")
    with pytest.raises(Unavailable, match="connection refused"):
        await waiting
    with pytest.raises(Unavailable):
        admission.enter(group)


async def test_a_member_that_comes_back_serves_who_waits(admission: Admission) -> None:
    down, full = Member("a", limit=1), Member("b", limit=1)
    group = group_of(down, full)
    admission.mark_down(down, "gone")
    admission.enter(group)
    ticket = admission.enter(group)
    waiting = asyncio.create_task(ticket.wait())
    await settle()
    assert not waiting.done()
    admission.mark_up(down)
    assert (await waiting).member is down


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Strategy.ROUND_ROBIN, ["a", "b", "c", "a", "b", "c"]),
        (Strategy.FAILOVER, ["a", "a", "b", "b", "c", "c"]),
        (Strategy.LEAST_LOADED, ["a", "b", "c", "a", "b", "c"]),
    ],
)
async def test_strategies_choose_members(
    admission: Admission, strategy: Strategy, expected: list[str]
) -> None:
    group = group_of(*(Member(name, limit=2) for name in "abc"), strategy=strategy)
    slots = [admission.enter(group).slot for _ in range(6)]
    assert [slot.member.name for slot in slots if slot is not None] == expected


async def test_least_loaded_prefers_the_idle_one_whatever_the_order(admission: Admission) -> None:
    busy, idle = Member("a", running=5), Member("b", running=1)
    slot = admission.enter(group_of(busy, idle, strategy=Strategy.LEAST_LOADED)).slot
    assert slot is not None
    assert slot.member is idle


@pytest.mark.parametrize("seed", range(20))
async def test_any_mix_of_ends_keeps_the_cap_and_loses_no_slot(admission: Admission, seed: int) -> None:
    chance = random.Random(seed)
    members = [Member(name, limit=chance.randint(1, 4)) for name in "abc"]
    group = group_of(*members, strategy=chance.choice(list(Strategy)))
    peak = dict.fromkeys("abc", 0)

    async def client() -> None:
        ticket = admission.enter(group)
        slot = await ticket.wait()
        peak[slot.member.name] = max(peak[slot.member.name], slot.member.running)
        try:
            for _ in range(chance.randint(0, 5)):
                await asyncio.sleep(0)
        finally:
            slot.release()

    tasks = [asyncio.create_task(client()) for _ in range(100)]
    for _ in range(60):
        await asyncio.sleep(0)
        chance.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [member.running for member in members] == [0, 0, 0]
    assert not group.waiters
    assert all(peak[member.name] <= (member.limit or 0) for member in members)


async def test_a_waiter_that_may_not_use_the_free_member_lets_others_pass(admission: Admission) -> None:
    one, two = Member("a", limit=1), Member("b", limit=1)
    group = group_of(one, two)
    on_one, on_two = admission.enter(group), admission.enter(group)
    assert (on_one.slot, on_two.slot) != (None, None)
    picky = admission.enter(group, excluded=("a",))
    easy = admission.enter(group)
    assert on_one.slot is not None
    on_one.slot.release()
    assert easy.slot is not None
    assert picky.slot is None


async def test_a_waiter_that_leaves_lets_those_behind_it_look_again(admission: Admission) -> None:
    one, two = Member("a", limit=1), Member("b", limit=0)
    group = group_of(one, two)
    held = admission.enter(group)
    first, second = admission.enter(group), admission.enter(group)
    one.limit = 2  # a limit was raised: the next event serves
    first.leave()
    assert second.slot is not None
    assert held.slot is not None
