"""One cap for all processes: leases beside the slots of this process, where limits are shared."""

from collections.abc import Callable, Mapping

from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.port import CapacityStore, SweepCoordinator
from queryflux.admission.sweep import LeaseSweep
from queryflux.app.stores import Shared
from queryflux.config.clusters import ClusterConfig
from queryflux.config.fleet import CoordinationConfig
from queryflux.config.process import ProcessConfig
from queryflux.controlplane.capacity_calls import CapacityCalls
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.pipeline.reconcile import LOCK, Reconcile
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics


class SharedCapacity:
    """The leases of this process, and its part in sweeping everybody's."""

    def __init__(self, shared: Shared, process: ProcessConfig, clock: Clock, metrics: Metrics) -> None:
        settings = process.coordination or CoordinationConfig()
        self.store = shared.leases
        self.leases = leases_in(shared.leases, settings, clock, metrics)
        self.admission = LeasedAdmission(clock, self.leases)
        self._sweep = LeaseSweep(
            shared.sweeps,
            shared.upkeep,
            clock,
            metrics,
            interval_secs=settings.sweep_interval_secs,
            expiry_secs=settings.lease_expiry_secs,
        )
        self._started = False

    def start(self) -> None:
        """Begin to renew and to sweep."""
        self._started = True
        self.leases.start()
        self.leases.tasks.spawn("sweep", self._sweep.run())

    async def close(self) -> None:
        """Give back everything of ours. For when no query is left; may be called twice."""
        if self._started:
            self._started = False
            await self.leases.leave()


def leases_in(
    store: CapacityStore,
    settings: CoordinationConfig,
    clock: Clock,
    metrics: Metrics,
    *,
    own_limits: bool = False,
) -> Leases:
    """The leases of this process in a store. ``own_limits``: see Leases."""
    return Leases(
        store,
        clock,
        metrics,
        renew_secs=settings.lease_renew_secs,
        acquire_secs=settings.acquire_timeout_secs,
        own_limits=own_limits,
    )


def engine_counts(
    store: CapacityStore,
    sweeps: SweepCoordinator,
    pipeline: QueryPipeline,
    configured: Callable[[], Mapping[str, ClusterConfig]],
    clock: Clock,
    metrics: Metrics,
) -> Reconcile:
    """What engines say they run, and what is leased on them. ``configured`` gives the clusters in use."""

    def question(cluster: str) -> str | None:
        config = configured().get(cluster)
        return config.reconcile_query if config is not None else None

    return Reconcile(store, sweeps, lambda: pipeline.active, question, clock, metrics)


def capacity_calls(shared: Shared, own: str) -> CapacityCalls:
    """The leases of workers, where those of this process are, whose instance id is ``own``. To count what
    engines run is the one sweep that any worker may do."""
    return CapacityCalls(shared.leases_of, shared.sweeps, {LOCK}, own=own)
