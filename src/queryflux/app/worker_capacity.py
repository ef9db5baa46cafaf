"""A worker's limits: those of the fleet, through the control plane, or its own."""

import logging
from collections.abc import Callable, Mapping

from queryflux.admission.leased import LeasedAdmission
from queryflux.app.capacity import engine_counts, leases_in
from queryflux.config.clusters import ClusterConfig
from queryflux.config.fleet import CoordinationConfig
from queryflux.fleet.registry import Coordination, Limits
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.pipeline.reconcile import Reconcile
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.worker.coordination import RemoteCoordinationStore
from queryflux.worker.port import ControlPlane

log = logging.getLogger(__name__)


class WorkerCapacity:
    """What ``queryflux.coordination`` asks for. ``admission`` is None where this worker's limits are its
    own."""

    def __init__(
        self,
        settings: CoordinationConfig,
        control_plane: ControlPlane,
        instance: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self.admission: LeasedAdmission | None = None
        self._reconcile: Reconcile | None = None
        self._started = False
        if settings.mode == "controlPlane":
            self._store = RemoteCoordinationStore(
                control_plane, instance, clock, acquire_secs=settings.acquire_timeout_secs
            )
            own_limits = settings.on_unavailable == "localLimits"
            self._leases = leases_in(self._store, settings, clock, metrics, own_limits=own_limits)
            self.admission = LeasedAdmission(clock, self._leases)

    def start(self, pipeline: QueryPipeline, configured: Callable[[], Mapping[str, ClusterConfig]]) -> None:
        """Begin to renew leases, and to count what engines run when it is this worker's turn."""
        if self.admission is None:
            log.warning(
                "coordination.mode is local: maxRunningQueries holds for this worker, not for the fleet"
            )
            return
        if self._leases.own_limits:
            log.warning(
                "while no control plane grants capacity, limits hold for this worker, not for the fleet"
            )
        self._started = True
        self._leases.start()
        self._reconcile = engine_counts(
            self._store, self._store, pipeline, configured, self._clock, self._metrics
        )
        self._reconcile.start()

    def report(self, slots_held: int) -> Coordination:
        """How it is, for operators."""
        settings = self._settings
        if self.admission is None:
            return Coordination(
                mode=settings.mode,
                on_unavailable=settings.on_unavailable,
                state=Limits.LOCAL.value,
                slots_held=slots_held,
            )
        leases = self._leases
        state = Limits.UNAVAILABLE if leases.standing.unavailable else Limits.FLEET
        return Coordination(
            mode=settings.mode,
            on_unavailable=settings.on_unavailable,
            state=(Limits.LOCAL if leases.alone else state).value,
            slots_held=slots_held,
            leases_held=leases.held,
            leases_lost=leases.lost,
        )

    async def stop(self) -> None:
        """Before engines close: count no more."""
        if self._reconcile is not None:
            await self._reconcile.close()

    async def close(self) -> None:
        """Give back everything of ours. For when no query is left."""
        if self._started:
            await self._leases.leave()
