"""What the database has not been told yet of our queries, and whether it answers at all.

Once a call has failed the database is away, until one has succeeded; a long listing that fails, or a pool
without a free connection, proves nothing yet. That is tried for every RETRY_SECS, and what is owed goes
first: rows of queries that have ended, then those that begin or have come further. While nothing is owed the
database is asked for a sign of life now and then: what it does not say counts as well, and is believed only
if it has answered for a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Protocol, TypeVar

from queryflux.admission.claims import ClaimStore
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_SECS = 1.0
"""Longest pause between two attempts while something is owed."""
LOOK_SECS = 2.0
"""Longest time without a sign of life."""
STEADY_SECS = 5.0
"""So long after a call of ours has failed others may owe something too."""
GIVEN_UP_SECS = 10.0
"""So long after it is back the database may still carry out a statement that we gave up."""
BUSY_SECS = 10.0
"""So long nobody is answered before a pool without a free connection means that the database is away."""
TOGETHER = 4
"""So many rows are written at once."""


class Untold(Protocol):
    """A query whose row does not say where it stands, or that has none."""

    id: str
    doubtful: bool

    async def tell_again(self) -> None:
        """Write it; comes back by itself when that fails."""


class Arrears:
    """Those of one process."""

    def __init__(self, store: ClaimStore, clock: Clock, metrics: Metrics, chance: Random | None) -> None:
        self.away = False
        """The last call failed."""
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._chance = chance or Random()
        self._untold: dict[str, Untold] = {}
        self._unended: dict[str, float | None] = {}
        """Until when their rows are deleted again; None: for GIVEN_UP_SECS from the first answer on."""
        self._answered_at = self._failed_at = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._untold or self._unended)

    @property
    def unended(self) -> list[str]:
        """Queries that have ended, and may have rows."""
        return list(self._unended)

    @property
    def unsteady(self) -> bool:
        """The database did not answer us a moment ago: it may not know of every query yet."""
        return self._clock.monotonic() - self._failed_at < STEADY_SECS

    def answered(self) -> None:
        """A call has succeeded."""
        self._answered_at = self._clock.monotonic()
        if self.away:
            self.away = False
            log.info("the database answers again, and other processes are told of our queries")

    def count(self, operation: str) -> None:
        """A call has failed; that alone does not say that the database is away."""
        self._metrics.counter("queryflux_coordination_failures_total", operation=operation).inc()

    def failed(self, operation: str, error: StoreUnavailable) -> None:
        """Count a call that the database did not answer; the first of several is told. ``busy`` errors, of
        calls that did not get as far as the database, say so only once nobody was answered for BUSY_SECS."""
        self.count(operation)
        now = self._clock.monotonic()
        if error.busy and now - self._answered_at < BUSY_SECS:
            return
        self._failed_at = now
        if not self.away:
            self.away = True
            log.warning("other processes are not told of our queries: %s", error.message)

    async def asked(self, operation: str, asking: Awaitable[T]) -> T:
        """The answer to a call, which is noted. Raises StoreUnavailable."""
        try:
            answer = await asking
        except StoreUnavailable as error:
            self.failed(operation, error)
            raise
        self.answered()
        return answer

    # What is owed.

    def tell_later(self, query: Untold) -> None:
        """As soon as the database answers."""
        self._untold[query.id] = query

    def end_later(self, query: Untold) -> None:
        """As soon as the database answers."""
        self._unended[query.id] = None if query.doubtful else 0.0

    def forget(self, query: Untold) -> None:
        """There is nothing more to tell of it."""
        self._untold.pop(query.id, None)

    async def pay(self) -> None:
        """Tell all of it, as far as that is possible. Raises StoreUnavailable."""
        if self._unended:
            await self._end()
        queries = list(self._untold.values())
        for at in range(0, len(queries), TOGETHER):
            some = queries[at : at + TOGETHER]
            for query in some:
                self.forget(query)
            await asyncio.gather(*(query.tell_again() for query in some))
            if all(query.id in self._untold for query in some):
                return  # they came back by themselves, behind the others

    async def _end(self) -> None:
        ended = list(self._unended)
        await self._store.end(ended)
        self.answered()
        now = self._clock.monotonic()
        for query_id in ended:
            until = self._unended.get(query_id, 0.0)
            if until is None:
                self._unended[query_id] = now + GIVEN_UP_SECS
            elif until <= now:
                self._unended.pop(query_id, None)

    # Now and then.

    async def keep_looking(self, refresh: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """For as long as the process lives; ``refresh`` also pays."""
        while True:
            owing = self.away or self
            await self._clock.sleep((RETRY_SECS if owing else LOOK_SECS) * self._chance.uniform(0.75, 1))
            if self.away or self:
                await self.tried("refresh", refresh())
            elif self._clock.monotonic() - self._answered_at >= LOOK_SECS / 2:
                await self.tried("look", self._look())

    async def _look(self) -> None:
        await self._store.refresh({})
        self.answered()

    async def tried(self, operation: str, work: Awaitable[None]) -> None:
        """Do it, and note when the database does not answer."""
        try:
            await work
        except StoreUnavailable as error:
            self.failed(operation, error)
        except Exception:
            log.exception("telling of queries failed inside QueryFlux; trying again")
