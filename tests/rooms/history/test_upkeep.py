"""Old records go and clusters are counted, by whoever's turn it is."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest

from queryflux.history.port import ClusterSnapshot, Purged
from queryflux.history.upkeep import alone, keep_for_days, snapshot_clusters
from queryflux.model.errors import StoreUnavailable
from tests.kit.clock import START, ManualClock

DAY = 86400.0
SNAPSHOT = ClusterSnapshot(
    cluster_name="lake",
    group_name="bi",
    engine_type="Trino",
    running_queries=1,
    queued_queries=2,
    max_running_queries=None,
    recorded_at=START,
)


class Noting:
    """Notes what it is asked to do; fails while ``failing``."""

    def __init__(self) -> None:
        self.purges: list[float] = []
        self.snapshots: list[ClusterSnapshot] = []
        self.failing: Exception | None = None

    async def purge(self, before: float) -> Purged:
        self.purges.append(before)
        if self.failing is not None:
            raise self.failing
        return Purged(1, 2, 3)

    async def add_snapshots(self, snapshots: Sequence[ClusterSnapshot]) -> None:
        self.snapshots.extend(snapshots)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"upkeep has no business with {name}")


@asynccontextmanager
async def running(work: Coroutine[Any, Any, NoReturn]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    yield
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def sample() -> Sequence[ClusterSnapshot]:
    return [SNAPSHOT]


async def test_a_cause_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock, store, left = ManualClock(), Noting(), 0

    async def ask() -> Sequence[ClusterSnapshot]:
        nonlocal left
        left += 1
        if left == 6:
            return [SNAPSHOT]
        raise StoreUnavailable("the database is away" if left == 5 else f"not yet; for another {50 - left} s")

    async with running(snapshot_clusters(store, ask, clock, alone)):
        await clock.advance(36)
    assert left == 7
    assert [record.getMessage() for record in caplog.records] == [
        "cluster-snapshots: not done for now: not yet; for another 49 s",
        "cluster-snapshots: not done for now: the database is away",
        "cluster-snapshots: not done for now: not yet; for another 43 s",
    ]


async def test_old_records_go_every_hour_and_not_at_the_start() -> None:
    clock, store = ManualClock(), Noting()
    async with running(keep_for_days(store, 30, clock, alone)):
        await clock.advance(3599)
        assert store.purges == []
        await clock.advance(3602)
        assert store.purges == [START + 3600 - 30 * DAY, START + 7200 - 30 * DAY]


async def test_a_turn_that_fails_is_missed_and_the_next_one_comes() -> None:
    clock, store = ManualClock(), Noting()
    async with running(keep_for_days(store, 1, clock, alone)):
        for failure in (StoreUnavailable("away"), RuntimeError("a bug"), None):
            store.failing = failure
            await clock.advance(3600)
        assert len(store.purges) == 3


async def test_clusters_are_counted_every_five_seconds_when_it_is_our_turn() -> None:
    clock, store = ManualClock(), Noting()
    turns = iter([True, False, True])
    asked: list[tuple[str, float]] = []

    @asynccontextmanager
    async def taking_turns(name: str, rest_secs: float) -> AsyncIterator[bool]:
        asked.append((name, rest_secs))
        yield next(turns)

    async with running(snapshot_clusters(store, sample, clock, taking_turns)):
        await clock.advance(15)
        assert store.snapshots == [SNAPSHOT, SNAPSHOT]
        assert asked == [("cluster-snapshots", 4.5)] * 3
