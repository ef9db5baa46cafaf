"""Whether members can be reached: a probe every 30 s, and a member found unreachable is down at once.

A member that is down is probed sooner, first after a second, then less and less often, so that a restart
of an engine costs its clients seconds and not half a minute.
"""

import asyncio
import logging

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


class Health:
    """Watches the members of one generation."""

    def __init__(self, admission: Admission, clock: Clock, metrics: Metrics, tasks: TaskGroup) -> None:
        self._admission = admission
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._lost: dict[str, asyncio.Event] = {}

    def watch(self, cluster: Cluster) -> None:
        """Begin to probe a cluster."""
        self._lost[cluster.member.name] = asyncio.Event()
        self._up(cluster).set(1)
        self._tasks.spawn(f"probe {cluster.member.name}", self._probe(cluster))

    def _up(self, cluster: Cluster) -> Gauge:
        return self._metrics.gauge("queryflux_cluster_up", cluster_name=cluster.member.name)

    def lost(self, cluster: Cluster, error: QueryFluxError) -> None:
        """A query could not reach it."""
        if not cluster.member.down:
            log.warning("cluster %s is down: %s", cluster.member.name, error.message)
        self._admission.mark_down(cluster.member, error.message)
        self._up(cluster).set(0)
        if (event := self._lost.get(cluster.member.name)) is not None:
            event.set()

    async def _probe(self, cluster: Cluster) -> None:
        retry = FIRST_RETRY_SECS
        while True:
            await self._probe_once(cluster)
            if cluster.member.down:
                await self._clock.sleep(retry)
                retry = min(retry * 2, PROBE_INTERVAL_SECS)
            else:
                retry = FIRST_RETRY_SECS
                await self._rest(cluster)

    async def _rest(self, cluster: Cluster) -> None:
        """Until the next probe is due, or somebody finds the member unreachable."""
        event = self._lost[cluster.member.name]
        event.clear()
        timer = self._clock.call_later(PROBE_INTERVAL_SECS, event.set)
        try:
            await event.wait()
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
