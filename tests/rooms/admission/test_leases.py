"""The life of a lease: its table, asks in groups, releases in batches, renewals, and what is never lost."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from queryflux.admission.batched import HOLD_BACK_SECS, LINGER_SECS, BatchedReleaseStore
from queryflux.admission.grouped import Verdict
from queryflux.admission.leases import Leases, Standing
from queryflux.admission.lifecycle import TRANSITIONS, Event, Holding, State, after
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import Lease, Wanted
from queryflux.admission.sweep import LeaseSweep
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.tasks import TaskGroup
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle


def stands(holding: Holding) -> State:
    """Where it stands now."""
    return holding.state


ENDINGS = {State.RELEASED, State.ABANDONED}


class Fleet:
    """One process with a store that can be disturbed, and another one beside it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.store = FaultyStore(self.ledger)
        self.other = MemoryCapacityStore(self.ledger, "other")
        self.metrics = PrometheusMetrics()
        self.leases = Leases(self.store, self.clock, self.metrics, renew_secs=60, chance=Random(1))
        self.verdicts: dict[str, tuple[Verdict, str]] = {}

    def ask(self, query_id: str, limit: int = 1, cluster: str = "c") -> Holding:
        holding = Holding(Lease(cluster, query_id))
        self.again(holding, limit)
        return holding

    def again(self, holding: Holding, limit: int = 1) -> None:
        def answer(verdict: Verdict, reason: str) -> None:
            self.verdicts[holding.lease.query_id] = (verdict, reason)

        self.leases.ask(holding, limit, answer)

    async def granted(self, query_id: str, limit: int = 1, cluster: str = "c") -> Holding:
        holding = self.ask(query_id, limit, cluster)
        await settle()
        assert stands(holding) is State.HELD
        return holding

    @property
    def rows(self) -> set[str]:
        return set(self.ledger.rows)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    await fleet.leases.tasks.close()


