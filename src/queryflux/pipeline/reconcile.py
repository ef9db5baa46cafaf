"""What engines themselves say they run, beside what we have leased on them.

One process at a time asks every engine and publishes the counts; all read them. An engine may run more than
we sent there, since others use it too. The counts are shown and never part of admission.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from queryflux.admission.port import CapacityStore, SweepCoordinator, sweeping
from queryflux.model.errors import QueryFluxError, StoreUnavailable
from queryflux.pipeline.generation import Cluster, Generation, held
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

LOCK = "engine-reconcile"
INTERVAL_SECS = 30.0
ASK_SECS = 10.0
_REST = 0.9
"""Of the interval: nobody asks again before that, whatever the phases of the processes."""
_GAUGES = ("queryflux_cluster_leases", "queryflux_engine_running_queries")


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """By cluster: leases out in the whole fleet, and queries that the engine says it runs."""

    leases: Mapping[str, int] = field(default_factory=dict)
    engine: Mapping[str, int] = field(default_factory=dict)


class Reconcile:
    """Every INTERVAL_SECS. ``counts`` is what was read last."""

    def __init__(
        self,
        store: CapacityStore,
        coordinator: SweepCoordinator,
        generation: Callable[[], Generation | None],
        question: Callable[[str], str | None],
        clock: Clock,
        metrics: Metrics,
        *,
        chance: Random | None = None,
    ) -> None:
        """``question`` gives the operator's own SQL for a cluster, if there is one."""
        self.counts = FleetCounts()
        self._store = store
        self._coordinator = coordinator
        self._generation = generation
        self._question = question
        self._clock = clock
        self._metrics = metrics
        self._chance = chance or Random()
        self._tasks = TaskGroup("reconcile")
        self._failures = metrics.counter("queryflux_coordination_failures_total", operation="reconcile")
        self._shown: set[str] = set()
        self._silent: set[str] = set()

    def start(self) -> None:
        """Begin."""
        self._tasks.spawn("counts", self._run())

    async def close(self) -> None:
        """Ask no more."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.once()
            except StoreUnavailable as error:
                self._failures.inc()
                log.warning("could not count the queries that engines run: %s", error.message)
            except Exception:
                self._failures.inc()
                log.exception("counting running queries failed inside QueryFlux; trying again when it is due")
            await self._clock.sleep(INTERVAL_SECS * self._chance.uniform(0.95, 1))

    async def once(self) -> bool:
        """Ask and publish if it is our turn, and read what was published; whether it was. Raises
        StoreUnavailable."""
        async with sweeping(self._coordinator, LOCK, INTERVAL_SECS * _REST) as ours:
            if ours:
                await self._publish()
        self.counts = FleetCounts(await self._store.counts(), await self._store.running())
        self._show()
        return ours

    async def _publish(self) -> None:
        generation = self._generation()
        clusters = list(generation.clusters.values()) if generation is not None else []
        asked = [cluster for cluster in clusters if cluster.member.usable]
        counts = await asyncio.gather(*(self._ask(cluster) for cluster in asked))
        for cluster, count in zip(asked, counts, strict=True):
            if count is not None:
                await self._store.publish_running(cluster.member.name, count)

    async def _ask(self, cluster: Cluster) -> int | None:
        """What one engine says; None when it says nothing, which is told once."""
        name = cluster.member.name
        try:
            async with asyncio.timeout(ASK_SECS):
                with held(cluster):
                    count = await cluster.engine.count_running(self._question(name))
        except (QueryFluxError, TimeoutError) as error:
            if name not in self._silent:
                self._silent.add(name)
                log.warning(
                    "could not count the queries that cluster %s runs: %s", name, error or "no answer in time"
                )
            return None
        self._silent.discard(name)
        return count

    def _show(self) -> None:
        generation = self._generation()
        names = set(generation.clusters) if generation is not None else set()
        for name in self._shown - names:
            for gauge in _GAUGES:
                self._metrics.forget(gauge, cluster_name=name)
        self._shown = names
        for gauge, counts in zip(_GAUGES, (self.counts.leases, self.counts.engine), strict=True):
            for name in names:
                self._metrics.gauge(gauge, cluster_name=name).set(counts.get(name, 0))
