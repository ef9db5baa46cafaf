"""A query goes from one process to another: its slot is counted where it is, its lease goes along."""

from queryflux.admission.batched import LINGER_SECS
from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.slots import Admission, Group, Member
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.clock import ManualClock, settle


class Process:
    """One process with leases, and a group of one cluster."""

    def __init__(self, ledger: Ledger, clock: ManualClock, name: str, limit: int | None = 1) -> None:
        self.leases = Leases(MemoryCapacityStore(ledger, name), clock, PrometheusMetrics(), renew_secs=60)
        self.admission = LeasedAdmission(clock, self.leases)
        self.member = Member("c")
        self.group = Group("g", [self.member], limit=limit)
        self.member.groups.append(self.group)


def test_a_slot_of_a_lone_process_is_counted_and_given_back() -> None:
    admission, member = Admission(ManualClock()), Member("c", limit=1)
    group = Group("g", [member])
    slots = [admission.adopt(group, member, query_id) for query_id in ("q1", "q2")]
    assert member.running == 2, "nobody asks for room: its engine works on it already"
    for slot in slots:
        slot.hand_over()
        slot.hand_over()
    assert member.running == 0


async def test_the_lease_stays_when_its_query_goes() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    a, b = Process(ledger, clock, "a"), Process(ledger, clock, "b")
    ticket = a.admission.enter(a.group, query_id="q")
    slot = await ticket.wait()
    ledger.rows["q"].instance = "b"  # what the claim does
    taken = b.admission.adopt(b.group, b.member, "q")
    slot.hand_over()
    await clock.advance(1)
    assert ledger.rows["q"].instance == "b"
    assert (a.leases.held, b.leases.held) == (0, 1)
    assert (a.member.running, b.member.running) == (0, 1)
    assert await b.leases.renew()
    taken.release()
    await clock.advance(LINGER_SECS)
    assert ledger.rows == {}
    for process in (a, b):
        await process.leases.tasks.close()


async def test_a_query_that_comes_back_keeps_its_lease() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    a = Process(ledger, clock, "a")
    slot = await a.admission.enter(a.group, query_id="q").wait()
    ledger.rows["q"].instance = "b"
    slot.hand_over()
    ledger.rows["q"].instance = "a"
    again = a.admission.adopt(a.group, a.member, "q")
    await settle()
    await clock.advance(120)
    assert ledger.rows["q"].instance == "a", "no release of the first time is on its way"
    again.release()
    await clock.advance(LINGER_SECS)
    assert ledger.rows == {}
    await a.leases.tasks.close()


async def test_a_lease_that_ran_out_with_its_process_is_taken_above_the_cap() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    a, b = Process(ledger, clock, "a"), Process(ledger, clock, "b")
    await a.admission.enter(a.group, query_id="other").wait()
    taken = b.admission.adopt(b.group, b.member, "q")
    assert await b.leases.renew()
    assert set(ledger.rows) == {"other", "q"}, "its engine works on it whatever the count says"
    taken.release()
    for process in (a, b):
        await clock.advance(LINGER_SECS)
        await process.leases.close()


async def test_without_a_limit_there_is_no_lease() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    a = Process(ledger, clock, "a", limit=None)
    slot = a.admission.adopt(a.group, a.member, "q")
    assert a.leases.held == 0
    slot.hand_over()
    assert a.member.running == 0
    await a.leases.tasks.close()
