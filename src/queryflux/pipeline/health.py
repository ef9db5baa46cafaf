"""Whether members can be reached: a probe every 30 s, and a member found unreachable is down at once.

A member that is down is probed sooner, first after a second, then less and less often, so that a restart
of an engine costs its clients seconds and not half a minute. Intervals are a little shorter by chance:
members that came with one configuration would else be probed all at once, for ever.
"""

import asyncio
import logging
from dataclasses import dataclass
from random import Random

from queryflux.admission.slots import Admission
from queryflux.model.errors import QueryFluxError
from queryflux.pipeline.generation import Cluster
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Gauge, Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

PROBE_INTERVAL_SECS = 30.0
PROBE_TIMEOUT_SECS = 10.0
FIRST_RETRY_SECS = 1.0
SHORTEST = 0.7
"""The part of an interval that is waited at least."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster that is probed, and how to have it probed at once."""

    cluster: Cluster
    lost: asyncio.Event
    probe: asyncio.Task[None]


class Health:
    """Watches the clusters of the generation in use."""

    def __init__(
        self,
        admission: Admission,
        clock: Clock,
        metrics: Metrics,
        tasks: TaskGroup,
        chance: Random | None = None,
    ) -> None:
        self._admission = admission
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._chance = chance or Random()
        self._watched: dict[str, Watched] = {}
        self._resting = False

    def rest(self) -> None:
        """Probe nothing: this process sends no queries to any cluster. For before the first is watched."""
        self._resting = True

    def watch(self, cluster: Cluster) -> None:
        """Begin to probe a cluster, in place of another of its name."""
        if self._resting:
            return
        name = cluster.member.name
        lost = asyncio.Event()
        self._up(cluster).set(1)
        probe = self._tasks.spawn(f"probe {name}", self._probe(cluster, lost))
        self._watched[name] = Watched(cluster, lost, probe)

    def forget(self, cluster: Cluster) -> None:
        """Probe a cluster no more: what befalls it from now on says nothing about its member."""
        name = cluster.member.name
        watched = self._watched.get(name)
        if watched is not None and watched.cluster is cluster:
            del self._watched[name]
            watched.probe.cancel()
            self._metrics.forget("queryflux_cluster_up", cluster_name=name)

    def _up(self, cluster: Cluster) -> Gauge:
        return self._metrics.gauge("queryflux_cluster_up", cluster_name=cluster.member.name)

    def lost(self, cluster: Cluster, error: QueryFluxError) -> None:
        """A query could not reach it."""
        watched = self._watched.get(cluster.member.name)
        if watched is None or watched.cluster is not cluster:
            return
        if not cluster.member.down:
            log.warning("cluster %s is down: %s", cluster.member.name, error.message)
        self._admission.mark_down(cluster.member, error.message)
        self._up(cluster).set(0)
        watched.lost.set()

    async def _probe(self, cluster: Cluster, lost: asyncio.Event) -> None:
        retry = FIRST_RETRY_SECS
        while True:
            await self._probe_once(cluster)
            if cluster.member.down:
                await self._clock.sleep(self._about(retry))
                retry = min(retry * 2, PROBE_INTERVAL_SECS)
            else:
                retry = FIRST_RETRY_SECS
                await self._rest(lost)

    def _about(self, seconds: float) -> float:
        return seconds * self._chance.uniform(SHORTEST, 1)

    async def _rest(self, lost: asyncio.Event) -> None:
        """Until the next probe is due, or somebody finds the member unreachable."""
        lost.clear()
        timer = self._clock.call_later(self._about(PROBE_INTERVAL_SECS), lost.set)
        try:
            await lost.wait()
        finally:
            timer.cancel()

    async def _probe_once(self, cluster: Cluster) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECS):
                await cluster.engine.probe()
        except QueryFluxError as error:
            self.lost(cluster, error)
        except TimeoutError:
            self.lost(cluster, QueryFluxError(f"no answer to a probe within {PROBE_TIMEOUT_SECS:g} s"))
        except Exception as error:
            log.exception("the probe of cluster %s failed", cluster.member.name)
            self.lost(cluster, QueryFluxError(f"the probe failed: {error}"))
        else:
            if cluster.member.down:
                log.info("cluster %s is up again", cluster.member.name)
            self._admission.mark_up(cluster.member)
            self._up(cluster).set(1)
