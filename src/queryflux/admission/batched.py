"""Releases off the path of queries.

A release is queued and its query goes on; what has queued up goes to the store as one call, again and again
until it is through. An acquire takes the queued releases of its own cluster along, so a place that was just
given back is taken by whoever waits next without a call in between. A release lingers for a moment before it
goes without one, so that a client that asks one query after another costs one call for each. While an acquire
of its cluster is under way it lingers for longer: in the store it would wait for that anyway, and the next
one may take it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from queryflux.admission.port import CapacityStore, Lease, Wanted
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

MOST_QUEUED = 100_000
"""With so many releases queued, further ones are waited for."""
MOST_PER_CALL = 5_000
LINGER_SECS = 0.001
"""So long at least, and no longer than twice that, a release waits for an acquire that takes it along."""
FIRST_RETRY_SECS = 0.05
LAST_RETRY_SECS = 0.5
INLINE_SECS = 5.0
"""How long a release that goes by itself may take."""
HOLD_BACK_SECS = 0.05
"""How long an acquire under way keeps a release of its cluster from being sent by itself."""

Confirmed = Callable[[Collection[Lease]], None]


class Queue:
    """Releases in order of arrival, found by cluster and by query id."""

    def __init__(self) -> None:
        self._all: set[Lease] = set()
        self._of_cluster: dict[str, dict[Lease, float]] = {}
        """And when each came."""
        self._of_query: dict[str, set[Lease]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._all

    def add(self, leases: Collection[Lease], now: float) -> None:
        """At the end; those that are in it stay where they are."""
        for lease in leases:
            self._all.add(lease)
            self._of_cluster.setdefault(lease.cluster, {}).setdefault(lease, now)
            self._of_query.setdefault(lease.query_id, set()).add(lease)

    def take(self, leases: Iterable[Lease], most: int) -> list[Lease]:
        """Take the first ``most`` of ``leases``, which are in it, out."""
        taken = list(islice(leases, most))
        for lease in taken:
            self._all.remove(lease)
            of_cluster, of_query = self._of_cluster[lease.cluster], self._of_query[lease.query_id]
            del of_cluster[lease]
            of_query.remove(lease)
            if not of_cluster:
                del self._of_cluster[lease.cluster]
            if not of_query:
                del self._of_query[lease.query_id]
        return taken

    def all(self) -> Iterable[Lease]:
        """Every one."""
        return self._all

    def by(self, then: float, busy: Collection[str], long_ago: float) -> Iterator[Lease]:
        """Those that had come ``then``; of ``busy`` clusters those that had come ``long_ago``. The cluster
        that has waited longest is the first; no more are looked at than these and one of each cluster."""
        for cluster, leases in sorted(self._of_cluster.items(), key=lambda one: _first_came(one[1])):
            last = long_ago if cluster in busy else then
            for lease, came in leases.items():
                if came > last:
                    break
                yield lease

    def held_since(self, busy: Collection[str]) -> float | None:
        """When the first of ``busy`` clusters came; None when there are others."""
        if not self._of_cluster or any(cluster not in busy for cluster in self._of_cluster):
            return None
        return min(map(_first_came, self._of_cluster.values()))

    def of_cluster(self, cluster: str) -> Collection[Lease]:
        """Those of a cluster."""
        return self._of_cluster.get(cluster, {})

    def of_query(self, query_id: str) -> Collection[Lease]:
        """Those of a query."""
        return self._of_query.get(query_id, ())


def _first_came(leases: Mapping[Lease, float]) -> float:
    return next(iter(leases.values()))


class Nap:
    """A sleep of one task that others may shorten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = 0.0
        self.until = 0.0
        """When the last one ends, or has ended."""
        self._timer: Timer | None = None
        self._ended: asyncio.Future[None] | None = None

    async def take(self, seconds: float) -> float:
        """Sleep; when it was that how long was last said."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            self._end_in(seconds, self._clock.monotonic())
            await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._ended = None
        return self._set

    def shorten(self, seconds: float) -> None:
        """Who sleeps does so no longer than this from now."""
        if self._timer is not None and (now := self._clock.monotonic()) + seconds < self.until:
            self._timer.cancel()
            self._end_in(seconds, now)

    def _end_in(self, seconds: float, now: float) -> None:
        self._set, self.until = now, now + seconds
        self._timer = self._clock.call_later(seconds, self._end)

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class BatchedReleaseStore:
    """A CapacityStore in front of another: releases return before they are done.

    ``on_confirmed`` is told of every release that the store has answered for, ``on_given_up`` of those that
    are not sent again: nobody renews these leases, and they run out. ``on_failed`` is told why one failed.
    """

    def __init__(
        self,
        store: CapacityStore,
        clock: Clock,
        tasks: TaskGroup,
        metrics: Metrics,
        *,
        most_queued: int = MOST_QUEUED,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._most = most_queued
        self._queued = Queue()
        self._flying: dict[str, set[asyncio.Future[None]]] = {}
        """Query ids whose releases are on their way: on several clusters there may be several at a time."""
        self._acquiring: Counter[str] = Counter()
        """Acquires under way, by cluster."""
        self._sender: asyncio.Task[None] | None = None
        self._nap = Nap(clock)
        self._over = False
        self._failures = metrics.counter("queryflux_coordination_failures_total", operation="release")
        self._length = metrics.gauge("queryflux_capacity_releases_queued")
        self.on_confirmed: Confirmed = lambda leases: None
        self.on_given_up: Confirmed = lambda leases: None
        self.on_failed: Callable[[str], object] = lambda reason: None

    @property
    def instance(self) -> str:
        return self._store.instance

    @property
    def queued(self) -> int:
        """Releases that are not on their way yet."""
        return len(self._queued)

    @property
    def full(self) -> bool:
        """Whether the next release goes by itself, and is waited for."""
        return len(self._queued) >= self._most

    @property
    def under_way(self) -> set[asyncio.Future[None]]:
        """Releases that the store is at, in calls."""
        return set[asyncio.Future[None]]().union(*self._flying.values())

    # Releases.

    def release(self, lease: Lease) -> "asyncio.Task[None] | None":
        """Queue a release. With ``most_queued`` before it, it goes by itself: the task to wait for."""
        if self.full and lease not in self._queued:
            return self._tasks.spawn(f"release {lease.query_id}", self._inline(lease))
        self._enqueue((lease,))
        return None

    async def release_many(self, leases: Sequence[Lease]) -> None:
        """Queue releases; waits only for those that find the queue full."""
        inline = [task for lease in leases if (task := self.release(lease)) is not None]
        if inline:
            await asyncio.wait(inline)

    async def _inline(self, lease: Lease) -> None:
        """Once, and not for long: its query waits."""
        sending = asyncio.ensure_future(self._send((lease,)))
        timer = self._clock.call_later(INLINE_SECS, sending.cancel)
        try:
            await asyncio.wait({sending})
        finally:
            timer.cancel()
            sending.cancel()
        try:
            await sending
        except (StoreUnavailable, asyncio.CancelledError) as error:
            why = error.message if isinstance(error, StoreUnavailable) else f"no answer in {INLINE_SECS:g} s"
            log.warning("the lease of query %s is left to run out: %s", lease.query_id, why)
            self.on_given_up((lease,))

    def _enqueue(self, leases: Collection[Lease]) -> None:
        now = self._clock.monotonic()
        self._queued.add(leases, now)
        self._length.set(len(self._queued))
        if self._queued and not self._over and (self._sender is None or self._sender.done()):
            self._sender = self._tasks.spawn("releases", self._send_all())
        elif self._nap.until > now + LINGER_SECS and any(it.cluster not in self._acquiring for it in leases):
            self._nap.shorten(LINGER_SECS)

    def _dequeue(self, leases: Iterable[Lease], most: int = MOST_PER_CALL) -> list[Lease]:
        taken = self._queued.take(leases, most)
        self._length.set(len(self._queued))
        return taken

    async def _send_all(self) -> None:
        retry = FIRST_RETRY_SECS
        while batch := await self._lingered():
            try:
                await self._send(batch)
            except StoreUnavailable as error:
                self._enqueue(batch)
                if retry == FIRST_RETRY_SECS:
                    log.warning("releases wait for the capacity store: %s", error.message)
                await self._clock.sleep(retry)
                retry = min(retry * 2, LAST_RETRY_SECS)
            else:
                retry = FIRST_RETRY_SECS

    async def _lingered(self) -> list[Lease]:
        """The next releases that no acquire has taken along in time; none when nothing is queued any more.
        While all of them are held back it sleeps until the first has been for long enough, or one is no
        more."""
        while self._queued and not self._over:
            then = await self._nap.take(self._until_due())
            long_ago = self._clock.monotonic() - HOLD_BACK_SECS
            due = self._queued.by(then, self._acquiring, long_ago)
            if not self._over and (batch := self._dequeue(due)):
                return batch
        return []

    def _until_due(self) -> float:
        held_since = self._queued.held_since(self._acquiring)
        if held_since is None:
            return LINGER_SECS
        return max(LINGER_SECS, held_since + HOLD_BACK_SECS - self._clock.monotonic())

    async def _send(self, leases: Collection[Lease]) -> None:
        """One call; raises StoreUnavailable."""
        flight = self._take_off(leases)
        try:
            await self._store.release_many(list(leases))
        except StoreUnavailable as error:
            self._failures.inc()
            self.on_failed(error.message)
            raise
        finally:
            self._land(leases, flight)
        self.on_confirmed(leases)

    def _take_off(self, leases: Collection[Lease]) -> "asyncio.Future[None]":
        flight: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for lease in leases:
            self._flying.setdefault(lease.query_id, set()).add(flight)
        return flight

    def _land(self, leases: Collection[Lease], flight: "asyncio.Future[None]") -> None:
        for lease in leases:
            flights = self._flying.get(lease.query_id, set())
            flights.discard(flight)
            if not flights:
                self._flying.pop(lease.query_id, None)
        flight.set_result(None)

    # Acquires.

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        """As CapacityStore; a queued release of the same id goes first."""
        if self._queued or self._flying:
            await self._release_first(cluster, (query_id,))
        if self._queued.of_cluster(cluster):  # looked at last: one that was on its way may be back
            return (await self.try_acquire_many(cluster, [Wanted(query_id, limit)]))[0]
        with self._acquires(cluster):
            return await self._store.try_acquire(cluster, query_id, limit)

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        """As CapacityStore; the queued releases of ``cluster`` go with it, those of the same ids first."""
        if self._queued or self._flying:
            await self._release_first(cluster, [query_id for query_id, _ in wanted])
        carried = self._dequeue(self._queued.of_cluster(cluster))
        flight = self._take_off(carried)
        try:
            with self._acquires(cluster):
                answers = await self._store.try_acquire_many(
                    cluster, wanted, [*released, *(lease.query_id for lease in carried)]
                )
        except BaseException:
            self._enqueue(carried)
            raise
        finally:
            self._land(carried, flight)
        if carried:
            self.on_confirmed(carried)
        return answers

    @contextmanager
    def _acquires(self, cluster: str) -> Iterator[None]:
        self._acquiring[cluster] += 1
        try:
            yield
        finally:
            self._acquiring[cluster] -= 1
            if not self._acquiring[cluster]:
                del self._acquiring[cluster]
                if self._queued.of_cluster(cluster):
                    self._nap.shorten(LINGER_SECS)

    async def _release_first(self, cluster: str, query_ids: Collection[str]) -> None:
        """Until no release of these ids is under way but what the acquire itself takes along. Raises
        StoreUnavailable when one of them fails."""
        while True:
            while flights := set[asyncio.Future[None]]().union(
                *(self._flying.get(query_id, ()) for query_id in query_ids)
            ):
                await asyncio.wait(flights)
            earlier = [
                lease
                for query_id in query_ids
                for lease in self._queued.of_query(query_id)
                if lease.cluster != cluster
            ]
            if not earlier:
                return
            self._dequeue(earlier, len(earlier))
            try:
                await self._send(earlier)
            except StoreUnavailable:
                self._enqueue(earlier)
                raise

    # What passes through.

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """As CapacityStore."""
        return await self._store.renew(leases)

    def stop(self) -> None:
        """Begin no further release: everything goes back at once soon."""
        self._over = True

    async def release_all(self) -> int:
        """Give back every lease of this instance, and with them whatever is still queued: for the end. What
        comes back from a call after that is sent no more."""
        self.stop()
        if self._sender is not None:
            self._sender.cancel()
        count = await self._store.release_all()
        self.on_confirmed(self._dequeue(self._queued.all(), len(self._queued)))
        return count

    async def counts(self) -> Mapping[str, int]:
        """As CapacityStore."""
        return await self._store.counts()

    async def publish_running(self, cluster: str, running: int) -> None:
        """As CapacityStore."""
        await self._store.publish_running(cluster, running)

    async def running(self) -> Mapping[str, int]:
        """As CapacityStore."""
        return await self._store.running()
