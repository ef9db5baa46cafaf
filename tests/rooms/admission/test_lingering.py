"""A release lingers, so that the next acquire of its cluster takes it along; nobody waits for it, and none is
lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from queryflux.admission.batched import HOLD_BACK_SECS, LINGER_SECS, Queue
from queryflux.admission.grouped import Verdict
from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.lifecycle import Holding, State
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import Lease
from queryflux.admission.slots import Group, Member, Ticket
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, ManualTimer, settle
from tests.kit.metrics import NoMetrics


class Process:
    """The leases of one process, and another process beside it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.store = FaultyStore(self.ledger)
        self.other = MemoryCapacityStore(self.ledger, "other")
        self.leases = Leases(self.store, self.clock, NoMetrics(), chance=Random(1))
        self.admission = LeasedAdmission(self.clock, self.leases, Random(1))

    def ask(self, query_id: str, cluster: str = "c", limit: int = 9) -> Holding:
        holding = Holding(Lease(cluster, query_id))
        self.leases.ask(holding, limit, lambda verdict, why: None)
        return holding

    async def granted(self, query_id: str, cluster: str = "c", limit: int = 9) -> Holding:
        holding = self.ask(query_id, cluster, limit)
        await settle()
        assert holding.state is State.HELD
        return holding

    async def held(self, *leases: tuple[str, str]) -> list[Holding]:
        """Leases of clusters and query ids, after which calls are counted anew."""
        holdings = [await self.granted(query_id, cluster) for cluster, query_id in leases]
        self.store.calls.clear()
        return holdings

    @property
    def rows(self) -> set[str]:
        return set(self.ledger.rows)


@pytest.fixture
async def one() -> AsyncIterator[Process]:
    process = Process()
    yield process
    process.store.let_go()
    await process.leases.tasks.close()


# One call instead of two.


async def test_an_acquire_soon_after_a_release_takes_it_along(one: Process) -> None:
    (first,) = await one.held(("c", "a"))
    one.leases.release(first)
    await one.clock.advance(LINGER_SECS * 0.9)
    second = await one.granted("b", limit=1)
    await one.clock.advance(1)
    assert one.store.calls == [("many", (["b"], ["a"]))]
    assert (first.state, second.state) == (State.RELEASED, State.HELD)


async def test_one_query_after_another_costs_one_call_for_each(one: Process) -> None:
    """Also when the store answers so quickly that a query and its successor's ask fit into one lingering."""
    (running,) = await one.held(("c", "q0"))
    for number in range(1, 40):
        await one.clock.advance(LINGER_SECS * 0.5)
        one.leases.release(running)
        await one.clock.advance(LINGER_SECS * 0.3)
        running = await one.granted(f"q{number}", limit=1)
    assert one.store.calls == [("many", ([f"q{number}"], [f"q{number - 1}"])) for number in range(1, 40)]


async def test_clients_of_several_clusters_do_not_hurry_each_others_releases(one: Process) -> None:
    clusters = ["c", "d", "e"]
    running = dict(zip(clusters, await one.held(*((name, f"{name}0") for name in clusters)), strict=True))
    for number in range(1, 20):
        for name in clusters:
            one.leases.release(running[name])
            await one.clock.advance(LINGER_SECS * 0.7)
            running[name] = await one.granted(f"{name}{number}", name, 1)
    assert {name for name, _ in one.store.calls} == {"many"}


async def test_a_release_that_nobody_takes_along_goes_by_itself(one: Process) -> None:
    (only,) = await one.held(("c", "a"))
    one.leases.release(only)
    await one.clock.advance(LINGER_SECS * 0.9)
    assert one.store.calls == []
    assert one.rows == {"a"}
    await one.clock.advance(LINGER_SECS * 0.1)
    assert one.store.calls == [("release", ["a"])]
    assert one.rows == set()
    assert len(one.leases.tasks) == one.clock.pending == 0


async def test_an_acquire_of_another_cluster_takes_nothing_along(one: Process) -> None:
    (only,) = await one.held(("c", "a"))
    one.leases.release(only)
    await one.granted("b", "d")
    await one.clock.advance(LINGER_SECS)
    assert one.store.calls == [("one", "b"), ("release", ["a"])]


async def test_a_release_that_comes_while_another_lingers_waits_no_longer_than_twice_as_long(
    one: Process,
) -> None:
    first, second = await one.held(("c", "a"), ("d", "b"))
    one.leases.release(first)
    await one.clock.advance(LINGER_SECS * 0.2)
    one.leases.release(second)
    await one.clock.advance(LINGER_SECS * 0.9)
    assert one.store.calls == [("release", ["a"])]
    await one.clock.advance(LINGER_SECS)
    assert one.store.calls == [("release", ["a"]), ("release", ["b"])]


async def test_one_that_is_queued_again_does_not_linger_anew(one: Process) -> None:
    (only,) = await one.held(("c", "a"))
    one.leases.release(only)
    await one.clock.advance(LINGER_SECS * 0.5)
    one.leases.store.release(only.lease)
    await one.clock.advance(LINGER_SECS * 0.5)
    assert one.store.calls == [("release", ["a"])]


