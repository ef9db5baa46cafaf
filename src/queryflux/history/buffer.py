"""Between queries that end and whoever remembers them: a store, or a control plane far away.

A query adds its record and goes on. A task takes records in batches, makes the stored form (digests too) of
those that do not have it yet, and sends them; who cannot be reached is asked again, later and later, until it
answers. What waits is bounded in records and in bytes, whatever the store does: the oldest make room and are
counted. Each record that was added is one of

    stored + dropped + rejected + waiting

and after ``close`` none waits. A record counts as stored when the store has acknowledged it, new or not: it
may have stored a batch and not lived to say so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import chain, islice
from typing import NamedTuple

from queryflux.history.batches import Outcome, Send, send_isolating
from queryflux.history.memory import size_of
from queryflux.history.redaction import Held, in_turns
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

BATCH_BYTES = 8 << 20
"""Most of one batch, in bytes."""
FIRST_RETRY_SECS = 0.02
LAST_RETRY_SECS = 5.0
LATER = 1.5
"""An answer that was lost is asked for again at once; a store that is away, later and later."""
TOLD_FROM_SECS = 0.5

Prepare = Callable[[Held], StoredQuery]


class Pace(NamedTuple):
    """When records are sent, and how many may wait. A batch goes when ``flush_records`` wait, or when the
    oldest has waited for ``flush_secs``; ``batches`` may be on their way at a time."""

    flush_secs: float = 5.0
    flush_records: int = 100
    batch_records: int = 500
    batches: int = 1
    max_records: int = 50_000
    max_bytes: int = 64 << 20


DEFAULT_PACE = Pace()


class Delivery(NamedTuple):
    """What became of the records so far. ``error`` says what is wrong now, and is empty when nothing is."""

    stored: int
    dropped: int
    rejected: int
    waiting: int
    error: str


class HistoryBuffer:
    """A bounded queue before who remembers. One loop's own."""

    def __init__(
        self, send: Send, prepare: Prepare, clock: Clock, metrics: Metrics, pace: Pace = DEFAULT_PACE
    ) -> None:
        """``prepare`` makes the stored form of a record, as it may be seen now; it is called off the query's
        path."""
        self._send = send
        self._prepare = prepare
        self._clock = clock
        self._pace = pace
        self._records: deque[Held] = deque()
        self._sending: list[list[Held]] = []
        """Batches that are on their way."""
        self._delay = FIRST_RETRY_SECS
        """Before the next attempt that follows a failure; an answer, to any batch, makes it short again."""
        self._bytes = 0
        self._error = ""
        self._wake = asyncio.Event()
        self._preparing = asyncio.Lock()
        """What is redone is whole before it is prepared, or after."""
        self._timer: Timer | None = None
        self._tasks = TaskGroup("history buffer")
        self._task: asyncio.Task[None] | None = None
        self._closing = self._closed = self._failing = self._dropping = False
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until so many records have been dealt with."""
        self.stored = self.rejected = self.dropped = 0
        """Records that the store has, that it refuses, and that it never got."""
        self._stored_count = metrics.counter("queryflux_history_records_stored_total")
        self._rejected_count = metrics.counter("queryflux_history_records_rejected_total")
        self._dropped_count = metrics.counter("queryflux_history_records_dropped_total")
        self._waiting_gauge = metrics.gauge("queryflux_history_records_waiting")

    @property
    def waiting(self) -> int:
        """Records that are neither stored nor given up."""
        return len(self._records) + sum(map(len, self._sending))

    @property
    def delivery(self) -> Delivery:
        """What became of the records so far."""
        return Delivery(self.stored, self.dropped, self.rejected, self.waiting, self._error)

    def refuse(self) -> None:
        """Count a record that has no stored form."""
        self.rejected += 1
        self._rejected_count.inc()

    def add(self, record: Held) -> None:
        """Take a record. Never blocks, never fails."""
        if self._closed:
            self._drop(1)
            return
        self._records.append(record)
        self._bytes += size_of(record)
        self._make_room()
        if len(self._records) >= self._pace.flush_records:
            self._wake.set()
        elif self._timer is None:
            self._timer = self._clock.call_later(self._pace.flush_secs, self._wake.set)
        self._waiting_gauge.set(self.waiting)

    def _make_room(self) -> None:
        """Drop the oldest of those that are not being sent."""
        dropped, pace = 0, self._pace
        while self._records and (self.waiting > pace.max_records or self._bytes > pace.max_bytes):
            self._bytes -= size_of(self._records.popleft())
            dropped += 1
        if dropped:
            self._drop(dropped)

    def _drop(self, number: int) -> None:
        if not self._dropping:
            self._dropping = True
            log.error("history: records are dropped: the store has not taken them in time")
        self.dropped += number
        self._dropped_count.inc(number)
        self._tell_flushes()

    async def flush(self, seconds: float) -> None:
        """Send what waits, now. Returns when none of it waits any more, or after so long; at once while the
        store does not answer."""
        if not self.waiting or self._failing:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append((self._dealt_with + self.waiting, done))
        timer = self._clock.call_later(seconds, lambda: _settle(done))
        self._wake.set()
        try:
            await done
        finally:
            timer.cancel()

    @property
    def _dealt_with(self) -> int:
        return self.stored + self.rejected + self.dropped

    def _tell_flushes(self) -> None:
        waiting = [(number, done) for number, done in self._flushes if not done.done()]
        for number, done in waiting:
            if self._failing or number <= self._dealt_with:
                _settle(done)
        self._flushes = waiting

    def start(self) -> None:
        """Begin to send."""
        self._task = self._tasks.spawn("flusher", self._run())

    async def close(self, seconds: float) -> None:
        """Send what waits, for at most so long; count the rest as dropped. Nothing is taken after that."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            timer = self._clock.call_later(seconds, self._task.cancel)
            await asyncio.wait({self._task})
            timer.cancel()
        await self._tasks.close()
        self._closed = True
        self._cancel_timer()
        if self.waiting:
            log.error("history: %d records were not stored: the time to stop was over", self.waiting)
            self._drop(self.waiting)
        self._records.clear()
        self._sending.clear()
        self._bytes = 0
        self._waiting_gauge.set(0)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._cancel_timer()
            while self._records:
                others = [self._tasks.spawn("lane", self._send_all()) for _ in range(self._pace.batches - 1)]
                await self._send_all()
                if others:
                    await asyncio.wait(others)
            if self._closing:
                return

    async def _send_all(self) -> None:
        while self._records:
            await self._send_batch()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _send_batch(self) -> None:
        """Take the oldest records and send them until the store has answered for each."""
        batch = self._take_batch()
        while batch:
            self._sending.append(batch)
            try:
                outcome = await self._attempt(batch)
            except StoreUnavailable as error:
                level = logging.WARNING if self._delay >= TOLD_FROM_SECS else logging.DEBUG
                log.log(
                    level, "history: the store does not answer, asked again in %.2g s: %s", self._delay, error
                )
                self._error = error.message
            except Exception as error:
                log.exception("history: storing records failed, tried again in %.2g s", self._delay)
                self._error = f"{type(error).__name__}; the log has the cause"
            else:
                self._failing, self._error, self._delay = False, "", FIRST_RETRY_SECS
                self._acknowledge(batch, outcome)
                return
            self._failing = True
            self._tell_flushes()
            self._put_back(batch)
            delay, self._delay = self._delay, min(self._delay * LATER, LAST_RETRY_SECS)
            await self._clock.sleep(delay)
            batch = self._take_batch()

    def _take_batch(self) -> list[Held]:
        size, pace = 0, self._pace
        batch: list[Held] = []
        # Half of the room at most: what is on its way cannot make room, and the newest must not be what does.
        half = max(1, pace.max_records // 2 // pace.batches)
        for record in islice(self._records, min(pace.batch_records, half)):
            size += size_of(record)
            if batch and size > BATCH_BYTES:
                break
            batch.append(record)
        for _ in batch:
            self._records.popleft()
        return batch

    def _put_back(self, batch: list[Held]) -> None:
        """They are the oldest again, and may be dropped."""
        self._withdraw(batch)
        self._records.extendleft(reversed(batch))

    def _withdraw(self, batch: list[Held]) -> None:
        self._sending = [other for other in self._sending if other is not batch]

    async def _attempt(self, batch: list[Held]) -> Outcome:
        taken = len(batch)
        async with self._preparing:
            prepared = await in_turns(batch, self._prepare)
            if len(prepared) == taken:  # the same is not made again
                self._bytes += sum(map(size_of, prepared)) - sum(map(size_of, batch))
                batch[:] = prepared
        stored, duplicates, rejected = await send_isolating(self._send, prepared)
        return Outcome(stored, duplicates, rejected + taken - len(prepared))

    async def redo(self, change: Prepare) -> None:
        """Put what ``change`` makes of it in the place of every record that waits; one of which it makes
        nothing stays, and is tried again when it is sent."""
        async with self._preparing:
            changed = await in_turns([*chain(*self._sending), *self._records], change)
            done = {record.proxy_query_id: record for record in changed}
            for batch in self._sending:
                batch[:] = [done.get(one.proxy_query_id, one) for one in batch]
            self._records = deque(done.get(one.proxy_query_id, one) for one in self._records)
            self._bytes = sum(map(size_of, chain(*self._sending, self._records)))

    def _acknowledge(self, batch: list[Held], outcome: Outcome) -> None:
        self._withdraw(batch)
        self._bytes -= sum(map(size_of, batch))
        self._dropping = False
        self.stored += outcome.stored + outcome.duplicates
        self._stored_count.inc(outcome.stored + outcome.duplicates)
        self.rejected += outcome.rejected
        self._rejected_count.inc(outcome.rejected)
        self._tell_flushes()
        self._waiting_gauge.set(self.waiting)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
