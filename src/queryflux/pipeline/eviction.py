"""Queries of processes that have gone, ended by one process of those that are left.

A client that still asks gets its query from whoever it asks (pipeline/takeover.py). What nobody asks for is
ended: one that runs is cancelled at its engine, as far as that knows it, and recorded as cancelled; one that
waited is recorded as failed.

After an outage of the database every claim is stale for a moment, since nobody could refresh. So what is
found is left alone for one more refresh, which an owner that lives makes as soon as it can.
"""

import logging
from collections.abc import Sequence
from random import Random

from queryflux.admission.claims import REFRESH_SECS, STALE_SECS, ClaimStore
from queryflux.admission.port import SweepCoordinator, sweeping
from queryflux.auth.known import known_user
from queryflux.model.endings import EndReason
from queryflux.model.errors import QueryCancelled, QueryFluxError, StoreUnavailable, Unavailable
from queryflux.model.shared import SharedRow
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.pipeline.takeover import end_orphan
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics

log = logging.getLogger(__name__)

ZOMBIES, WAITERS = "zombie-eviction", "stale-queued-eviction"
WAITERS_PATIENCE = 5
"""So many times longer a query that waits is left to its client: five minutes, as in a process that lives."""
_REST = 0.9
"""Of the interval: nobody sweeps again before that, whatever the phases of the processes."""


class Eviction:
    """Every ``interval_secs``, if it is this process's turn."""

    def __init__(
        self,
        store: ClaimStore,
        coordinator: SweepCoordinator,
        pipeline: QueryPipeline,
        clock: Clock,
        metrics: Metrics,
        *,
        interval_secs: float = 120,
        stale_secs: float = STALE_SECS,
        refresh_secs: float = REFRESH_SECS,
        chance: Random | None = None,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._pipeline = pipeline
        self._clock = clock
        self._interval = interval_secs
        self._patience = refresh_secs
        self._idle = {ZOMBIES: stale_secs, WAITERS: stale_secs * WAITERS_PATIENCE}
        self._chance = chance or Random()
        self._failures = metrics.counter("queryflux_coordination_failures_total", operation="evict")

    async def run(self) -> None:
        """For as long as the process lives."""
        while True:
            await self._clock.sleep(self._interval * self._chance.uniform(0.95, 1))
            for sweep in (ZOMBIES, WAITERS):
                try:
                    await self.once(sweep)
                except StoreUnavailable as error:
                    self._failures.inc()
                    log.warning("%s: not done this time: %s", sweep, error.message)
                except Exception:
                    self._failures.inc()
                    log.exception("%s failed inside QueryFlux; trying again when it is due", sweep)

    async def once(self, sweep: str) -> int:
        """One of the two sweeps; how many queries it ended. Raises StoreUnavailable."""
        async with sweeping(self._coordinator, sweep, self._interval * _REST) as ours:
            if not ours:
                return 0
            rows = await self._store.stale(executing=sweep == ZOMBIES, idle_secs=self._idle[sweep])
            if rows:
                await self._clock.sleep(self._patience)
            return await self._end(rows)

    async def _end(self, rows: Sequence[SharedRow]) -> int:
        ended = 0
        for row in rows:
            taken = await self._store.claim(row, alive=False)
            if taken is None:
                continue  # its client has asked meanwhile, or its owner is back
            query_id, owner = row.query.id, row.owner or "nobody"
            log.warning("ending query %s of process %s, which has gone", query_id, owner)
            identity = known_user(row.query.user)
            try:
                await end_orphan(self._pipeline, identity, taken, *ending(taken, owner))
            except QueryFluxError as error:
                log.warning("query %s could not be ended in good order: %s", query_id, error.message)
            await self._store.end([query_id])
            ended += 1
        return ended


def ending(row: SharedRow, owner: str) -> tuple[EndReason, QueryFluxError]:
    """What its record says."""
    if row.executing:
        return EndReason.CANCELLED, QueryCancelled(f"process {owner}, which ran the query, has gone")
    why = f"process {owner}, where the query waited, has gone, and its client has not asked again"
    return EndReason.FAILED, Unavailable(why)
