"""Arrival order where a place comes free while a query asks for one."""

from queryflux.admission.decide import Strategy
from queryflux.admission.memory import Ledger
from queryflux.admission.slots import Member
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle
from tests.rooms.admission.test_leased import Process, give_back, group_of, is_in


async def test_who_came_later_and_has_a_slot_does_not_overtake_who_was_refused_and_has_none() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    one = Process(clock, FaultyStore(ledger, "one"))
    shared, other = Member("shared", limit=3), Member("other", limit=1)
    group, both = group_of(shared), group_of(other, shared, strategy=Strategy.FAILOVER)
    ledger.add("theirs", "shared", "two")
    ledger.add("theirs too", "other", "two")
    running = [await one.admitted(group) for _ in range(2)]
    one.store.hold()
    earliest = one.enter(both)
    refused = one.enter(group)
    await settle()
    for ticket in running:  # too late for the call that is under way
        give_back(ticket)
    later = [one.enter(group) for _ in range(2)]
    one.store.let_go()
    await settle()
    assert is_in(earliest), "it was refused at the other cluster, and has the slot of the one refused here"
    assert is_in(refused)
    assert not any(is_in(ticket) for ticket in later)
    await one.leases.tasks.close()
