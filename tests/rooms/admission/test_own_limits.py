"""While nobody grants capacity: a process that may goes by its own limits, and shares them again after it."""

import logging
from collections.abc import AsyncIterator
from random import Random

import pytest

from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.lifecycle import State
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.slots import Group, Member, Ticket
from queryflux.model.errors import CapacityTimeout
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle

AWAY = "no control plane answers"


class Worker:
    """The admission of one process with one group of one cluster."""

    def __init__(self, clock: ManualClock, ledger: Ledger, name: str, limit: int, **settings: float) -> None:
        self.clock = clock
        self.store = FaultyStore(ledger, name)
        self.leases = Leases(self.store, clock, PrometheusMetrics(), own_limits=True, chance=Random(1))
        self.admission = LeasedAdmission(clock, self.leases, Random(2))
        member = Member("c", limit=limit)
        self.group = Group("bi", [member], **settings)  # type: ignore[arg-type]
        member.groups.append(self.group)
        self._ids = 0

    def enter(self) -> Ticket:
        self._ids += 1
        return self.admission.enter(self.group, (), f"{self.store.instance}{self._ids}")

    async def admitted(self, count: int) -> list[Ticket]:
        tickets = [self.enter() for _ in range(count)]
        await settle()
        assert all(is_in(ticket) for ticket in tickets)
        return tickets


def is_in(ticket: Ticket) -> bool:
    return ticket.slot is not None


def give_back(*tickets: Ticket) -> None:
    for ticket in tickets:
        assert ticket.slot is not None
        ticket.slot.release()


