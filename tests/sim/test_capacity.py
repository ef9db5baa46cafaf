"""One cap under faults, by seed: what must hold does, and what would break it is noticed.

A seed that fails is run again by ``python -m tests.sim capacity --first SEED --seeds 1``.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from queryflux.admission.batched import BatchedReleaseStore
from queryflux.admission.grouped import Ask, GroupedAcquires, Verdict
from queryflux.admission.leases import Leases
from queryflux.admission.port import Lease, Wanted
from queryflux.model.errors import StoreUnavailable
from tests.sim.capacity import Simulation, simulate
from tests.sim.database import ModelDatabase
from tests.sim.seeds import outcomes

SEEDS = 200
BLOCK = 40
LATE_GRANT_SEED = 55
"""A seed soon after which a grant comes so late that its query has come back meanwhile, which is rare."""


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
def test_one_cap_whatever_happens(pool: ProcessPoolExecutor, first: int) -> None:
    seen = list(outcomes(pool, "capacity", first, BLOCK))
    assert {outcome.seed: outcome.violations for outcome in seen if outcome.violations} == {}
    assert all(outcome.grants > 50 for outcome in seen)


def test_the_same_seed_is_the_same_run() -> None:
    one, again, other = simulate(3), simulate(3), simulate(4)
    assert one.trace == again.trace
    assert one.trace != other.trace


# Planted bugs.


def noticed(prepare: Callable[[Simulation], object], most: int = 60, first: int = 1) -> str:
    """The violations of the first seed that has any."""
    for seed in range(first, first + most):
        if violations := simulate(seed, prepare).violations:
            return "\n".join(violations)
    return ""


def nothing(simulation: Simulation) -> None:
    """The model as it is; the bug is in the product."""


def test_counting_outside_the_lock_is_noticed() -> None:
    def plant(simulation: Simulation) -> None:
        simulation.database.count_outside_lock = True

    assert "queries run on" in noticed(plant)


def test_an_acquire_that_overtakes_the_release_of_its_id_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def try_acquire(self: BatchedReleaseStore, cluster: str, query_id: str, limit: int) -> bool:
        return await self._store.try_acquire(cluster, query_id, limit)

    async def try_acquire_many(
        self: BatchedReleaseStore, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        return await self._store.try_acquire_many(cluster, wanted, released)

    monkeypatch.setattr(BatchedReleaseStore, "try_acquire", try_acquire)
    monkeypatch.setattr(BatchedReleaseStore, "try_acquire_many", try_acquire_many)
    seen = noticed(nothing)
    assert "gone before it ends" in seen or "while its engine works for it" in seen


def test_renewing_whatever_is_the_instances_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    renew = Leases.renew

    async def by_instance(self: Leases) -> bool:
        try:
            await self.store.renew([])
        except StoreUnavailable:
            return False
        return await renew(self)

    monkeypatch.setattr(Leases, "renew", by_instance)

    def plant(simulation: Simulation) -> None:
        simulation.database.renew_by_instance = True

    assert "places are lost" in noticed(plant)


def test_going_on_without_an_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Leases._answered

    def fail_open(self: Leases, holding: Any, ask: Any, verdict: Verdict, reason: str, answer: Any) -> None:
        if verdict is Verdict.FAILED:
            verdict, reason = Verdict.GRANTED, ""
        answered(self, holding, ask, verdict, reason, answer)

    monkeypatch.setattr(Leases, "_answered", fail_open)
    assert "without a lease" in noticed(nothing)


def test_forgetting_what_arrives_for_a_query_that_has_left_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Leases, "drop", lambda self, holding: None)
    assert "places are lost" in noticed(nothing)


def test_asking_again_at_the_end_of_the_line_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = GroupedAcquires.ask

    def at_the_end(self: GroupedAcquires, cluster: str, wanted: Wanted, answer: Any, order: int = 0) -> Ask:
        return ask(self, cluster, wanted, answer)

    monkeypatch.setattr(GroupedAcquires, "ask", at_the_end)
    assert "overtakes" in noticed(nothing)


def test_giving_back_a_late_grant_of_a_query_that_has_come_back_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Leases, "_give_back", lambda self, lease: self._send_release(lease))
    assert "its engine works for it" in noticed(nothing, 200, first=LATE_GRANT_SEED)


def test_cancelling_an_acquire_under_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    late = GroupedAcquires._late

    def cancel(self: GroupedAcquires, lane: Any, call: Any) -> None:
        late(self, lane, call)
        for task in list(self._calls):
            task.cancel()

    monkeypatch.setattr(GroupedAcquires, "_late", cancel)
    assert "was cancelled" in noticed(nothing)


def test_a_sweep_that_dies_and_keeps_others_away_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ModelDatabase.try_sweep_lock

    async def for_long(self: ModelDatabase, name: str, hold_secs: float) -> str | None:
        return await lock(self, name, 300)

    monkeypatch.setattr(ModelDatabase, "try_sweep_lock", for_long)
    assert "places are lost" in noticed(nothing)


def test_a_release_while_the_engine_works_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Simulation.start

    def start(self: Simulation, process: Any, lease: Lease, began: float) -> None:
        started(self, process, lease, began)
        if process.chance.random() < 0.02:
            process.leases.store.release(lease)

    monkeypatch.setattr(Simulation, "start", start)
    assert "its engine works for it" in noticed(nothing)
