"""A control plane of the simulated fleet: the product's publisher, calls, intake, registry, reload and lease
sweep, put together as app/standalone.py does, over the model of a database.

Like a real one it ends when it cannot read the database at its start; somebody starts it again.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

from starlette.types import Receive, Scope, Send

from queryflux.admission.port import sweeping
from queryflux.admission.sweep import LeaseSweep
from queryflux.app.activation import Activation
from queryflux.app.history import ProcessHistory
from queryflux.app.worker_api import WorkerApi
from queryflux.config.fleet import WorkerApiConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import StoredConfig
from queryflux.controlplane.capacity_calls import CapacityCalls
from queryflux.controlplane.intake import HistoryIntake
from queryflux.controlplane.registry import Current, WorkerRegistry
from queryflux.controlplane.reload import Reloader
from queryflux.history.port import HistoryStore
from queryflux.model.errors import QueryFluxError
from queryflux.model.secret import Secret
from queryflux.pipeline.generation import Generation
from queryflux.pipeline.reconcile import LOCK
from tests.kit.metrics import NoMetrics
from tests.sim.network import Host
from tests.sim.process import EXPIRY_SECS, SWEEP_SECS
from tests.sim.road import Line, Road
from tests.sim.tables import FleetDatabase, ModelConfigStore, ModelHistoryStore, ModelRegistryStore
from tests.sim.world import LoopClock

RELOAD_SECS = 15.0


class ControlPlaneProcess:
    """One that serves workers from its first answer of the database on."""

    def __init__(
        self,
        host: Host,
        line: Line,
        database: FleetDatabase,
        secrets: Sequence[str],
        chance: Random,
        failed: Callable[["ControlPlaneProcess"], object],
    ) -> None:
        """``failed`` is called when it cannot start."""
        self.host = host
        self.line = line
        self.secrets = tuple(secrets)
        self.api: WorkerApi
        self.store: ModelConfigStore
        self.registry: WorkerRegistry
        self._database = database
        self._chance = chance
        self._failed = failed
        self._roads: dict[str, Road] = {}
        self.started = False
        host.spawn(self._start())

    @property
    def position(self) -> tuple[str, int] | None:
        """Where what it serves stands; None before it serves anything."""
        published = self.api.state.published if self.started else None
        return published.position if published is not None else None

    def _road(self, instance: str) -> Road:
        road = self._roads.get(instance)
        if road is None:
            road = self._roads[instance] = Road(self.line, self._database, instance)
        return road

    def _build(self) -> None:
        clock, metrics = LoopClock(self.host), NoMetrics()
        self.store = ModelConfigStore(self.line, self._database)
        config = WorkerApiConfig(secrets=tuple(Secret(secret) for secret in self.secrets))
        self.api = WorkerApi(config, self.store, clock, metrics)
        process = ProcessConfig()
        self._records = ProcessHistory(process, self.host.name, clock, metrics)
        self._activation = Activation(process, Snapshot(), clock, self._activate)
        self.reloader = Reloader(
            self.store,
            self._activation.prepare,
            clock=clock,
            metrics=metrics,
            interval_secs=RELOAD_SECS,
            used=self._used,
        )
        road = self._road(self.host.name)
        self.registry = WorkerRegistry(
            ModelRegistryStore(self.line, self._database),
            lambda name, rest_secs: sweeping(road, name, rest_secs),
            self._current,
            clock,
        )
        self._sweep = LeaseSweep(
            road,
            road,
            clock,
            metrics,
            interval_secs=SWEEP_SECS,
            expiry_secs=EXPIRY_SECS,
            chance=self._chance,
        )
        history = cast(HistoryStore, ModelHistoryStore(self.line, self._database))
        intake = HistoryIntake(lambda: history, self._records.admitted)
        calls = CapacityCalls(self._road, road, {LOCK})
        self.api.endpoints += [*self.registry.endpoints(), *intake.endpoints(), *calls.endpoints()]

    def _activate(self, generation: Generation) -> None:
        self._records.keep_to(generation.redaction)

    def _used(self, stored: StoredConfig, read_at: float) -> None:
        self.api.use(stored, self._activation.compiled.snapshot, read_at)

    def _current(self) -> Current | None:
        there = self.api.state.published
        return Current(there.revision, there.epoch, there.sequence) if there is not None else None

    async def _start(self) -> None:
        try:
            self._build()
            read_at = LoopClock(self.host).monotonic()
            stored = await self.store.seed(Snapshot())
            self.reloader.begin(stored, await self._activation.prepare(stored), read_at)
            await self.api.ready()
        except QueryFluxError:
            self._failed(self)
            return
        self.host.app = self.api.mounted(_nothing_there)
        self.started = True
        self.reloader.follow()
        self.api.follow(self.reloader)
        self.registry.start()
        self.host.create_task(self._sweep.run())

    async def stop(self, seconds: float) -> None:
        """In good order: waits are answered, other calls get so long."""
        if self.started:
            self.api.begin_drain()
            await LoopClock(self.host).sleep(seconds)
            self.host.app = None
            await self.registry.close()
            await self.reloader.close()
            await self.api.close()
            await self._records.close()

    async def workers(self) -> dict[str, Any]:
        """What its operators see. Raises StoreUnavailable."""
        return await self.registry.shown(every=True)


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    """What operators call is not simulated."""