class Fleet:
    """Two workers that share a cap of 2."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.one = Worker(self.clock, self.ledger, "one", 2, wait_secs=60)
        self.two = Worker(self.clock, self.ledger, "two", 2, wait_secs=60)

    def away(self, reason: str = AWAY) -> None:
        self.one.store.down = self.two.store.down = reason

    @property
    def rows(self) -> set[str]:
        return set(self.ledger.rows)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    for worker in (fleet.one, fleet.two):
        await worker.leases.tasks.close()


async def test_each_admits_on_its_own_limit_while_nobody_grants(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.away()
    for worker in (fleet.one, fleet.two):
        await worker.admitted(2)
        third = worker.enter()
        await settle()
        assert not is_in(third), "its own limit it keeps"
        assert (worker.leases.alone, worker.leases.local, worker.leases.held) == (True, 2, 0)
    assert not fleet.rows
    assert caplog.text.count(f"the limits of this process alone: {AWAY}") == 2
    assert caplog.text.count("\n") == 2, "and of each outage one line is said"


async def test_no_query_waits_for_a_store_that_is_known_not_to_answer(fleet: Fleet) -> None:
    fleet.away()
    (first,) = await fleet.one.admitted(1)
    fleet.one.store.hold()
    second = fleet.one.enter()
    assert is_in(second), "at once"
    give_back(first, second)


async def test_a_store_that_hangs_is_waited_for_once_and_by_the_first(fleet: Fleet) -> None:
    fleet.one.store.hold()
    first = fleet.one.enter()
    await settle()
    second = fleet.one.enter()
    await fleet.clock.advance(4.9)
    assert not is_in(first)
    await fleet.clock.advance(0.2)
    assert is_in(first)
    assert is_in(second), "which waited to be asked for"


async def test_when_somebody_grants_again_what_runs_is_leased_and_limits_are_shared(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fleet.away()
    ours, theirs = await fleet.one.admitted(2), await fleet.two.admitted(2)
    fleet.away("")
    await fleet.clock.advance(1)
    assert len(fleet.rows) == 4, "above the cap, for their queries run"
    assert not fleet.one.leases.alone
    assert (fleet.one.leases.local, fleet.one.leases.held) == (0, 2)
    assert "leases taken for 2 queries that run" in caplog.text
    waiting = fleet.one.enter()
    give_back(*ours)
    await fleet.clock.advance(1)
    assert not is_in(waiting), "there are two of the other's"
    give_back(theirs[0])
    await fleet.clock.advance(1)
    assert is_in(waiting)
    assert len(fleet.rows) == 2


async def test_the_store_is_asked_until_it_answers_without_filling_the_log(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.away()
    tickets = await fleet.one.admitted(1)
    await fleet.clock.advance(55)
    assert caplog.text.count("\n") == 1
    assert fleet.one.leases.standing.unavailable == AWAY
    give_back(*tickets)
    fleet.away("")
    await fleet.clock.advance(1)
    assert not fleet.one.leases.alone, "also when nothing runs"
    assert fleet.one.leases.standing.unavailable == ""


async def test_what_came_and_went_meanwhile_leaves_nothing_behind(fleet: Fleet) -> None:
    fleet.away()
    (first,) = await fleet.one.admitted(1)  # this one was asked for, and may be granted
    for _ in range(50):
        give_back(*await fleet.one.admitted(1))
    assert fleet.one.leases.releasing == 0, "no release of what was never asked for"
    give_back(first)
    assert fleet.one.leases.releasing == 1
    fleet.away("")
    await fleet.clock.advance(1)
    assert fleet.one.leases.releasing == 0
    assert not fleet.rows


async def test_what_was_granted_while_its_query_ended_goes_back(fleet: Fleet) -> None:
    fleet.away()
    await fleet.one.admitted(1)
    (ending,) = await fleet.one.admitted(1)
    fleet.away("")
    store = fleet.one.store
    store.hold()
    await fleet.clock.advance(1)
    held_road, store.release_many = store.release_many, MemoryCapacityStore(fleet.ledger, "one").release_many  # type: ignore[method-assign]
    give_back(ending)
    await fleet.clock.advance(1)
    assert fleet.one.leases.releasing == 0, "its release was there first"
    store.release_many = held_road  # type: ignore[method-assign]
    store.let_go()
    await fleet.clock.advance(1)
    assert fleet.rows == {"one1"}


async def test_a_query_that_comes_while_leases_are_taken_gets_one_too(fleet: Fleet) -> None:
    fleet.away()
    await fleet.one.admitted(1)
    fleet.away("")
    fleet.one.store.hold_replies()
    await fleet.clock.advance(1)
    assert is_in(fleet.one.enter())
    fleet.one.store.let_go()
    await fleet.clock.advance(1)
    assert fleet.rows == {"one1", "one2"}
    assert not fleet.one.leases.alone


async def test_an_outage_in_the_midst_of_sharing_again_goes_on_alone(fleet: Fleet) -> None:
    fleet.away()
    await fleet.one.admitted(1)
    fleet.away("")
    fleet.one.store.deaf = "reply lost"
    await fleet.clock.advance(1)
    assert fleet.one.leases.alone
    fleet.one.store.deaf = ""
    await fleet.clock.advance(1)
    assert (fleet.one.leases.alone, fleet.rows) == (False, {"one1"})


async def test_who_was_refused_before_the_outage_goes_by_the_own_limit_within_it(fleet: Fleet) -> None:
    beside = MemoryCapacityStore(fleet.ledger, "two")
    for name in ("x", "y"):
        assert await beside.try_acquire("c", name, 2)
    waiting = fleet.one.enter()
    await settle()
    assert not is_in(waiting)
    fleet.away()
    await fleet.clock.advance(0.5)
    assert is_in(waiting)


async def test_who_waits_too_long_is_told_of_the_limit_and_of_no_outage(fleet: Fleet) -> None:
    fleet.away()
    await fleet.one.admitted(2)
    waiting = fleet.one.enter()
    await fleet.clock.advance(61)
    with pytest.raises(CapacityTimeout) as caught:
        await waiting.wait()
    assert AWAY not in caught.value.message


async def test_the_end_of_a_process_that_is_alone(fleet: Fleet) -> None:
    fleet.away()
    tickets = await fleet.one.admitted(2)
    holdings = [ticket.holding for ticket in tickets]  # type: ignore[attr-defined]
    fleet.one.store.down = ""
    await fleet.one.leases.close()
    assert {holding.state for holding in holdings} == {State.ABANDONED}
    assert not fleet.rows
    await fleet.clock.advance(10)
    assert not fleet.rows, "nothing is taken after the end"
