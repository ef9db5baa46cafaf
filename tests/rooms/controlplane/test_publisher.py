"""The document that workers get, and the waits for it: made once, woken in time, never younger than it is."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest

from queryflux.config.clusters import ClusterConfig
from queryflux.config.snapshot import Snapshot, revision_of
from queryflux.controlplane import publisher as module
from queryflux.controlplane.publisher import Asker, Offer, Published, SnapshotPublisher
from queryflux.fleet.snapshot import read
from queryflux.model.errors import NotConfigured, ShuttingDown
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.clock import ManualClock, settle


def config(*names: str) -> Snapshot:
    return Snapshot(clusters={name: ClusterConfig(engine="duckDb") for name in names})


A, B, C = config("a"), config("a", "b"), config("a", "b", "c")
REVISION_A, REVISION_B = revision_of(A), revision_of(B)


class Publisher:
    """One with a clock that a test moves, and the chance that makes waits longest."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = PrometheusMetrics()
        self.chance = 0.0
        self.it = SnapshotPublisher(
            clock=self.clock,
            metrics=self.metrics,
            build_secs=10,
            most_sends=2,
            chance=lambda: self.chance,
        )

    async def publish(self, snapshot: Snapshot, sequence: int, epoch: str = "e") -> Published:
        self.it.offer(Offer(snapshot, epoch, sequence, self.clock.monotonic()))
        await self.it.built()
        return self.it.current

    def failures(self) -> float:
        name = "queryflux_config_reload_failures_total"
        lines = self.metrics.render().decode().splitlines()
        found = [line for line in lines if line.startswith(name) and 'stage="snapshot_build"' in line]
        return float(found[0].rpartition(" ")[2]) if found else 0

    def wait(self, asker: Asker, seconds: float = 30) -> "asyncio.Task[Published | None]":
        return asyncio.ensure_future(self.it.wait(asker, seconds))


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    made = Publisher()
    yield made
    await made.it.close()


