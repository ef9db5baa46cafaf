"""The lease sweep: on one process of the fleet, leases that nobody renews end and counters are compared."""

import logging
from random import Random

from queryflux.admission.port import SWEEP_LOCK_SECS, CapacityUpkeep, SweepCoordinator, sweeping
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics

log = logging.getLogger(__name__)

LOCK = "capacity-leases"
REST = 0.9
"""Part of the interval in which nobody sweeps again; less than all of it, so that a timer that fires a little
early does not miss its turn."""


class LeaseSweep:
    """Every ``interval_secs``, if it is this process's turn."""

    def __init__(
        self,
        coordinator: SweepCoordinator,
        upkeep: CapacityUpkeep,
        clock: Clock,
        metrics: Metrics,
        *,
        interval_secs: float = 120,
        expiry_secs: float = 300,
        chance: Random | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._upkeep = upkeep
        self._clock = clock
        self._metrics = metrics
        self._interval = interval_secs
        self._expiry = expiry_secs
        self._chance = chance or Random()
        self._failures = metrics.counter("queryflux_coordination_failures_total", operation="sweep")
        self._expired = metrics.counter("queryflux_capacity_leases_expired_total")

    async def run(self) -> None:
        """For as long as the process lives."""
        while True:
            await self._clock.sleep(self._interval * self._chance.uniform(0.95, 1))
            try:
                await self.once()
            except StoreUnavailable as error:
                self._failures.inc()
                log.warning("leases were not swept: %s", error.message)
            except Exception:
                self._failures.inc()
                log.exception("sweeping leases failed inside QueryFlux; trying again when it is due")

    async def once(self) -> bool:
        """One sweep; False when it was not ours to do. Raises StoreUnavailable."""
        rest = self._interval * REST
        # Whoever dies while it sweeps, or cannot say that it has done, keeps others from one sweep at most.
        async with sweeping(self._coordinator, LOCK, rest, min(rest, SWEEP_LOCK_SECS)) as ours:
            if ours:
                await self._sweep()
        return ours

    async def _sweep(self) -> None:
        if expired := await self._upkeep.expire(self._expiry):
            self._expired.inc(expired)
            log.warning("%d leases were not renewed for %g s and have ended", expired, self._expiry)
        for cluster, was, became in await self._upkeep.settle():
            if was == became:
                log.warning(
                    "the lease counter of cluster %s (%d) is too high; once more to be sure", cluster, was
                )
            else:
                self._metrics.counter(
                    "queryflux_capacity_counters_recounted_total", cluster_name=cluster
                ).inc()
                log.warning("the lease counter of cluster %s was %d and is %d now", cluster, was, became)
