"""A fleet under faults, by seed: what must hold does, and what would break it is noticed.

A seed that fails is run again by ``python -m tests.sim fleet --first SEED --seeds 1``.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from queryflux.admission.port import Lease, Wanted
from queryflux.controlplane.publisher import Asker, Published, SnapshotPublisher
from queryflux.history.batches import Outcome, add_isolating
from queryflux.history.port import HistoryStore
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import StoreUnavailable
from queryflux.worker.coordination import RemoteCoordinationStore
from queryflux.worker.order import Order
from queryflux.worker.sync import Sync
from tests.sim.database import ModelDatabase, Transaction
from tests.sim.edits import CAPS, Edit
from tests.sim.fleet import FleetSimulation, simulate_fleet
from tests.sim.seeds import outcomes

SEEDS = 200
BLOCK = 40


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
def test_a_fleet_whatever_happens(pool: ProcessPoolExecutor, first: int) -> None:
    seen = list(outcomes(pool, "fleet", first, BLOCK))
    assert {outcome.seed: outcome.violations for outcome in seen if outcome.violations} == {}
    assert all(outcome.counts["activations"] >= 6 for outcome in seen)
    assert all(outcome.counts["records"] > 20 for outcome in seen)


def test_the_same_seed_is_the_same_run(pool: ProcessPoolExecutor) -> None:
    (one,), (again,), (other,) = (outcomes(pool, "fleet", seed, 1) for seed in (3, 3, 4))
    assert one.trace == simulate_fleet(3).trace
    assert one.trace == again.trace
    assert one.trace != other.trace


# Planted bugs.


def noticed(
    what: str,
    prepare: Callable[[FleetSimulation], object] = lambda simulation: None,
    *,
    first: int = 1,
    most: int = 40,
) -> bool:
    """Whether some seed complains of it. ``first`` is one that does so soon, when this was written."""
    return any(
        what in violation
        for seed in range(first, first + most)
        for violation in simulate_fleet(seed, prepare).violations
    )


def one_behind(simulation: FleetSimulation) -> None:
    """One control plane does not hear of an edit, and is the only one that workers can ask."""

    def cut() -> None:
        if process := simulation.control_planes.get("cp1"):
            process.line.cut_until = simulation.world.now + 15

    def edit() -> None:
        simulation.edit(Edit(1000, CAPS))

    def kill() -> None:
        if process := simulation.control_planes.get("cp2"):
            simulation.kill_control_plane(process, 8)

    for seconds, do in ((9, cut), (9.5, edit), (13, kill)):
        simulation.world.at(seconds, do)


def test_taking_whatever_differs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "is_news", lambda self, there, seen: there != self.position)
    assert noticed("goes from sequence", one_behind)


def test_forgetting_what_was_rejected_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    reject = Sync._reject

    def forgetful(self: Sync, *arguments: Any) -> None:
        position = self._order.position
        reject(self, *arguments)
        self._rejected = None
        self._order.position = position

    monkeypatch.setattr(Sync, "_reject", forgetful)
    assert noticed("tried ", first=2)


def test_a_store_that_takes_a_record_twice_is_noticed() -> None:
    def plant(simulation: FleetSimulation) -> None:
        simulation.tables.has_key = False
        simulation.weather.twice = 0.5

    assert noticed("there are 2 records", plant)


def test_confirming_what_the_store_has_not_said_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SnapshotPublisher, "age", lambda self: 0.0)
    assert noticed("confirmed")


def test_a_copy_that_is_called_fresh_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sync, "_is_copy", lambda self: False)
    assert noticed("fresh, and no control plane has named it")


def test_news_between_two_waits_is_noticed_when_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(self: SnapshotPublisher, asker: Asker, seconds: float) -> Published | None:
        until = self._clock.monotonic() + seconds
        while await self._news(until - self._clock.monotonic()):
            if asker.wants(self.current):
                return self.current
        return None

    monkeypatch.setattr(SnapshotPublisher, "wait", wait)
    assert noticed("in the end", first=8)


def test_a_release_that_is_not_sent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    release_many = RemoteCoordinationStore.release_many

    async def release_some(self: RemoteCoordinationStore, leases: Sequence[Lease]) -> None:
        await release_many(self, [lease for lease in leases if not lease.query_id.endswith("7")])

    monkeypatch.setattr(RemoteCoordinationStore, "release_many", release_some)
    assert noticed("runs out while nothing is wrong")


def test_a_lease_that_is_counted_twice_when_it_is_asked_for_again_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grant = ModelDatabase._grant

    async def twice(
        self: ModelDatabase,
        transaction: Transaction,
        instance: str,
        cluster: str,
        wanted: Sequence[Wanted],
        early: int | None,
    ) -> tuple[list[bool], int, list[int]]:
        known = {query_id for query_id, _ in wanted if query_id in self.rows}
        granted, added, full = await grant(self, transaction, instance, cluster, wanted, early)
        for (query_id, _), given in zip(wanted, granted, strict=True):
            if given and query_id in known:
                await self._adjust(transaction, {cluster: 1})
        return granted, added, full

    monkeypatch.setattr(ModelDatabase, "_grant", twice)
    assert noticed("are counted, and there are")


def test_answering_for_records_that_were_not_stored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hopeful(store: HistoryStore, records: Sequence[StoredQuery]) -> Outcome:
        try:
            return await add_isolating(store, records)
        except StoreUnavailable:
            return Outcome(len(records), 0, 0)

    monkeypatch.setattr("queryflux.controlplane.intake.add_isolating", hopeful)
    assert noticed("was told that")
