"""Slots with leases: two processes, one cap; order, time-outs, and a store that does not answer."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from queryflux.admission.batched import LINGER_SECS
from queryflux.admission.carry import carry_groups, carry_members
from queryflux.admission.decide import Strategy
from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.memory import Ledger
from queryflux.admission.slots import Group, Member, Ticket
from queryflux.model.errors import CapacityTimeout, NoCapacity, QueueFull, Unavailable
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle


class Process:
    """The admission of one process over a store."""

    def __init__(self, clock: ManualClock, store: FaultyStore) -> None:
        self.store = store
        self.leases = Leases(store, clock, PrometheusMetrics(), chance=Random(1))
        self.admission = LeasedAdmission(clock, self.leases, Random(2))
        self._ids = 0

    def enter(self, group: Group, query_id: str = "") -> Ticket:
        self._ids += 1
        return self.admission.enter(group, (), query_id or f"{self.store.instance}{self._ids}")

    async def admitted(self, group: Group, query_id: str = "") -> Ticket:
        ticket = self.enter(group, query_id)
        await settle()
        assert is_in(ticket)
        return ticket


def is_in(ticket: Ticket) -> bool:
    """Whether it has its slot and its lease."""
    return ticket.slot is not None


def give_back(ticket: Ticket) -> None:
    assert ticket.slot is not None
    ticket.slot.release()


def group_of(*members: Member, limit: int | None = None, **settings: object) -> Group:
    group = Group("bi", list(members), limit=limit, **settings)  # type: ignore[arg-type]
    for member in members:
        member.groups.append(group)
    return group


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(clock: ManualClock) -> Ledger:
    return Ledger(clock)


@pytest.fixture
async def one(clock: ManualClock, ledger: Ledger) -> AsyncIterator[Process]:
    process = Process(clock, FaultyStore(ledger, "one"))
    yield process
    await process.leases.tasks.close()


@pytest.fixture
async def two(clock: ManualClock, ledger: Ledger) -> AsyncIterator[Process]:
    process = Process(clock, FaultyStore(ledger, "two"))
    yield process
    await process.leases.tasks.close()


async def test_two_processes_share_one_cap(
    clock: ManualClock, ledger: Ledger, one: Process, two: Process
) -> None:
    here, there = group_of(Member("c"), limit=2), group_of(Member("c"), limit=2)
    first, second = await one.admitted(here), await two.admitted(there)
    third = two.enter(there)
    await clock.advance(10)
    assert not is_in(third)
    assert ledger.taken == {"c": 2}
    give_back(first)
    await clock.advance(0.5)
    assert is_in(third), "tried again within half a second of the other process's release"
    assert ledger.taken == {"c": 2}
    give_back(second)
    give_back(third)
    await clock.advance(LINGER_SECS)
    assert ledger.rows == {}


async def test_a_place_of_ours_goes_to_the_next_in_line_in_one_call(one: Process, ledger: Ledger) -> None:
    group = group_of(Member("c"), limit=1)
    held = await one.admitted(group, "a")
    waiting = [one.enter(group, name) for name in ("b", "c")]
    one.store.calls.clear()
    give_back(held)
    await settle()
    assert one.store.calls == [("many", (["b"], ["a"]))]
    assert is_in(waiting[0])
    assert not is_in(waiting[1])
    assert set(ledger.rows) == {"b"}


async def test_a_waiter_goes_on_when_a_release_is_confirmed_though_it_was_refused_before(
    one: Process, two: Process, ledger: Ledger
) -> None:
    group = group_of(Member("c", limit=5))
    held = await one.admitted(group, "a")
    for name in "wxyz":
        await two.store.try_acquire("c", name, 5)
    refused = one.enter(group, "b")
    await settle()
    assert not is_in(refused)
    give_back(held)
    await settle()
    assert is_in(refused), "without waiting for the timer"


async def test_arrival_order_holds_although_the_first_is_refused(
    clock: ManualClock, one: Process, two: Process
) -> None:
    group = group_of(Member("c", limit=3))
    for name in "xyz":
        await two.store.try_acquire("c", name, 3)
    one.store.hold_replies()
    first = one.enter(group, "first")
    await settle()
    second = one.enter(group, "second")  # waits to be asked with the next call
    await two.store.release_all()  # there is room again when that call would be made
    one.store.let_go()
    await settle()
    assert not is_in(first)
    assert not is_in(second), "it does not overtake"
    await clock.advance(0.5)
    assert is_in(first)
    assert is_in(second)
    assert one.store.calls[-1] == ("many", (["first", "second"], []))


async def test_a_query_that_was_refused_while_a_place_came_free_is_not_overtaken(
    one: Process, two: Process
) -> None:
    group = group_of(Member("c", limit=3))
    mine = await one.admitted(group, "mine")
    for name in "xy":
        await two.store.try_acquire("c", name, 3)
    one.store.hold_replies()
    first = one.enter(group, "first")
    await settle()  # refused, and not yet told
    give_back(mine)
    second = one.enter(group, "second")
    one.store.let_go()
    await settle()
    assert one.store.calls[-2] == ("many", (["first", "second"], ["mine"]))
    assert is_in(first)
    assert not is_in(second)


async def test_while_somebody_waits_new_queries_queue_without_a_call(
    clock: ManualClock, one: Process, two: Process
) -> None:
    group = group_of(Member("c", limit=1))
    await two.store.try_acquire("c", "theirs", 1)
    for _ in range(5):
        one.enter(group)
        await settle()
    assert len(one.store.calls) == 1
    assert len(group.waiters) == 5
    await clock.advance(10)
    assert 20 <= len(one.store.calls) <= 42, "one timer for all of them, every 250 to 500 ms"


async def test_a_denied_query_tries_the_other_members_before_it_queues(
    one: Process, two: Process, ledger: Ledger
) -> None:
    full, free = Member("full", limit=1), Member("free", limit=1)
    group = group_of(full, free, strategy=Strategy.FAILOVER)
    await two.store.try_acquire("full", "theirs", 1)
    ticket = await one.admitted(group)
    assert ticket.slot is not None
    assert ticket.slot.member is free
    assert (full.running, free.running) == (0, 1)
    assert ledger.taken == {"full": 1, "free": 1}


async def test_a_higher_limit_of_another_group_is_still_asked_for(one: Process, two: Process) -> None:
    member = Member("c")
    low, high = group_of(member, limit=1), group_of(member, limit=2)
    await two.store.try_acquire("c", "theirs", 9)
    refused = one.enter(low)
    await settle()
    assert not is_in(refused)
    await one.admitted(high)


async def test_no_limit_takes_no_lease_and_its_release_is_harmless(
    clock: ManualClock, one: Process, ledger: Ledger
) -> None:
    group = group_of(Member("c"))
    ticket = one.enter(group, "a")
    assert ticket.slot is not None, "at once"
    assert one.store.calls == []
    give_back(ticket)
    await clock.advance(LINGER_SECS)
    assert one.store.calls == [("release", ["a"])]
    assert ledger.rows == {}


async def test_a_limit_of_zero_is_refused_without_asking(one: Process) -> None:
    with pytest.raises(NoCapacity, match="maxRunningQueries is 0"):
        one.enter(group_of(Member("c", limit=0)))
    assert one.store.calls == []


async def test_a_store_that_does_not_answer_makes_queries_wait_and_says_why_when_their_time_is_up(
    clock: ManualClock, one: Process
) -> None:
    member = Member("c", limit=5)
    group = group_of(member, wait_secs=7, max_queued=2)
    one.store.down = "the database is starting up"
    waiting = [asyncio.ensure_future(one.enter(group).wait()) for _ in range(2)]
    await clock.advance(6.9)
    assert member.unanswered == "the database is starting up"
    assert member.running == 0
    with pytest.raises(QueueFull):
        one.enter(group)
    await clock.advance(0.2)
    for task in waiting:
        with pytest.raises(CapacityTimeout, match=r"waited 7 s .*: the database is starting up") as caught:
            await task
        assert "maxRunningQueries" not in caught.value.hint, "to raise it would not help"
    assert not group.waiters


async def test_queries_go_on_within_a_second_of_the_stores_return(clock: ManualClock, one: Process) -> None:
    member = Member("c", limit=50)
    group = group_of(member)
    one.store.down = "gone"
    tickets = [one.enter(group) for _ in range(40)]
    await clock.advance(30)
    assert all(ticket.slot is None for ticket in tickets)
    one.store.down = ""
    await clock.advance(1)
    assert all(ticket.slot is not None for ticket in tickets)
    assert member.unanswered == ""


async def test_a_query_that_leaves_while_it_is_asked_for_gives_back_what_arrives(
    one: Process, ledger: Ledger
) -> None:
    member = Member("c", limit=1)
    group = group_of(member)
    one.store.hold()
    waiting = asyncio.ensure_future(one.enter(group, "a").wait())
    await settle()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    behind = one.enter(group, "b")
    await settle()
    assert member.running == 1, "its slot stays taken until the store has answered"
    assert one.store.calls == [("one", "a")], "and the call is not cancelled"
    one.store.let_go()
    await settle()
    assert is_in(behind)
    assert set(ledger.rows) == {"b"}


async def test_a_query_whose_time_is_up_while_its_grant_is_on_the_way_leaves_no_lease(
    clock: ManualClock, one: Process, ledger: Ledger
) -> None:
    group = group_of(Member("c", limit=1), wait_secs=2)
    one.store.hold_replies()
    waiting = asyncio.ensure_future(one.enter(group, "a").wait())
    await clock.advance(3)
    with pytest.raises(CapacityTimeout):
        await waiting
    assert set(ledger.rows) == {"a"}
    one.store.let_go()
    await clock.advance(LINGER_SECS)
    assert ledger.rows == {}


async def test_a_query_that_gives_up_after_an_unanswered_call_releases_what_it_may_hold(
    clock: ManualClock, one: Process, ledger: Ledger
) -> None:
    member = Member("c", limit=1)
    group = group_of(member)
    one.store.deaf = "connection lost"
    ticket = one.enter(group, "a")
    waiting = asyncio.ensure_future(ticket.wait())
    await settle()
    assert set(ledger.rows) == {"a"}
    one.store.deaf = ""
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await clock.advance(LINGER_SECS)
    assert ledger.rows == {}
    assert member.running == 0


async def test_a_change_of_configuration_while_a_query_is_asked_for_keeps_its_place(
    clock: ManualClock, one: Process, two: Process
) -> None:
    member = Member("c", limit=1)
    before = Group("bi", [member])
    members = carry_members({}, {"c": member})
    carry_groups(one.admission, {}, {"bi": before}, members)
    await two.store.try_acquire("c", "theirs", 1)
    one.store.hold()
    asked, late = one.enter(before), one.enter(before)
    after = Group("bi", [Member("c")])
    members = carry_members(members, {"c": Member("c", limit=1)})
    carry_groups(one.admission, {"bi": before}, {"bi": after}, members)
    one.store.let_go()
    await settle()
    assert not before.waiters
    assert list(after.waiters) == [asked, late]
    await two.store.release_all()
    await clock.advance(0.5)
    assert is_in(asked)


async def test_a_query_whose_group_is_removed_while_it_is_asked_for_is_refused(
    one: Process, two: Process
) -> None:
    before = Group("bi", [Member("c", limit=1)])
    members = carry_members({}, {"c": before.members[0]})
    carry_groups(one.admission, {}, {"bi": before}, members)
    await two.store.try_acquire("c", "theirs", 1)
    one.store.hold()
    waiting = asyncio.ensure_future(one.enter(before).wait())
    await settle()
    carry_groups(one.admission, {"bi": before}, {}, carry_members(members, {}))
    one.store.let_go()
    with pytest.raises(Unavailable, match="'bi' was removed"):
        await waiting


async def test_many_queries_of_two_processes_never_pass_the_cap_and_all_get_through(
    clock: ManualClock, ledger: Ledger, one: Process, two: Process
) -> None:
    chance = Random(7)
    groups = {process: group_of(Member("c"), limit=3) for process in (one, two)}
    running, most, done = 0, 0, 0

    async def client(process: Process) -> None:
        nonlocal running, most, done
        for _ in range(10):
            ticket = process.enter(groups[process])
            slot = await ticket.wait()
            running += 1
            most = max(most, running)
            await clock.sleep(chance.uniform(0, 0.2))
            running -= 1
            slot.release()
            done += 1
            await clock.sleep(chance.uniform(0, 0.1))

    clients = [asyncio.ensure_future(client(process)) for process in (one, two) for _ in range(8)]
    for _ in range(2000):
        await clock.advance(0.02)
        if all(task.done() for task in clients):
            break
    assert done == 160
    assert most == 3
    await clock.advance(1)
    assert ledger.rows == {}


async def test_a_slot_at_once_where_there_is_no_limit_to_share(one: Process) -> None:
    free, capped = Member("free"), Member("capped", limit=1)
    slot = one.admission.take(group_of(free))
    assert slot is not None
    assert free.running == 1
    slot.release()
    assert free.running == 0
    assert one.admission.take(group_of(capped)) is None
    assert one.admission.take(group_of(Member("grouped"), limit=1)) is None
    both = group_of(free, capped)
    assert one.admission.take(both) is not None
    assert one.admission.take(both) is None, "it is the other one's turn"
    down = Member("down")
    down.down = "no route"
    assert one.admission.take(group_of(down)) is None
    assert one.store.calls == []
