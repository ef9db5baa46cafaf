"""What the capacity document says of a process's part, a sentence at a time (docs/mission.md names them)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

from queryflux.admission.batched import LINGER_SECS, BatchedReleaseStore
from queryflux.admission.carry import carry_groups, carry_members
from queryflux.admission.memory import Ledger
from queryflux.admission.port import Lease
from queryflux.admission.slots import Group, Member, Ticket
from queryflux.app.capacity import SharedCapacity
from queryflux.app.stores import Shared
from queryflux.config.fleet import CoordinationConfig
from queryflux.config.process import ProcessConfig
from queryflux.runtime.tasks import TaskGroup
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle
from tests.kit.metrics import NoMetrics


class Process:
    """One process's capacity as the application makes it, over a store that others share."""

    def __init__(
        self,
        clock: ManualClock,
        ledger: Ledger,
        instance: str,
        coordination: CoordinationConfig | None = None,
    ) -> None:
        self.store = FaultyStore(ledger, instance)
        self.capacity = SharedCapacity(
            Shared(self.store, lambda name: self.store, self.store, self.store),
            ProcessConfig(coordination=coordination),
            clock,
            NoMetrics(),
        )
        self.sweeps: list[float] = []
        """When it ended leases."""
        expire = self.store.expire

        async def watched(older_than_secs: float) -> int:
            self.sweeps.append(clock.monotonic())
            return await expire(older_than_secs)

        self.store.expire = watched  # type: ignore[method-assign]

    def enter(self, group: Group, query_id: str) -> Ticket:
        return self.capacity.admission.enter(group, (), query_id)

    def calls(self, name: str) -> list[object]:
        return [carried for called, carried in self.store.calls if called == name]


@asynccontextmanager
async def started(*processes: Process) -> AsyncIterator[None]:
    for process in processes:
        process.capacity.start()
    try:
        yield
    finally:
        for process in processes:
            await process.capacity.leases.tasks.close()


def group_of(member: Member) -> Group:
    group = Group("bi", [member], wait_secs=1000)
    member.groups.append(group)
    return group


def is_in(ticket: Ticket) -> bool:
    """Whether it has its slot and its lease."""
    return ticket.slot is not None


def release(ticket: Ticket) -> None:
    assert ticket.slot is not None
    ticket.slot.release()


async def test_the_local_slot_comes_first_and_without_one_nobody_is_asked() -> None:
    clock = ManualClock()
    process = Process(clock, Ledger(clock), "one")
    async with started(process):
        member = Member("c", limit=2)
        group = group_of(member)
        process.store.hold()
        tickets = [process.enter(group, name) for name in "abc"]
        await settle()
        assert member.running == 2, "slots are taken before the store has answered"
        process.store.let_go()
        await settle()
        asked = len(process.store.calls)
        assert [ticket.slot is not None for ticket in tickets] == [True, True, False]
        await clock.advance(30)
        assert len(process.store.calls) == asked, "the third waits for a slot here, not for the store"
        for ticket in tickets[:2]:
            release(ticket)
        await settle()
        release(tickets[2])


async def test_leases_are_renewed_every_minute_without_further_settings() -> None:
    clock = ManualClock()
    process = Process(clock, Ledger(clock), "one")
    async with started(process):
        process.enter(group_of(Member("c", limit=2)), "a")
        await clock.advance(53)
        assert process.calls("renew") == []
        await clock.advance(7)
        assert process.calls("renew") == [["a"]]
        await clock.advance(540)
        assert 10 <= len(process.calls("renew")) <= 11


async def test_leases_of_a_dead_process_end_after_five_minutes_without_further_settings() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    lives, dies = Process(clock, ledger, "lives"), Process(clock, ledger, "dies")
    async with started(lives):
        async with started(dies):
            dies.enter(group_of(Member("c", limit=1)), "theirs")
            await settle()
        waiting = lives.enter(group_of(Member("c", limit=1)), "ours")
        await clock.advance(299)
        assert not is_in(waiting)
        assert set(ledger.rows) == {"theirs"}
        await clock.advance(122)
        assert is_in(waiting), "and one sweep later its place is somebody else's"
        assert set(ledger.rows) == {"ours"}