class Slow:
    """Makes documents only when told, and fails when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate: asyncio.Future[None] | None = None
        self.error: Exception | None = None
        self.made = 0
        monkeypatch.setattr(module, "in_thread", self)

    def shut(self) -> None:
        self.gate = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        assert self.gate is not None
        self.gate.set_result(None)

    async def __call__(self, name: str, function: Any, *args: Any) -> Any:
        self.made += 1
        if self.gate is not None:
            await self.gate
        if self.error is not None:
            raise self.error
        return function(*args)


# The document.


async def test_it_is_what_is_in_use_plain_and_zipped(publisher: Publisher) -> None:
    there = await publisher.publish(A, 3)
    received = read(there.body)
    assert gzip.decompress(there.zipped) == there.body
    assert (there.revision, there.epoch, there.sequence) == (REVISION_A, "e", 3)
    assert (received.revision, received.epoch, received.sequence) == (REVISION_A, "e", 3)
    assert received.generated_at == publisher.clock.now()
    assert "duckDb" not in repr(there)


async def test_it_says_when_the_store_was_read(publisher: Publisher) -> None:
    read_at = publisher.clock.monotonic()
    await publisher.clock.advance(4)
    publisher.it.offer(Offer(A, "e", 1, read_at))
    await publisher.it.built()
    received = read(publisher.it.current.body)
    assert received.generated_at - received.confirmed_at == 4
    assert publisher.it.age() == 4


async def test_it_is_made_once_for_each_revision(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    first = await publisher.publish(A, 1)
    for _ in range(5):
        assert await publisher.publish(A, 1) is first
    assert slow.made == 1
    await publisher.publish(B, 2)
    assert slow.made == 2


async def test_before_the_first_there_is_none(publisher: Publisher) -> None:
    with pytest.raises(NotConfigured):
        await publisher.it.wait(Asker(""), 30)
    assert publisher.it.state.published is None
    assert publisher.it.state.age is None


async def test_while_one_is_made_the_one_before_is_served(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    await publisher.publish(A, 1)
    slow.shut()
    publisher.it.offer(Offer(B, "e", 2, 0))
    await settle()
    publisher.it.offer(Offer(C, "e", 3, 0))
    await settle()
    assert publisher.it.current.revision == REVISION_A
    assert slow.made == 2
    slow.open()
    await publisher.it.built()
    assert publisher.it.current.sequence == 3
    assert slow.made == 3


@pytest.mark.parametrize("error", [ValueError("it is too large"), RuntimeError("a fault of ours")])
async def test_when_making_fails_the_last_good_one_stays_and_operators_see_it(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await publisher.publish(A, 1)
    slow = Slow(monkeypatch)
    slow.error = error
    await publisher.clock.advance(5)
    await publisher.publish(B, 2)
    assert publisher.it.current.revision == REVISION_A
    state = publisher.it.state
    assert state.failure in ("it is too large", "internal error: RuntimeError")
    assert state.failing_since == publisher.clock.now()
    assert publisher.failures() == 1
    await publisher.clock.advance(5)
    assert publisher.it.confirm("e", 2, publisher.clock.monotonic())
    await publisher.it.built()
    assert publisher.failures() == 2
    assert publisher.it.age() == 10, "the store was read, but it says something else than what is served"
    slow.error = None
    await publisher.publish(B, 2)
    assert publisher.it.current.revision == REVISION_B
    assert publisher.it.state.failure == ""
    assert publisher.it.age() == 0


async def test_making_that_takes_over_ten_seconds_counts_and_the_last_good_one_stays(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publisher.publish(A, 1)
    slow = Slow(monkeypatch)
    slow.shut()
    publisher.it.offer(Offer(B, "e", 2, publisher.clock.monotonic()))
    await publisher.clock.advance(9.9)
    assert publisher.failures() == 0
    await publisher.clock.advance(0.2)
    assert publisher.failures() == 1
    assert publisher.it.state.failure == "making it takes more than 10 s"
    assert publisher.it.current.revision == REVISION_A
    slow.open()
    await publisher.it.built()
    assert publisher.it.current.revision == REVISION_B
    assert publisher.it.state.failure == ""


# Confirmation.


async def test_the_age_grows_and_only_a_read_of_the_store_that_says_the_same_makes_it_young(
    publisher: Publisher,
) -> None:
    await publisher.publish(A, 1)
    await publisher.clock.advance(30)
    assert publisher.it.age() == 30
    assert not publisher.it.confirm("e", 2, publisher.clock.monotonic())
    assert not publisher.it.confirm("other", 1, publisher.clock.monotonic())
    assert publisher.it.age() == 30
    assert publisher.it.confirm("e", 1, publisher.clock.monotonic() - 1)
    assert publisher.it.age() == 1
    assert publisher.it.confirm("e", 1, publisher.clock.monotonic() - 20)
    assert publisher.it.age() == 1, "an older read that answers late makes nothing older"


# Waits.


async def test_news_ends_a_wait_at_once(publisher: Publisher) -> None:
    await publisher.publish(A, 1)
    waiting = publisher.wait(Asker(REVISION_A, "e", 1))
    await settle()
    assert not waiting.done()
    there = await publisher.publish(B, 2)
    await settle()
    assert waiting.result() is there
    assert publisher.it.state.waiting == 0


async def test_news_between_two_waits_is_not_lost(publisher: Publisher) -> None:
    await publisher.publish(A, 1)
    waiting = publisher.wait(Asker(REVISION_A, "e", 1))
    await publisher.clock.advance(30)
    assert waiting.result() is None
    there = await publisher.publish(B, 2)
    assert await publisher.it.wait(Asker(REVISION_A, "e", 1), 30) is there


async def test_without_news_a_wait_ends_after_its_time_or_a_little_earlier(publisher: Publisher) -> None:
    await publisher.publish(A, 1)
    publisher.chance = 0.5
    waiting = publisher.wait(Asker(REVISION_A, "e", 1))
    await publisher.clock.advance(28.4)
    assert not waiting.done()
    await publisher.clock.advance(0.2)
    assert waiting.result() is None


@pytest.mark.parametrize(
    "asker",
    [
        Asker(""),
        Asker(REVISION_B, "e", 1),
        Asker(REVISION_B, "before", 99),
        Asker(REVISION_B, "e", 1, rejected="0" * 16),
    ],
)
async def test_what_is_news_is_answered_at_once(publisher: Publisher, asker: Asker) -> None:
    there = await publisher.publish(A, 2)
    assert await publisher.it.wait(asker, 30) is there


@pytest.mark.parametrize(
    "asker",
    [
        Asker(REVISION_A, "e", 2),
        Asker(REVISION_A, "before", 99),
        Asker(REVISION_A, "e", 1),
        Asker(REVISION_B, "e", 2),
        Asker(REVISION_B, "e", 3),
        Asker(REVISION_B, "e", 1, rejected=REVISION_A),
        Asker(REVISION_B, "before", 99, rejected=REVISION_A),
    ],
)
async def test_what_is_no_news_is_waited_for(publisher: Publisher, asker: Asker) -> None:
    await publisher.publish(A, 2)
    waiting = publisher.wait(asker)
    await settle()
    assert not waiting.done()
    await publisher.clock.advance(30)
    assert waiting.result() is None


async def test_of_two_control_planes_one_lags_and_a_worker_does_not_go_back(publisher: Publisher) -> None:
    """The worker has 5 from the other one; this one catches up from 3, and answers only what is after 5."""
    await publisher.publish(A, 3)
    waiting = publisher.wait(Asker(REVISION_B, "e", 5))
    await publisher.publish(C, 4)
    await settle()
    assert not waiting.done()
    await publisher.publish(B, 5)
    await settle()
    assert not waiting.done()
    there = await publisher.publish(A, 6)
    await settle()
    assert waiting.result() is there


async def test_an_earlier_configuration_again_is_news(publisher: Publisher) -> None:
    await publisher.publish(A, 1)
    await publisher.publish(B, 2)
    waiting = publisher.wait(Asker(REVISION_B, "e", 2))
    there = await publisher.publish(A, 3)
    await settle()
    assert waiting.result() is there
    assert there.revision == REVISION_A


async def test_the_same_revision_with_a_higher_sequence_ends_a_wait_without_a_body(
    publisher: Publisher,
) -> None:
    """So that a worker notes where it stands, and forgets a revision that it refused in between."""
    await publisher.publish(A, 1)
    await publisher.publish(B, 2)
    waiting = publisher.wait(Asker(REVISION_A, "e", 1, rejected=REVISION_B))
    await settle()
    assert not waiting.done()
    await publisher.publish(A, 3)
    await settle()
    assert waiting.done()
    assert waiting.result() is None
    assert publisher.it.current.sequence == 3


async def test_answers_are_spread_by_how_many_wait(publisher: Publisher) -> None:
    publisher.chance = 1.0
    await publisher.publish(A, 1)
    waiting = [publisher.wait(Asker(REVISION_A, "e", 1)) for _ in range(100)]
    await settle()
    assert publisher.it.state.waiting == 100
    await publisher.publish(B, 2)
    await publisher.clock.advance(0.049)
    assert not any(task.done() for task in waiting)
    await publisher.clock.advance(0.002)
    assert all(task.result() is publisher.it.current for task in waiting)


async def test_a_thousand_waiters_are_spread_over_half_a_second_at_most(publisher: Publisher) -> None:
    publisher.chance = 1.0
    await publisher.publish(A, 1)
    waiting = [publisher.wait(Asker(REVISION_A, "e", 1)) for _ in range(2000)]
    await settle()
    await publisher.publish(B, 2)
    await publisher.clock.advance(module.SPREAD_SECS)
    assert all(task.done() for task in waiting)


async def test_who_gives_up_waiting_leaves_nothing_behind(publisher: Publisher) -> None:
    await publisher.publish(A, 1)
    waiting = publisher.wait(Asker(REVISION_A, "e", 1))
    await settle()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert publisher.it.state.waiting == 0
    assert publisher.clock.pending == 0


async def test_the_drain_answers_all_waits_at_once_and_takes_no_new_ones(publisher: Publisher) -> None:
    publisher.chance = 1.0
    await publisher.publish(A, 1)
    waiting = [publisher.wait(Asker(REVISION_A, "e", 1)) for _ in range(50)]
    await settle()
    publisher.it.begin_drain()
    await settle()
    assert [task.result() for task in waiting] == [None] * 50
    with pytest.raises(ShuttingDown):
        await publisher.it.wait(Asker(REVISION_A, "e", 1), 30)
    assert publisher.it.current.revision == REVISION_A, "who has none yet still gets it"


async def test_news_of_the_last_moment_is_told_though_the_process_drains(publisher: Publisher) -> None:
    """An answer that speaks of the new revision and does not bring it would be taken for all there is."""
    publisher.chance = 1.0
    await publisher.publish(A, 1)
    waiting = [publisher.wait(Asker(REVISION_A, "e", 1)) for _ in range(50)]
    await settle()
    await publisher.publish(B, 2)
    publisher.it.begin_drain()
    await publisher.clock.advance(module.SPREAD_SECS)
    assert [task.result() for task in waiting] == [publisher.it.current] * 50


async def test_news_that_comes_as_the_time_is_over_is_told(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    await publisher.publish(A, 1)
    waiting = publisher.wait(Asker(REVISION_A, "e", 1), 30)
    await settle()
    slow.shut()
    publisher.it.offer(Offer(B, "e", 2, 0.0))
    await settle()
    for waiter in publisher.it._waiters:
        waiter.cancel()  # as its timer does
    slow.open()
    await settle()
    there = waiting.result()
    assert there is not None
    assert there.revision == REVISION_B


async def test_what_was_changed_without_a_word_is_published_and_called_no_news(publisher: Publisher) -> None:
    """Rows edited by hand, and config_revision left as it was: who comes new gets what is in use; nobody is
    told, for two control planes may have read before and after."""
    await publisher.publish(A, 1)
    waiting = publisher.wait(Asker(REVISION_A, "e", 1))
    assert (await publisher.publish(B, 1)).revision == REVISION_B
    await publisher.clock.advance(30)
    assert waiting.result() is None
