"""One process that serves queries from its own configuration, and workers if told to: role ``standalone``,
and ``controlPlane``, which differs only in what its configuration must have.

Start: open the stores, compile what they and the file say, open the operator port, open the doors. End
(SIGTERM, SIGINT): /readyz says 503, no new clients, running queries get shutdownDrainTimeoutSecs, then they
are ended; a second signal ends them at once.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from starlette.types import ASGIApp

from queryflux.admission.port import CapacityStore
from queryflux.app.capacity import SharedCapacity, capacity_calls, engine_counts
from queryflux.app.doors import SharingDoor
from queryflux.app.live import OwnWorkers, shared_by
from queryflux.app.operators import build_operator_port
from queryflux.app.ops import OpsListener
from queryflux.app.process import Core, QueryProcess, close_all
from queryflux.app.replicas import SharedQueries
from queryflux.app.stores import build_stores, said_of
from queryflux.app.worker_api import WorkerApi
from queryflux.config.problems import in_short
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import StoredConfig
from queryflux.controlplane.intake import HistoryIntake
from queryflux.controlplane.live import RunningQuery
from queryflux.controlplane.registry import Current, WorkerRegistry
from queryflux.controlplane.reload import PrepareFailed, Reloader
from queryflux.model.errors import NotConfigured, QueryFluxError
from queryflux.pipeline.reconcile import Reconcile
from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

DEFAULT_RELOAD_SECS = 30


class Standalone(QueryProcess):
    """A process that owns its configuration."""

    first = False
    """No worker is there that an earlier process has served."""

    def __init__(self, config: RootConfig, snapshot: Snapshot, clock: Clock | None = None) -> None:
        """Opens nothing. ``snapshot`` is the file's own. Raises ConfigError."""
        process = config.queryflux
        core = Core.of(process, clock)
        self.stores = build_stores(process, core.instance_id, core.clock, core.metrics, first=self.first)
        self.capacity: SharedCapacity | None = None
        # Who serves workers counts with them, and sweeps what they leave behind.
        if self.stores.shared is not None and (process.distributed is not False or process.serves_workers):
            self.capacity = SharedCapacity(self.stores.shared, process, core.clock, core.metrics)
        super().__init__(
            config, snapshot, core, self.capacity.admission if self.capacity is not None else None
        )
        self.shared = self._shared_queries()
        self.counting = self._counting()
        self.workers: WorkerApi | None = None
        if process.serves_workers:
            self.workers = WorkerApi(process.worker_api, self.stores.config, core.clock, core.metrics)
        interval = process.config_reload_interval_secs
        self.reloader = Reloader(
            self.stores.config,
            self.activation.prepare,
            clock=self.clock,
            metrics=self.metrics,
            interval_secs=(DEFAULT_RELOAD_SECS if interval is None else interval)
            if self.stores.durable
            else 0,
            used=self._used,
        )
        self.own_workers = OwnWorkers()
        self.registry = WorkerRegistry(
            self.stores.registry, self.stores.sweep, self._current, self.clock, own=self.instance_id
        )
        if self.workers is not None:
            intake = HistoryIntake(lambda: self.records.reader, self.records.admitted)
            self.workers.endpoints += [*self.registry.endpoints(), *intake.endpoints()]
            if self.stores.shared is not None:
                self.workers.endpoints += capacity_calls(self.stores.shared, self.instance_id).endpoints()

    def _current(self) -> Current | None:
        """The configuration that workers are to run: what is published, or what would be."""
        if self.workers is not None:
            there = self.workers.state.published
            return Current(there.revision, there.epoch, there.sequence) if there is not None else None
        generation, state = self.pipeline.active, self.reloader.state
        return Current(generation.revision, state.epoch, state.sequence) if generation is not None else None

    def _shared_queries(self) -> SharedQueries | None:
        """Queries are shared among processes of one database, unless it is told not to."""
        shared, process = self.stores.shared, self.config.queryflux
        if shared is None or shared.claims is None or process.distributed is False:
            return None
        return SharedQueries(shared.claims, shared.sweeps, process, self.pipeline, self.clock, self.metrics)

    def _counting(self) -> Reconcile | None:
        """What all of them run is counted where limits are shared."""
        shared = self.stores.shared
        if shared is None or self.capacity is None:
            return None
        return engine_counts(
            shared.leases, shared.sweeps, self.pipeline, self._clusters, self.clock, self.metrics
        )

    def lease_store(self, instance: str) -> CapacityStore:
        """The leases of a worker that this process serves."""
        assert self.stores.shared is not None
        return self.stores.shared.leases_of(instance)

    def _used(self, stored: StoredConfig, read_at: float) -> None:
        """The store was read, and what it says is in use."""
        if self.workers is not None:
            self.workers.use(stored, self.activation.compiled.snapshot, read_at)

    async def start(self) -> None:
        """Open the stores, activate the configuration, open the operator port and the doors."""
        try:
            await self._configure()
            await self._open_operator_port()
            await self._open_doors(self.shared.claims if self.shared is not None else None)
            log.info(
                "operator port listens on %s:%d",
                self.config.queryflux.admin_api.host,
                self.ports()["adminApi"],
            )
            self.reloader.follow()
            if self.workers is not None:
                self.workers.follow(self.reloader)
                self.registry.start()
        except BaseException:
            await self.close()
            raise

    async def _configure(self) -> None:
        """Use what is stored, with what the file adds to it."""
        stores, capacity = self.stores, self.capacity
        await stores.open()
        read_at = self.clock.monotonic()
        with said_of(self.config.queryflux.persistence):
            stored = await stores.config.seed(self.file)
        try:
            ready = self.activation.prepare(stored) if stores.durable else self.activation.prepare_file()
            self.reloader.begin(stored, await ready, read_at)
        except QueryFluxError as error:
            if not stores.durable:
                raise
            self._begin_without(error)
        if capacity is not None:
            capacity.start()
        if self.shared is not None:
            with said_of(self.config.queryflux.persistence):
                await self.shared.start()
        if self.counting is not None:
            self.counting.start()
        if stores.history is not None:
            counts = capacity.store.counts if capacity is not None else None
            self.records.keep_in(stores.history, stores.sweep, lambda: self.pipeline.active, counts)

    def _begin_without(self, error: QueryFluxError) -> None:
        """What is stored cannot be used. This process is how operators mend it, and so goes on: doors say
        that they are not configured until a reload says otherwise."""
        reason, now = in_short(error), self.clock.now()
        stage = error.stage if isinstance(error, PrepareFailed) else "reload"
        self.metrics.counter("queryflux_config_reload_failures_total", stage=stage).inc()
        self.reloader.state = replace(self.reloader.state, failure=reason, stage=stage, failing_since=now)
        log.error("no query is taken until the stored configuration can be used (%s): %s", stage, reason)

    def check_ready(self) -> None:
        """As QueryProcess; what keeps the first configuration from use is said."""
        try:
            super().check_ready()
        except NotConfigured as error:
            why = self.reloader.state.failure
            if self.pipeline.active is not None or not why:
                raise
            message = f"{error.message}: what is stored cannot be used: {why}"
            raise NotConfigured(message, hint=error.hint) from None

    async def _open_operator_port(self) -> None:
        app: ASGIApp = build_operator_port(
            self.config,
            self.file,
            instance_id=self.instance_id,
            pipeline=self.pipeline,
            store=self.stores.config,
            durable=self.stores.durable,
            history=self.records.reader,
            configured=self._clusters,
            ports=self.ports,
            cancel_elsewhere=self._cancel_elsewhere,
            running_elsewhere=self._running_elsewhere,
            own_workers=self.own_workers,
            fleet_counts=lambda: self.counting.counts if self.counting is not None else None,
            leases=self.capacity.leases if self.capacity is not None else None,
            reloader=self.reloader,
            registry=self.registry,
            publishing=lambda: self.workers.state if self.workers is not None else None,
            check_ready=self.check_ready,
            metrics=self.exposition,
            clock=self.clock,
        )
        if self.workers is not None:
            await self.workers.ready()
            app = self.workers.mounted(app)
        self.ops = OpsListener(self.config.queryflux.admin_api, app)
        await self.ops.start()

    async def _cancel_elsewhere(self, query_id: str) -> bool:
        """End a query of another process; False when nobody knows it."""
        for door in self.doors.values():
            if isinstance(door, SharingDoor):
                return await door.cancel_elsewhere(query_id)
        return False

    async def _running_elsewhere(self) -> Sequence[RunningQuery]:
        """Trino statements that other processes of the database answer for. Raises StoreUnavailable."""
        if self.shared is None:
            return ()
        others = await self.shared.claims.others()
        return [shared_by(row, backend, self.pipeline, self.clock) for row, backend in others]

    async def _leave(self) -> None:
        if self.workers is not None:
            self.workers.begin_drain()
        if self.shared is not None:
            await self.shared.claims.give_up()

    async def close(self, grace: float = 0) -> None:
        before = (self.registry, self.reloader, self.workers, self.counting, self.pipeline)
        await close_all(*(part.close for part in before if part is not None))
        # Leases, rows and records wait for the same database: not one after the other, when it is away.
        await asyncio.gather(
            close_all(*(part.close for part in (self.capacity,) if part is not None)),
            close_all(partial(self._close_doors, grace), self._close_stored),
        )
        await close_all(*(part.close for part in (self.ops, self.stores) if part is not None))
        self.query_log.flush()

    async def _close_stored(self) -> None:
        parts = (self.shared, self.records)
        await asyncio.gather(*(close_all(part.close) for part in parts if part is not None))
