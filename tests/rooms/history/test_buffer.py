"""The buffer before the store: what is added is stored, dropped, rejected, or waits; and queries never do."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from queryflux.history import buffer as module
from queryflux.history.batches import sending_to
from queryflux.history.buffer import (
    DEFAULT_PACE,
    FIRST_RETRY_SECS,
    LAST_RETRY_SECS,
    LATER,
    HistoryBuffer,
    Pace,
)
from queryflux.history.memory import size_of
from queryflux.history.port import Added
from queryflux.history.redaction import Held
from queryflux.history.stored import Digests, StoredQuery, stored_form
from queryflux.model.errors import RecordsRefused, StoreUnavailable
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.clock import ManualClock, settle
from tests.kit.records import record

FLUSH_SECS, FLUSH_RECORDS = DEFAULT_PACE.flush_secs, DEFAULT_PACE.flush_records
NO_DIGESTS = Digests(None, None, None)
FAR = 3600.0


class ScriptedStore:
    """Keeps what it gets, unless ``failing``; refuses records of the user ``bad``. With ``hold`` it does not
    answer before it is set."""

    def __init__(self) -> None:
        self.kept: dict[str, StoredQuery] = {}
        self.batches: list[int] = []
        self.failing: Exception | None = None
        self.lost_answers = 0
        self.hold: asyncio.Event | None = None

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        self.batches.append(len(records))
        if self.hold is not None:
            await self.hold.wait()
        if self.failing is not None:
            raise self.failing
        if any(one.username == "bad" for one in records):
            raise RecordsRefused("a NUL byte")
        new = [one for one in records if one.proxy_query_id not in self.kept]
        self.kept |= {one.proxy_query_id: one for one in new}
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreUnavailable("connection lost")
        return Added(len(new), len(records) - len(new))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the buffer has no business with {name}")


def prepare(one: Held) -> StoredQuery:
    if isinstance(one, StoredQuery):
        return one
    if one.username == "unfit":
        raise ValueError("no stored form")
    return stored_form(one, NO_DIGESTS)


class Bench:
    """A buffer before a scripted store; checks the sum when it is over."""

    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.store = ScriptedStore()
        self.metrics = PrometheusMetrics()
        self.buffer = HistoryBuffer(sending_to(self.store), prepare, self.clock, self.metrics, Pace(**limits))
        self.added = 0

    def add(self, number: int = 1, **fields: Any) -> None:
        for _ in range(number):
            self.buffer.add(record(self.added, **fields))
            self.added += 1

    def check_sum(self) -> None:
        given_up = self.buffer.dropped + self.buffer.rejected
        assert self.added == self.buffer.stored + given_up + self.buffer.waiting

    def count(self, what: str) -> float:
        lines = self.metrics.render().decode().splitlines()
        name = f"queryflux_history_records_{what} "
        return float(next(line for line in lines if line.startswith(name)).removeprefix(name))


@asynccontextmanager
async def started(**limits: int) -> AsyncIterator[Bench]:
    bench = Bench(**limits)
    bench.buffer.start()
    yield bench
    bench.check_sum()
    bench.store.failing, bench.store.hold = None, None
    closing = asyncio.ensure_future(bench.buffer.close(FAR))
    await bench.clock.advance(60)
    await closing
    bench.check_sum()
    assert bench.buffer.waiting == 0
    assert bench.clock.pending == 0


async def test_a_few_records_are_sent_after_five_seconds() -> None:
    async with started() as bench:
        bench.add(3)
        await bench.clock.advance(FLUSH_SECS - 0.1)
        assert bench.store.batches == []
        assert bench.count("waiting") == 3
        await bench.clock.advance(0.1)
        assert bench.store.batches == [3]
        assert bench.count("waiting") == 0
        assert bench.count("stored_total") == 3
        bench.add(1)
        await bench.clock.advance(FLUSH_SECS)
        assert bench.store.batches == [3, 1]


async def test_many_records_are_sent_at_once() -> None:
    async with started() as bench:
        bench.add(FLUSH_RECORDS)
        await settle(50)
        assert bench.store.batches == [FLUSH_RECORDS]


async def test_an_idle_buffer_has_no_timer() -> None:
    async with started() as bench:
        await settle()
        assert bench.clock.pending == 0


async def test_a_store_that_is_away_is_asked_later_and_later_and_nothing_is_lost() -> None:
    async with started() as bench:
        bench.store.failing = StoreUnavailable("connection refused")
        bench.add(FLUSH_RECORDS)
        await bench.clock.advance(sum(FIRST_RETRY_SECS * LATER**n for n in range(13)) + 0.01)
        assert len(bench.store.batches) == 14
        await bench.clock.advance(10 * LAST_RETRY_SECS)
        assert len(bench.store.batches) in (24, 25)
        bench.add(FLUSH_RECORDS)
        bench.store.failing = None
        await bench.clock.advance(5)
        assert len(bench.store.kept) == bench.buffer.stored == 2 * FLUSH_RECORDS
        assert bench.buffer.dropped == 0


async def test_an_unexpected_failure_is_tried_again_too() -> None:
    async with started() as bench:
        bench.store.failing = RuntimeError("a bug")
        bench.add(2)
        await bench.clock.advance(FLUSH_SECS)
        bench.store.failing = None
        await bench.clock.advance(1)
        assert bench.buffer.stored == 2


async def test_a_batch_whose_answer_is_lost_is_sent_again_and_counted_once() -> None:
    async with started() as bench:
        bench.store.lost_answers = 1
        bench.add(10)
        await bench.clock.advance(FLUSH_SECS + 1)
        assert bench.store.batches == [10, 10]
        assert (bench.buffer.stored, len(bench.store.kept)) == (10, 10)


async def test_a_record_that_the_store_refuses_holds_up_no_other() -> None:
    async with started() as bench:
        bench.add(30)
        bench.add(1, username="bad")
        bench.add(30)
        bench.add(1, username="bad")
        await bench.clock.advance(FLUSH_SECS)
        assert (bench.buffer.stored, bench.buffer.rejected) == (60, 2)
        assert bench.count("rejected_total") == 2
        assert len(bench.store.kept) == 60


async def test_a_record_without_a_stored_form_is_rejected() -> None:
    async with started() as bench:
        bench.add(5)
        bench.add(1, username="unfit")
        await bench.clock.advance(FLUSH_SECS)
        assert (bench.buffer.stored, bench.buffer.rejected) == (5, 1)


async def test_the_oldest_make_room_and_are_counted() -> None:
    async with started(max_records=300) as bench:
        bench.store.failing = StoreUnavailable("away")
        bench.add(400)
        await bench.clock.advance(1)
        bench.check_sum()
        assert (bench.buffer.waiting, bench.buffer.dropped) == (300, 100)
        assert bench.count("dropped_total") == 100
        bench.add(10)
        bench.store.failing = None
        await bench.clock.advance(5)
        assert sorted(bench.store.kept) == sorted(f"q{number}" for number in range(110, 410))


async def test_records_that_are_being_sent_are_not_dropped_but_count() -> None:
    async with started(max_records=150) as bench:
        bench.store.hold = asyncio.Event()
        bench.add(100)
        await settle(50)
        bench.add(100)
        assert (bench.buffer.waiting, bench.buffer.dropped) == (150, 50)
        bench.store.hold.set()
        await settle(50)
        bench.store.hold = None
        await bench.clock.advance(FLUSH_SECS)
        assert (bench.buffer.stored, bench.buffer.dropped) == (150, 50)
        assert {"q0", "q74", "q125", "q199"} <= set(bench.store.kept)


async def test_the_newest_stays_also_when_a_batch_could_be_as_large_as_what_may_wait() -> None:
    async with started(max_records=10) as bench:
        bench.store.hold = asyncio.Event()
        bench.add(10)
        await bench.clock.advance(FLUSH_SECS)
        bench.add(1)
        assert (bench.buffer.waiting, bench.buffer.dropped) == (10, 1)
        bench.store.hold.set()
        bench.store.hold = None
        await bench.clock.advance(FLUSH_SECS)
        assert "q10" in bench.store.kept


async def test_bytes_are_bounded_too() -> None:
    one = size_of(record(1, sql_text="x" * 30_000))
    async with started(max_bytes=3 * one) as bench:
        bench.store.failing = StoreUnavailable("away")
        bench.add(10, sql_text="x" * 30_000)
        assert (bench.buffer.waiting, bench.buffer.dropped) == (3, 7)
        bench.store.failing = None
        await bench.clock.advance(FLUSH_SECS)
        bench.add(3, sql_text="x" * 30_000)
        assert (bench.buffer.waiting, bench.buffer.dropped) == (3, 7)


async def test_a_batch_is_bounded_in_records_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 2 * size_of(record(1)))
    async with started() as bench:
        bench.add(5)
        await bench.clock.advance(FLUSH_SECS)
        assert bench.store.batches == [2, 2, 1]
    async with started() as bench:
        monkeypatch.setattr(module, "BATCH_BYTES", 1 << 30)
        bench.add(1200)
        await settle(200)
        assert bench.store.batches == [500, 500, 200]


async def test_what_waits_is_sent_at_the_end() -> None:
    bench = Bench()
    bench.buffer.start()
    bench.add(3)
    await bench.buffer.close(5)
    assert len(bench.store.kept) == 3
    bench.check_sum()
    bench.add(1)
    assert bench.buffer.dropped == 1
    bench.check_sum()


@pytest.mark.parametrize("hangs", [False, True])
async def test_the_end_does_not_wait_for_a_store_that_is_away(hangs: bool) -> None:
    bench = Bench()
    bench.buffer.start()
    if hangs:
        bench.store.hold = asyncio.Event()
    else:
        bench.store.failing = StoreUnavailable("away")
    bench.add(7)
    closing = asyncio.ensure_future(bench.buffer.close(3))
    await bench.clock.advance(2.9)
    assert not closing.done()
    await bench.clock.advance(0.1)
    await closing
    assert (bench.buffer.stored, bench.buffer.dropped, bench.buffer.waiting) == (0, 7, 0)
    assert bench.count("dropped_total") == 7
    bench.check_sum()


async def test_a_buffer_that_never_started_can_be_closed() -> None:
    bench = Bench()
    bench.add(2)
    await bench.buffer.close(1)
    assert bench.buffer.dropped == 2


async def test_a_reader_can_have_what_waits_sent_first() -> None:
    async with started() as bench:
        bench.add(3)
        await bench.buffer.flush(1)
        assert len(bench.store.kept) == 3
        await bench.buffer.flush(1)
        assert bench.store.batches == [3]


async def test_a_reader_does_not_wait_for_a_store_that_does_not_answer() -> None:
    async with started() as bench:
        bench.store.failing = StoreUnavailable("away")
        bench.add(3)
        await bench.buffer.flush(1)
        await bench.buffer.flush(1)
        assert bench.store.batches == [3]


async def test_a_reader_waits_for_a_slow_store_only_so_long() -> None:
    async with started() as bench:
        bench.store.hold = asyncio.Event()
        bench.add(3)
        reading = asyncio.ensure_future(bench.buffer.flush(1))
        await bench.clock.advance(0.9)
        assert not reading.done()
        await bench.clock.advance(0.1)
        assert reading.done()
        bench.store.hold.set()


async def test_preparing_large_records_lets_others_have_their_turn() -> None:
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(prepared))
            await asyncio.sleep(0)

    prepared: list[str] = []

    def slow(one: Held) -> StoredQuery:
        prepared.append(one.proxy_query_id)
        return prepare(one)

    clock, store = ManualClock(), ScriptedStore()
    buffer = HistoryBuffer(sending_to(store), slow, clock, PrometheusMetrics())
    for number in range(FLUSH_RECORDS):
        buffer.add(record(number, sql_text="x" * 20_000))
    neighbour = asyncio.ensure_future(others())
    buffer.start()
    await settle(FLUSH_RECORDS)
    neighbour.cancel()
    assert len(store.kept) == FLUSH_RECORDS
    steps = [after - before for before, after in pairwise(turns)]
    assert max(steps) <= 2, "some 2 ms of work"
    await buffer.close(FAR)