async def test_what_failed_and_what_came_since_go_together(one: Process) -> None:
    first, second = await one.held(("c", "a"), ("c", "b"))
    one.store.down = "away"
    one.leases.release(first)
    await one.clock.advance(LINGER_SECS)
    one.leases.release(second)
    one.store.down = ""
    await one.clock.advance(1)
    assert one.store.calls == [("release", ["a"]), ("release", ["a", "b"])]
    assert one.rows == set()


# While an acquire is under way.


async def test_an_acquire_under_way_keeps_back_releases_of_its_own_cluster_only(one: Process) -> None:
    here, there = await one.held(("c", "a"), ("d", "b"))
    one.store.hold()
    one.ask("next")
    await settle()
    one.leases.release(here)
    await one.clock.advance(LINGER_SECS * 2)
    one.leases.release(there)
    await one.clock.advance(LINGER_SECS * 2)
    assert one.store.calls == [("one", "next"), ("release", ["b"])]


async def test_one_that_hangs_keeps_releases_back_for_a_moment_though_others_come_and_go(
    one: Process,
) -> None:
    (holding,) = await one.held(("c", "a"))
    one.store.hold_replies()
    one.ask("hangs")
    await settle()
    one.store.leave_behind()
    one.leases.release(holding)
    for number in range(8):
        await one.granted(f"q{number}", "d")
        await one.clock.advance(HOLD_BACK_SECS / 4)
    assert ("release", ["a"]) in one.store.calls


async def test_when_it_has_ended_a_release_that_is_new_still_lingers(one: Process) -> None:
    (holding,) = await one.held(("c", "a"))
    one.store.hold()
    one.ask("b")
    await one.clock.advance(LINGER_SECS * 5)
    one.leases.release(holding)
    await one.clock.advance(LINGER_SECS * 0.2)
    one.store.let_go()
    await one.clock.advance(LINGER_SECS * 0.7)
    await one.granted("c")
    assert one.store.calls == [("one", "b"), ("many", (["c"], ["a"]))]