async def test_one_process_of_several_sweeps_and_every_two_minutes() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    processes = [Process(clock, ledger, f"p{number}") for number in range(4)]
    async with started(*processes):
        await clock.advance(1201)
    times = sorted(time for process in processes for time in process.sweeps)
    assert 9 <= len(times) <= 11
    assert all(later - earlier >= 108 for earlier, later in pairwise(times))


async def test_intervals_are_settings() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    quick = CoordinationConfig(lease_renew_secs=1, lease_expiry_secs=5, sweep_interval_secs=2)
    process = Process(clock, ledger, "p", quick)
    async with started(process):
        await FaultyStore(ledger, "dead").try_acquire("d", "theirs", 1)
        process.enter(group_of(Member("c", limit=2)), "a")
        await clock.advance(7.1)
        assert len(process.calls("renew")) == 7
        assert set(ledger.rows) == {"a"}


# Releases.


async def test_a_failed_batch_of_releases_is_tried_again_less_and_less_often() -> None:
    clock = ManualClock()
    store, tasks = FaultyStore(Ledger(clock)), TaskGroup("test")
    batched = BatchedReleaseStore(store, clock, tasks, NoMetrics())
    store.down = "away"
    batched.release(Lease("c", "a"))
    times: list[float] = []
    await settle()
    while len(times) < 7:
        if len(store.calls) > len(times):
            times.append(clock.monotonic())
        await clock.advance(0.01)
    pauses = [round(later - earlier, 1) for earlier, later in pairwise(times[1:])]
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]
    await tasks.close()


async def test_a_hundred_thousand_releases_are_queued_and_the_next_one_goes_by_itself() -> None:
    clock = ManualClock()
    store, tasks, metrics = FaultyStore(Ledger(clock)), TaskGroup("test"), PrometheusMetrics()
    batched = BatchedReleaseStore(store, clock, tasks, metrics)
    for number in range(100_000):
        assert batched.release(Lease("c", f"q{number}")) is None
    assert batched.queued == 100_000
    assert batched.release(Lease("c", "q7")) is None, "it is queued already"
    await store.try_acquire("c", "more", 1)
    inline = batched.release(Lease("c", "more"))
    assert inline is not None
    await inline
    assert ("release", ["more"]) in store.calls
    assert set(await store.counts()) == set()
    await tasks.close()


# Limits that change while a query runs.


async def test_a_query_that_was_admitted_with_a_limit_gives_its_lease_back_without_one() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    process = Process(clock, ledger, "one")
    async with started(process):
        member = Member("c", limit=1)
        before = group_of(member)
        ticket = process.enter(before, "a")
        await settle()
        assert set(ledger.rows) == {"a"}
        change(process, member, before, limit=None)
        assert process.enter(member.groups[0], "b").slot is not None, "there is no limit any more"
        release(ticket)
        await clock.advance(LINGER_SECS)
        assert ledger.rows == {}


async def test_a_query_that_was_admitted_without_a_limit_releases_nothing_and_harms_nobody() -> None:
    clock = ManualClock()
    ledger = Ledger(clock)
    process = Process(clock, ledger, "one")
    async with started(process):
        member = Member("c")
        before = group_of(member)
        free = process.enter(before, "free")
        change(process, member, before, limit=2)
        capped = process.enter(member.groups[0], "capped")
        await settle()
        assert capped.slot is not None
        assert set(ledger.rows) == {"capped"}
        release(free)
        await clock.advance(LINGER_SECS)
        assert ["free"] in process.calls("release")
        assert set(ledger.rows) == {"capped"}


def change(process: Process, member: Member, before: Group, limit: int | None) -> None:
    """Another limit, as when the configuration has changed."""
    members = carry_members({"c": member}, {"c": Member("c", limit=limit)})
    carry_groups(process.capacity.admission, {"bi": before}, {"bi": Group("bi", [member])}, members)
