"""maxQueuedQueries where other processes fill the cap: who is refused by the fleet waits only if it may."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from queryflux.admission.decide import Strategy
from queryflux.admission.memory import Ledger
from queryflux.admission.port import Lease
from queryflux.admission.slots import Member, Ticket
from queryflux.model.errors import QueueFull
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle
from tests.rooms.admission.test_leased import Process, group_of, is_in


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


def taken_elsewhere(ledger: Ledger, cluster: str, count: int) -> None:
    for number in range(count):
        ledger.add(f"theirs-{cluster}-{number}", cluster, "two")


async def outcomes(*tickets: Ticket) -> list[str]:
    """Of each: it runs, waits, or why the queue did not take it."""
    seen = []
    for ticket in tickets:
        waiting = asyncio.ensure_future(ticket.wait())
        await settle()
        try:
            seen.append("waits" if not waiting.done() else "runs" if waiting.result() else "")
        except QueueFull as error:
            seen.append(error.message)
        waiting.cancel()
    return seen


async def test_where_none_may_wait_the_fleets_refusal_is_said_at_once(one: Process, ledger: Ledger) -> None:
    group = group_of(Member("c"), limit=2, max_queued=0)
    taken_elsewhere(ledger, "c", 2)
    ticket = one.enter(group)
    await settle()
    assert await outcomes(ticket) == ["group 'bi' has 0 queries waiting, and its maxQueuedQueries is 0"]
    assert not group.waiters
    assert group.members[0].running == 0


async def test_of_several_that_asked_at_once_so_many_wait_as_may_in_their_order(
    one: Process, ledger: Ledger
) -> None:
    group = group_of(Member("c"), limit=5, max_queued=2)
    taken_elsewhere(ledger, "c", 4)
    tickets = [one.enter(group) for _ in range(5)]
    await settle()
    assert len(group.waiters) == 2
    full = "group 'bi' has 2 queries waiting, and its maxQueuedQueries is 2"
    assert await outcomes(*tickets) == ["runs", "waits", "waits", full, full]


async def test_who_has_waited_keeps_its_place_whatever_it_is_told(
    clock: ManualClock, one: Process, ledger: Ledger
) -> None:
    group = group_of(Member("c"), limit=1, max_queued=1)
    taken_elsewhere(ledger, "c", 1)
    waiter = one.enter(group)
    await clock.advance(5)
    group.max_queued = 0
    await clock.advance(5)
    assert list(group.waiters) == [waiter]
    ledger.remove("theirs-c-0")
    await clock.advance(0.5)
    assert is_in(waiter)


async def test_another_member_is_tried_before_it_is_refused(one: Process, ledger: Ledger) -> None:
    full, free = Member("full"), Member("free")
    group = group_of(full, free, limit=1, max_queued=0, strategy=Strategy.FAILOVER)
    taken_elsewhere(ledger, "full", 1)
    ticket = await one.admitted(group)
    assert ticket.slot is not None
    assert ticket.slot.member is free
    with pytest.raises(QueueFull):
        one.enter(group)


async def test_a_store_that_does_not_answer_is_named(clock: ManualClock, one: Process) -> None:
    group = group_of(Member("c"), limit=1, max_queued=0)
    one.store.down = "no route to it"
    ticket = one.enter(group)
    await settle()
    assert "maxQueuedQueries is 0: no route to it" in (await outcomes(ticket))[0]
    one.store.down = ""
    await clock.advance(1)
    assert is_in(await one.admitted(group))


async def test_one_that_is_refused_leaves_no_lease_that_was_in_doubt(
    clock: ManualClock, one: Process, ledger: Ledger
) -> None:
    group = group_of(Member("c"), limit=1, max_queued=0)
    one.store.hold()
    ticket = one.enter(group, "a")
    await clock.advance(6)
    assert "no answer within 5 s" in (await outcomes(ticket))[0]
    one.store.let_go()
    await clock.advance(1)
    assert not ledger.rows
    assert await one.store.renew([Lease("c", "a")]) == set()