async def test_nothing_stirs_while_all_releases_are_held_back(
    one: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = await one.held(("c", "a"), ("d", "b"))
    one.store.hold()
    one.ask("next")
    one.ask("next", "d")
    await settle()
    one.leases.release(here)
    await one.clock.advance(LINGER_SECS * 2)
    one.leases.release(other)
    timers: list[float] = []
    call_later = one.clock.call_later

    def watched(seconds: float, callback: Callable[[], object]) -> ManualTimer:
        timers.append(seconds)
        return call_later(seconds, callback)

    monkeypatch.setattr(one.clock, "call_later", watched)
    await one.clock.advance(HOLD_BACK_SECS - LINGER_SECS * 4)
    assert len(timers) <= 1
    one.store.calls.clear()
    await one.clock.advance(LINGER_SECS * 4)
    assert one.store.calls == [("release", ["a"])]
    one.store.let_go()
    await one.clock.advance(LINGER_SECS * 2)
    assert one.store.calls == [("release", ["a"]), ("release", ["b"])]


async def test_when_it_has_ended_what_it_kept_back_goes_soon(one: Process) -> None:
    (holding,) = await one.held(("c", "a"))
    one.store.hold_replies()
    one.ask("b")
    await settle()
    one.leases.release(holding)
    await one.clock.advance(LINGER_SECS * 10)
    assert one.store.calls == [("one", "b")]
    one.store.let_go()
    await one.clock.advance(LINGER_SECS)
    assert one.store.calls == [("one", "b"), ("release", ["a"])]


def test_what_is_held_back_is_not_looked_through() -> None:
    looked_at: list[float] = []

    class Time(float):
        def __gt__(self, other: float) -> bool:
            looked_at.append(self)
            return float(self) > other

        def __le__(self, other: float) -> bool:
            looked_at.append(self)
            return float(self) <= other

    queue = Queue()
    queue.add([Lease("busy", f"q{number}") for number in range(1000)], Time(3))
    queue.add([Lease("idle", "a"), Lease("idle", "b")], Time(4))
    queue.add([Lease("idle", "c")], Time(6))
    assert list(queue.by(5, {"busy"}, 2)) == [Lease("idle", "a"), Lease("idle", "b")]
    assert len(looked_at) <= 4
    assert len(list(queue.by(5, {"busy"}, 3))) == 1002


# Nobody waits for it.


def entered(one: Process, group: Group, query_id: str) -> Ticket:
    return one.admission.enter(group, (), query_id)


def is_in(ticket: Ticket) -> bool:
    """Whether it has its slot and its lease."""
    return ticket.slot is not None


async def test_who_waits_for_the_place_asks_at_once_also_in_another_group(one: Process) -> None:
    member = Member("c")
    low, high = Group("low", [member], limit=2), Group("high", [member], limit=3)
    member.groups += [low, high]
    running = entered(one, low, "a")
    await settle()
    for name in ("x", "y"):
        await one.other.try_acquire("c", name, 9)
    refused = entered(one, high, "b")
    await settle()
    assert not is_in(refused), "places of the other process"
    now = one.clock.monotonic()
    one.store.calls.clear()
    assert running.slot is not None
    running.slot.release()
    await settle()
    assert one.store.calls == [("many", (["b"], ["a"]))]
    assert is_in(refused)
    assert one.clock.monotonic() == now


async def test_who_is_refused_while_a_release_lingers_asks_again_at_once(one: Process) -> None:
    """Its ask was under way when the place came free."""
    member = Member("c", limit=3)
    group = Group("g", [member])
    member.groups.append(group)
    running = entered(one, group, "a")
    await settle()
    for name in ("x", "y"):
        await one.other.try_acquire("c", name, 9)
    one.store.calls.clear()
    one.store.hold_replies()
    waiting = entered(one, group, "b")
    await settle()
    assert running.slot is not None
    running.slot.release()
    one.store.let_go()
    await settle()
    assert one.store.calls == [("one", "b"), ("many", (["b"], ["a"]))]
    assert is_in(waiting)
    assert one.clock.monotonic() == 0


async def test_a_fault_as_others_yield_leaves_no_cluster_that_is_asked_again_and_again(
    one: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Member("c", limit=3), Member("d", limit=1)
    groups = Group("g", [first]), Group("h", [second])
    first.groups.append(groups[0])
    second.groups.append(groups[1])
    running = entered(one, groups[0], "a")
    await settle()
    for cluster, name in (("c", "x"), ("c", "y"), ("d", "z")):
        await one.other.try_acquire(cluster, name, 9)
    one.store.hold_replies()
    entered(one, groups[0], "b")
    await settle()
    told: list[str] = []

    def fails(_verdict: Verdict, _why: str) -> None:
        told.append("fails")
        raise RuntimeError("a fault of ours")

    one.leases.ask(Holding(Lease("c", "later")), 3, fails, order=99)
    assert running.slot is not None
    running.slot.release()
    one.store.let_go()
    await settle()
    assert told == ["fails"]
    asks = iter(["the first", "a second"])
    try_acquire = one.store.try_acquire

    async def asked(cluster: str, query_id: str, limit: int) -> bool:
        next(asks)  # without an end of them a fault would hang the test
        return await try_acquire(cluster, query_id, limit)

    monkeypatch.setattr(one.store, "try_acquire", asked)
    refused = entered(one, groups[1], "e")
    await settle()
    assert not is_in(refused)
    assert list(asks) == ["a second"]


async def test_the_same_query_on_another_cluster_does_not_wait_for_it(one: Process) -> None:
    (first,) = await one.held(("c", "a"))
    one.leases.release(first)
    await one.granted("a", "d")
    assert one.store.calls == [("release", ["a"]), ("one", "a")]
    await one.clock.advance(1)
    assert one.store.calls == [("release", ["a"]), ("one", "a")], "and it is not sent once more"


# The end.


async def test_the_end_loses_no_release_that_lingers_and_leaves_no_timer(one: Process) -> None:
    lingers, held = await one.held(("c", "a"), ("c", "b"))
    one.leases.release(lingers)
    await settle()
    assert one.clock.pending == 1
    await one.leases.close()
    assert one.store.calls == [("all", None)]
    assert one.rows == set()
    assert (lingers.state, held.state) == (State.RELEASED, State.ABANDONED)
    assert one.leases.store.queued == one.leases.releasing == len(one.leases.tasks) == one.clock.pending == 0
    await one.clock.advance(1)
    assert one.store.calls == [("all", None)]


async def test_the_end_sends_nothing_that_lingers_while_it_waits_for_an_acquire(one: Process) -> None:
    """Two statements that delete the same rows may deadlock."""
    (lingers,) = await one.held(("c", "a"))
    one.store.hold()
    one.ask("b", "d")
    one.leases.release(lingers)
    await settle()
    closing = asyncio.ensure_future(one.leases.close())
    await one.clock.advance(1)
    assert one.store.calls == [("one", "b")]
    one.store.let_go()
    await closing
    assert one.store.calls == [("one", "b"), ("all", None)]
    assert one.rows == set()
    assert one.clock.pending == 0


async def test_the_store_itself_gives_back_what_lingers_with_all_the_rest(one: Process) -> None:
    (lingers,) = await one.held(("c", "a"))
    told: list[Lease] = []
    one.leases.store.on_confirmed = told.extend
    one.leases.release(lingers)
    await settle()
    assert await one.leases.store.release_all() == 1
    await settle()
    assert told == [lingers.lease]
    assert len(one.leases.tasks) == one.clock.pending == 0


async def test_tasks_that_are_closed_while_a_release_lingers_end(one: Process) -> None:
    (lingers,) = await one.held(("c", "a"))
    one.leases.release(lingers)
    await settle()
    closing = asyncio.ensure_future(one.leases.tasks.close())
    await settle()
    assert closing.done()
    assert one.leases.store.queued == 1
    assert one.clock.pending == 0
    await one.clock.advance(1)
    assert one.store.calls == []