# The table.


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_every_pair_is_in_the_table_or_an_error(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(LookupError, match=f"{state.value} cannot {event.value}"):
            after(state, event)


def test_the_ends_have_no_way_out_and_everything_else_leads_to_one() -> None:
    assert not {state for state, _ in TRANSITIONS} & ENDINGS
    reached = {State.NONE}
    while more := {TRANSITIONS[pair] for pair in TRANSITIONS if pair[0] in reached} - reached:
        reached |= more
    assert reached == set(State)
    leading = set(ENDINGS)
    while more := {state for (state, _), then in TRANSITIONS.items() if then in leading} - leading:
        leading |= more
    assert leading == set(State)


# Asking.


async def test_a_lone_acquire_is_one_call(fleet: Fleet) -> None:
    await fleet.granted("a")
    assert fleet.store.calls == [("one", "a")]


async def test_what_waits_while_a_call_is_under_way_goes_as_one_in_order_of_arrival(fleet: Fleet) -> None:
    fleet.store.hold()
    first = fleet.ask("first", 3)
    await settle()
    later = [fleet.ask(f"q{number}", 3) for number in range(4)]
    await settle()
    assert fleet.store.calls == [("one", "first")]
    fleet.store.let_go()
    await settle()
    assert fleet.store.calls[1:] == [("many", (["q0", "q1", "q2", "q3"], []))]
    assert [holding.state for holding in (first, *later)] == [State.HELD] * 3 + [State.NONE] * 2
    assert fleet.metric("queryflux_capacity_lease_denied_total", cluster_name="c") == 2


async def test_clusters_do_not_wait_for_each_other(fleet: Fleet) -> None:
    fleet.store.hold()
    fleet.ask("a", cluster="c")
    fleet.ask("b", cluster="d")
    await settle()
    assert fleet.store.calls == [("one", "a"), ("one", "b")]


async def test_a_store_that_does_not_answer_leaves_the_lease_requested_and_the_next_ask_finds_it(
    fleet: Fleet,
) -> None:
    fleet.store.deaf = "connection lost"
    holding = fleet.ask("a")
    await settle()
    assert fleet.verdicts["a"] == (Verdict.FAILED, "connection lost")
    assert stands(holding) is State.REQUESTED
    assert fleet.rows == {"a"}, "it was granted, only the reply was lost"
    fleet.store.deaf = ""
    fleet.again(holding)
    await settle()
    assert stands(holding) is State.HELD
    assert fleet.rows == {"a"}
    assert fleet.metric("queryflux_coordination_failures_total", operation="acquire") == 1
    assert fleet.metric("queryflux_capacity_degraded_total", cluster_name="c") == 1


async def test_a_doubtful_lease_that_nobody_wants_any_more_is_released(fleet: Fleet) -> None:
    fleet.store.deaf = "connection lost"
    holding = fleet.ask("a")
    await settle()
    fleet.store.deaf = ""
    fleet.leases.drop(holding)
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == set()
    assert stands(holding) is State.RELEASED


async def test_a_late_call_frees_its_lane_and_is_not_cancelled(fleet: Fleet) -> None:
    fleet.store.hold()
    late = fleet.ask("late", 9)
    await settle()
    behind = fleet.ask("behind", 9)
    await fleet.clock.advance(5)
    assert fleet.verdicts["late"][0] is Verdict.FAILED
    assert "no answer within 5 s" in fleet.verdicts["late"][1]
    fleet.store.let_go()
    await settle()
    assert stands(behind) is State.HELD
    assert fleet.rows == {"late", "behind"}
    fleet.again(late, 9)
    await settle()
    assert stands(late) is State.HELD


async def test_a_grant_that_comes_after_its_release_goes_back_on_arrival(fleet: Fleet) -> None:
    fleet.store.hold_replies()
    holding = fleet.ask("a")
    await fleet.clock.advance(5)  # the call is given up, and so is the query
    fleet.leases.drop(holding)
    await fleet.clock.advance(HOLD_BACK_SECS + LINGER_SECS)
    assert fleet.rows == set()
    fleet.ledger.add("a", "c", "one")  # as if the release had overtaken the acquire at the server
    fleet.store.let_go()
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == set()


async def test_a_grant_that_comes_late_is_left_to_its_query_when_that_has_come_back(fleet: Fleet) -> None:
    fleet.store.hold_replies()
    holding = fleet.ask("a")
    await fleet.clock.advance(5)
    let_go = fleet.store.leave_behind()
    fleet.leases.drop(holding)
    await fleet.clock.advance(HOLD_BACK_SECS + LINGER_SECS)
    again = await fleet.granted("a")  # its engine could not be reached, or another group's turn was first
    let_go()
    await fleet.clock.advance(1)
    assert stands(again) is State.HELD
    assert fleet.rows == {"a"}


async def test_a_grant_that_comes_late_is_left_to_whoever_asks_for_it_again(fleet: Fleet) -> None:
    fleet.store.hold_replies()
    holding = fleet.ask("a")
    await fleet.clock.advance(5)
    let_first_go = fleet.store.leave_behind()
    fleet.leases.drop(holding)
    await fleet.clock.advance(HOLD_BACK_SECS + LINGER_SECS)
    fleet.store.hold_replies()
    again = fleet.ask("a")
    await settle()
    let_first_go()
    await settle()
    fleet.store.let_go()
    await fleet.clock.advance(1)
    assert stands(again) is State.HELD
    assert fleet.rows == {"a"}


# Releases.


async def test_a_release_returns_before_the_store_has_heard_of_it(fleet: Fleet) -> None:
    holding = await fleet.granted("a")
    fleet.store.hold()
    fleet.leases.release(holding)
    assert stands(holding) is State.RELEASING
    assert fleet.rows == {"a"}
    fleet.store.let_go()
    await fleet.clock.advance(LINGER_SECS)
    assert stands(holding) is State.RELEASED
    assert fleet.rows == set()


async def test_releases_that_queue_up_are_one_call(fleet: Fleet) -> None:
    holdings = [await fleet.granted(f"q{number}", 9) for number in range(4)]
    fleet.store.calls.clear()
    for holding in holdings:
        fleet.leases.release(holding)
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.store.calls == [("release", ["q0", "q1", "q2", "q3"])]


async def test_a_failed_release_is_sent_again_until_it_is_through(fleet: Fleet) -> None:
    holding = await fleet.granted("a")
    fleet.store.down = "starting up"
    fleet.leases.release(holding)
    for _ in range(20):
        await fleet.clock.advance(0.5)
    assert fleet.rows == {"a"}
    tries = len(fleet.store.calls)
    assert tries > 10
    assert fleet.metric("queryflux_capacity_releases_queued") == 1
    fleet.store.down = ""
    await fleet.clock.advance(0.5)
    assert fleet.rows == set()
    assert stands(holding) is State.RELEASED
    assert fleet.metric("queryflux_capacity_releases_queued") == 0


async def test_an_acquire_takes_the_queued_releases_of_its_cluster_along(fleet: Fleet) -> None:
    holding = await fleet.granted("a")
    elsewhere = await fleet.granted("z", cluster="d")
    fleet.store.calls.clear()
    fleet.leases.release(holding)
    fleet.leases.release(elsewhere)
    next_one = fleet.ask("b")
    await fleet.clock.advance(LINGER_SECS)
    assert ("many", (["b"], ["a"])) in fleet.store.calls
    assert stands(next_one) is State.HELD
    assert stands(holding) is State.RELEASED
    assert fleet.rows == {"b"}


async def test_releases_wait_a_moment_for_the_acquire_that_is_under_way(fleet: Fleet) -> None:
    holding = await fleet.granted("a", 9)
    fleet.store.calls.clear()
    fleet.store.hold()
    fleet.ask("b", 9)
    await settle()
    fleet.leases.release(holding)
    await fleet.clock.advance(2 * LINGER_SECS)
    assert fleet.store.calls == [("one", "b")]
    fleet.ask("c", 9)
    fleet.store.let_go()
    await settle()
    assert fleet.store.calls[1:] == [("many", (["c"], ["a"]))]


async def test_a_slow_acquire_does_not_keep_releases_back_for_long(fleet: Fleet) -> None:
    holding = await fleet.granted("a", 9)
    fleet.store.hold()
    fleet.ask("b", 9)
    await settle()
    fleet.leases.release(holding)
    await fleet.clock.advance(HOLD_BACK_SECS - 2 * LINGER_SECS)
    assert ("release", ["a"]) not in fleet.store.calls
    await fleet.clock.advance(4 * LINGER_SECS)
    assert fleet.store.calls[-1] == ("release", ["a"])


async def test_releases_that_travelled_with_a_failed_acquire_are_sent_again(fleet: Fleet) -> None:
    holding = await fleet.granted("a")
    fleet.store.down = "no"
    fleet.leases.release(holding)
    fleet.ask("b")
    await settle()
    assert fleet.verdicts["b"][0] is Verdict.FAILED
    fleet.store.down = ""
    await fleet.clock.advance(0.5)
    assert fleet.rows == set()
    assert stands(holding) is State.RELEASED


async def test_an_acquire_elsewhere_waits_for_the_release_of_the_same_id(fleet: Fleet) -> None:
    holding = await fleet.granted("a", cluster="c")
    fleet.store.calls.clear()
    fleet.leases.release(holding)
    again = fleet.ask("a", cluster="d")
    await settle()
    assert stands(again) is State.HELD
    assert fleet.store.calls == [("release", ["a"]), ("one", "a")]
    assert fleet.ledger.rows["a"].cluster == "d"


async def test_an_acquire_waits_for_a_release_of_the_same_id_that_is_on_its_way(fleet: Fleet) -> None:
    holding = await fleet.granted("a", cluster="c")
    fleet.store.hold()
    fleet.leases.release(holding)
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.store.calls[-1] == ("release", ["a"])
    again = fleet.ask("a", cluster="d")
    await settle()
    assert fleet.store.calls[-1] == ("release", ["a"])
    fleet.store.let_go()
    await settle()
    assert stands(again) is State.HELD


async def test_a_release_that_fails_while_an_acquire_waits_for_it_goes_with_that(fleet: Fleet) -> None:
    holding = await fleet.granted("a")
    failed = asyncio.Event()

    async def fail(leases: Sequence[Lease]) -> None:
        await failed.wait()
        raise StoreUnavailable("connection lost")

    fleet.store.release_many = fail  # type: ignore[method-assign]
    fleet.leases.release(holding)
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.leases.store.under_way
    again = fleet.ask("a")
    await settle()
    del fleet.store.release_many
    failed.set()
    await fleet.clock.advance(1)
    assert fleet.store.calls[-1] == ("many", (["a"], ["a"]))
    assert stands(again) is State.HELD
    assert fleet.rows == {"a"}, "the release did not come after the acquire"


async def test_an_acquire_waits_for_every_release_of_its_id(fleet: Fleet) -> None:
    """One goes off while it waits for another."""
    gates = {"c": asyncio.Event(), "d": asyncio.Event()}

    async def release_many(leases: Sequence[Lease]) -> None:
        await gates[leases[0].cluster].wait()
        await MemoryCapacityStore.release_many(fleet.store, leases)

    fleet.store.release_many = release_many  # type: ignore[method-assign]
    fleet.leases.release(Holding(Lease("d", "a")))
    again = fleet.ask("a", cluster="c")
    await settle()
    fleet.leases.release(Holding(Lease("c", "a")))
    await fleet.clock.advance(LINGER_SECS)
    gates["d"].set()
    await settle()
    assert stands(again) is State.REQUESTED
    gates["c"].set()
    await settle()
    assert stands(again) is State.HELD
    assert fleet.rows == {"a"}


async def test_an_acquire_waits_for_a_release_although_another_of_its_id_came_through(fleet: Fleet) -> None:
    gate = asyncio.Event()

    async def release_many(leases: Sequence[Lease]) -> None:
        await gate.wait()
        await MemoryCapacityStore.release_many(fleet.store, leases)

    fleet.store.release_many = release_many  # type: ignore[method-assign]
    fleet.leases.release(Holding(Lease("d", "a")))
    await fleet.clock.advance(LINGER_SECS)
    fleet.leases.release(Holding(Lease("e", "a")))
    await fleet.granted("b", cluster="e")  # took the release there along
    assert fleet.store.calls[-1] == ("many", (["b"], ["a"]))
    again = fleet.ask("a", cluster="d")
    await settle()
    assert stands(again) is State.REQUESTED
    gate.set()
    await settle()
    assert stands(again) is State.HELD
    assert fleet.rows == {"a", "b"}


async def test_with_a_full_queue_releases_go_by_themselves(fleet: Fleet) -> None:
    tasks = TaskGroup("test")
    batched = BatchedReleaseStore(fleet.store, fleet.clock, tasks, fleet.metrics, most_queued=2)
    for number in range(4):
        await fleet.store.try_acquire("c", f"q{number}", 9)
    fleet.store.down = "no"
    await batched.release_many([Lease("c", "q0"), Lease("c", "q1")])
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.store.calls[-1] == ("release", ["q0", "q1"])
    assert batched.queued == 2
    fleet.store.down = ""
    await batched.release_many([Lease("c", "q2")])
    assert fleet.rows == {"q0", "q1", "q3"}, "the third was waited for, the first two are still queued"
    await tasks.close()


async def test_releasing_what_is_not_held_is_harmless(fleet: Fleet) -> None:
    holding = Holding(Lease("c", "never"))
    fleet.leases.release(holding)
    await fleet.clock.advance(LINGER_SECS)
    assert stands(holding) is State.RELEASED


async def test_the_end_gives_back_what_is_held_and_what_is_queued(fleet: Fleet) -> None:
    held, queued = await fleet.granted("a", 9), await fleet.granted("b", 9)
    await fleet.other.try_acquire("c", "theirs", 9)
    fleet.store.down = "no"
    fleet.leases.release(queued)
    await fleet.clock.advance(LINGER_SECS)
    fleet.store.down = ""
    await fleet.leases.close()
    assert fleet.rows == {"theirs"}
    assert fleet.leases.store.queued == 0
    assert stands(held) is State.ABANDONED


async def test_the_end_waits_for_an_acquire_that_is_under_way(fleet: Fleet) -> None:
    fleet.store.hold()
    fleet.ask("a")
    await settle()
    closing = asyncio.ensure_future(fleet.leases.close())
    await settle()
    assert not closing.done()
    fleet.store.let_go()
    await closing
    assert fleet.rows == set()


async def test_the_end_waits_for_a_lost_lease_that_is_being_taken_again(fleet: Fleet) -> None:
    await fleet.granted("a")
    fleet.ledger.remove("a")
    fleet.leases.start()
    fleet.store.hold_replies()
    renewing = asyncio.ensure_future(fleet.leases.renew())
    await settle()
    let_go = fleet.store.leave_behind()
    fleet.store.hold()
    let_go()
    await settle()
    assert fleet.store.calls[-1] == ("many", (["a"], []))
    closing = asyncio.ensure_future(fleet.leases.close())
    await settle()
    assert fleet.store.calls[-1] == ("many", (["a"], [])), "else it would be granted after the end"
    fleet.store.let_go()
    await closing
    await renewing
    assert fleet.rows == set()


async def test_the_end_waits_for_releases_that_are_under_way_and_begins_no_more(fleet: Fleet) -> None:
    """Two statements that delete the same rows may deadlock."""
    first, second = await fleet.granted("a", 9), await fleet.granted("b", 9)
    fleet.store.hold()
    fleet.leases.release(first)
    await fleet.clock.advance(LINGER_SECS)
    fleet.leases.release(second)
    closing = asyncio.ensure_future(fleet.leases.close())
    await fleet.clock.advance(1)
    assert fleet.store.calls[-1] == ("release", ["a"])
    fleet.store.let_go()
    await closing
    assert fleet.store.calls[-2:] == [("release", ["a"]), ("all", None)]
    assert stands(first) is State.RELEASED
    assert fleet.rows == set()


async def test_the_end_waits_no_longer_than_five_seconds_and_tries_twice(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding = await fleet.granted("a")
    fleet.store.hold()
    fleet.leases.release(holding)
    await fleet.clock.advance(LINGER_SECS)
    tries: list[float] = []

    async def release_all() -> int:
        tries.append(fleet.clock.monotonic())
        if len(tries) == 1:
            raise StoreUnavailable("busy with a conflicting change")
        return await fleet.other.release_all()

    monkeypatch.setattr(fleet.store, "release_all", release_all)
    since = fleet.clock.monotonic()
    closing = asyncio.ensure_future(fleet.leases.close())
    await fleet.clock.advance(4.9)
    assert tries == []
    await fleet.clock.advance(1)
    await closing
    assert [round(when - since, 1) for when in tries] == [5.0, 5.2]


async def test_the_end_does_not_wait_twice_for_a_store_that_hangs(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    async def release_all() -> int:
        tries.append(fleet.clock.monotonic())
        await fleet.clock.sleep(7)
        raise StoreUnavailable("there was no answer within 7 s")

    monkeypatch.setattr(fleet.store, "release_all", release_all)
    closing = asyncio.ensure_future(fleet.leases.close())
    await fleet.clock.advance(7.1)
    assert closing.done()
    assert len(tries) == 1


# Renewals.


async def test_every_lease_that_is_held_is_renewed_by_its_id(fleet: Fleet) -> None:
    fleet.leases.start()
    held, gone = await fleet.granted("a", 9), await fleet.granted("b", 9)
    fleet.leases.release(gone)
    await fleet.clock.advance(60)
    assert ("renew", ["a"]) in fleet.store.calls
    assert stands(held) is State.HELD
    assert fleet.ledger.rows["a"].renewed >= 54


async def test_a_lease_that_nobody_names_runs_out(fleet: Fleet) -> None:
    fleet.leases.start()
    await fleet.granted("mine", 9)
    await fleet.store.try_acquire("c", "orphan", 9)
    await fleet.clock.advance(301)
    assert await fleet.other.expire(300) == 1
    assert fleet.rows == {"mine"}


async def test_a_lost_lease_is_counted_and_taken_again_above_the_cap(fleet: Fleet) -> None:
    holding = await fleet.granted("a", 1)
    fleet.ledger.remove("a")
    await fleet.other.try_acquire("c", "theirs", 1)
    assert await fleet.leases.renew()
    assert stands(holding) is State.HELD
    assert fleet.rows == {"a", "theirs"}
    assert fleet.metric("queryflux_capacity_leases_lost_total", cluster_name="c") == 1


async def test_a_loss_is_counted_and_told_once_however_often_it_is_tried_to_mend_it(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    holdings = [await fleet.granted(name, 9) for name in ("a", "b", "kept")]
    for name in ("a", "b"):
        fleet.ledger.remove(name)
        await fleet.other.try_acquire("c", name, 9)
    for _ in range(3):
        assert await fleet.leases.renew()
    assert [stands(holding) for holding in holdings] == [State.LOST, State.LOST, State.HELD]
    assert fleet.metric("queryflux_capacity_leases_lost_total", cluster_name="c") == 2
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told == ["2 leases of cluster c were lost while their queries run"]
    await fleet.other.release_many([Lease("c", "a")])
    assert await fleet.leases.renew()
    fleet.ledger.remove("a")
    assert await fleet.leases.renew()
    assert fleet.metric("queryflux_capacity_leases_lost_total", cluster_name="c") == 3, "lost once more"


async def test_a_lost_lease_that_another_process_has_is_tried_again(fleet: Fleet) -> None:
    holding = await fleet.granted("a", 1)
    fleet.ledger.remove("a")
    await fleet.other.try_acquire("c", "a", 1)
    assert await fleet.leases.renew()
    assert stands(holding) is State.LOST
    await fleet.other.release_many([Lease("c", "a")])
    assert await fleet.leases.renew()
    assert stands(holding) is State.HELD


async def test_a_query_that_ends_while_its_lost_lease_is_taken_again_leaves_none(fleet: Fleet) -> None:
    holding = await fleet.granted("a", 1)
    fleet.ledger.remove("a")
    renewing = asyncio.ensure_future(fleet.leases.renew())
    await asyncio.sleep(0)
    fleet.store.hold()
    await settle()
    fleet.leases.release(holding)
    fleet.store.let_go()
    await renewing
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == set()


async def test_what_ended_while_its_renewal_got_no_answer_goes_back_once_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that adopts what it does not know may get the release first, and the renewal then."""
    fleet.ledger.adopts = True
    holding = await fleet.granted("a", 1)
    arrives = asyncio.Event()

    async def late(leases: Sequence[Lease]) -> set[str]:
        await arrives.wait()
        await MemoryCapacityStore.renew(fleet.store, leases)
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(fleet.store, "renew", late)
    renewing = asyncio.ensure_future(fleet.leases.renew())
    await settle()
    fleet.leases.release(holding)
    await fleet.clock.advance(LINGER_SECS)
    assert stands(holding) is State.RELEASED
    arrives.set()
    assert not await renewing
    await fleet.clock.advance(LINGER_SECS)
    assert fleet.rows == set()


async def test_what_ended_while_it_was_taken_again_without_an_answer_goes_back_once_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrives = asyncio.Event()

    async def late(cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()) -> list[bool]:
        await arrives.wait()
        await MemoryCapacityStore.try_acquire_many(fleet.store, cluster, wanted, released)
        raise StoreUnavailable("the answer was lost")

    holding = await fleet.granted("a", 1)
    fleet.ledger.remove("a")
    monkeypatch.setattr(fleet.store, "try_acquire_many", late)
    renewing = asyncio.ensure_future(fleet.leases.renew())
    await settle()
    assert stands(holding) is State.LOST
    fleet.leases.release(holding)
    await fleet.clock.advance(1)
    assert stands(holding) is State.RELEASED
    arrives.set()
    assert not await renewing
    await fleet.clock.advance(1)
    assert fleet.rows == set()


async def test_what_a_late_call_without_an_answer_may_have_granted_goes_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrives = asyncio.Event()

    async def late(cluster: str, query_id: str, limit: int) -> bool:
        await arrives.wait()
        await MemoryCapacityStore.try_acquire_many(fleet.store, cluster, [Wanted(query_id, limit)])
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(fleet.store, "try_acquire", late)
    holding = fleet.ask("a")
    await fleet.clock.advance(6)
    assert fleet.verdicts["a"][0] is Verdict.FAILED
    fleet.leases.drop(holding)
    await fleet.clock.advance(1)
    assert stands(holding) is State.RELEASED
    arrives.set()
    await fleet.clock.advance(1)
    assert fleet.rows == set()


async def test_a_failed_renewal_is_soon_tried_again(fleet: Fleet) -> None:
    fleet.leases.start()
    holding = await fleet.granted("a")
    fleet.store.down = "no"
    await fleet.clock.advance(58)
    assert stands(holding) is State.HELD
    assert fleet.metric("queryflux_coordination_failures_total", operation="renew") == 1
    fleet.store.down = ""
    await fleet.clock.advance(5)
    assert fleet.store.calls.count(("renew", ["a"])) == 2


async def test_renewals_that_fail_are_told_once(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fleet.leases.start()
    await fleet.granted("a", 9)
    fleet.store.down = "no route"
    await fleet.clock.advance(120)
    assert fleet.metric("queryflux_coordination_failures_total", operation="renew") > 5
    fleet.store.down = ""
    await fleet.clock.advance(10)
    told = [record.getMessage() for record in caplog.records if "renewed" in record.getMessage()]
    assert told == ["1 leases could not be renewed: no route", "leases are renewed again"]


async def test_grouped_acquires_pass_their_own_limits(fleet: Fleet) -> None:
    assert await fleet.store.try_acquire_many(
        "c", [Wanted("a", 1), Wanted("b", 1), Wanted("c", 3), Wanted("d", 1)]
    ) == [True, False, True, False]


async def test_the_end_of_a_call_that_gets_no_answer_is_quiet(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    holding = await fleet.granted("a")
    fleet.store.hold()
    fleet.leases.release(holding)
    fleet.ask("b")
    await settle()
    monkeypatch.setattr(fleet.store, "release_all", fleet.other.release_all)
    closing = asyncio.ensure_future(fleet.leases.close())
    await fleet.clock.advance(6)
    await closing
    assert caplog.records == []


# What is told.


async def test_whether_the_store_answers_and_since_when(fleet: Fleet) -> None:
    leases = fleet.leases
    assert leases.standing == Standing()
    holding = await fleet.granted("a")
    began = fleet.clock.now()
    assert leases.standing == Standing("", began, began)
    await fleet.clock.advance(1)
    fleet.store.down = "no route"
    assert not await leases.renew()
    down = fleet.clock.now()
    assert leases.standing == Standing("no route", down, down)
    fleet.store.down = "connection refused"
    await fleet.clock.advance(1)
    leases.release(holding)
    await fleet.clock.advance(LINGER_SECS)
    assert leases.standing == Standing("connection refused", down, fleet.clock.now()), (
        "also when it is a release"
    )
    fleet.store.down = ""
    await fleet.clock.advance(1)
    assert leases.standing.unavailable == ""
    assert leases.standing.since is not None
    assert leases.standing.since > down


# Faults of ours.


async def test_a_fault_of_ours_in_a_call_is_not_the_end_of_its_cluster(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(cluster: str, query_id: str, limit: int) -> bool:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.store, "try_acquire", broken)
        holding = fleet.ask("a")
        await settle()
    assert fleet.verdicts["a"] == (Verdict.FAILED, "internal error: RuntimeError")
    assert stands(holding) is State.REQUESTED
    fleet.again(holding)
    await settle()
    assert stands(holding) is State.HELD


async def test_a_fault_of_ours_in_a_renewal_is_not_the_end_of_renewals(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(leases: Sequence[Lease]) -> set[str]:
        raise RuntimeError("a fault of ours")

    await fleet.granted("a")
    fleet.leases.start()
    with monkeypatch.context() as patch:
        patch.setattr(fleet.store, "renew", broken)
        await fleet.clock.advance(61)
    failed = fleet.clock.monotonic()
    await fleet.clock.advance(6)
    assert fleet.ledger.rows["a"].renewed > failed
    assert fleet.metric("queryflux_coordination_failures_total", operation="renew") > 0


async def test_a_fault_of_ours_in_a_sweep_is_not_the_end_of_sweeps(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(older_than_secs: float) -> int:
        raise RuntimeError("a fault of ours")

    sweep = LeaseSweep(fleet.other, fleet.other, fleet.clock, fleet.metrics, interval_secs=10, expiry_secs=15)
    fleet.leases.tasks.spawn("sweep", sweep.run())
    await fleet.other.try_acquire("c", "a", 1)
    with monkeypatch.context() as patch:
        patch.setattr(fleet.other, "expire", broken)
        await fleet.clock.advance(15)
    await fleet.clock.advance(30)
    assert fleet.rows == set()
