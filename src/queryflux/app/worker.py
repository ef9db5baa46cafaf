"""One process that serves queries by a control plane's configuration: role ``worker``.

It is app/process.py with another source of configuration than the standalone's (worker/sync.py), and never
opens, or imports, a database of our own.

Start: the ops listener, so that whoever looks sees why the worker is not ready; the doors, which answer every
client with their protocol's own "not configured yet"; then the configuration, whenever it can be had. End: as
standalone, and what is left to tell the control plane is told before connections to it are closed.
"""

import logging
import socket
from collections.abc import Callable
from functools import partial

from queryflux import __version__
from queryflux.app.live import unreachable
from queryflux.app.ops import OpsListener
from queryflux.app.process import Core, QueryProcess, close_all
from queryflux.app.seat import Seat
from queryflux.app.uplink import Uplink
from queryflux.app.worker_capacity import WorkerCapacity
from queryflux.app.worker_ops import worker_ops
from queryflux.config.fleet import ControlPlaneConfig, CoordinationConfig, HistoryUplinkConfig
from queryflux.config.listeners import OpsListenerConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.fleet.registry import Frontend, Heartbeat, Phase
from queryflux.fleet.registry import Sync as SyncReport
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.model.errors import NotConfigured, QueryFluxError
from queryflux.model.secret import Secret
from queryflux.runtime.clock import Clock
from queryflux.worker.client import Caller, HttpControlPlane, address_of
from queryflux.worker.heartbeat import Reports
from queryflux.worker.peers import Peers
from queryflux.worker.sync import Swap, Sync

log = logging.getLogger(__name__)


def worker_name(process: ProcessConfig) -> str:
    """The same after a restart: what history and operators know a worker by."""
    return process.worker_name or socket.gethostname()


class Worker(QueryProcess):
    """A process that is given its configuration."""

    def __init__(
        self, config: RootConfig, snapshot: Snapshot, clock: Clock | None = None, seat: Seat | None = None
    ) -> None:
        """Opens nothing. ``snapshot`` is what the file says, which of a worker is nothing; ``seat`` as for
        QueryProcess. Raises ConfigError."""
        process = config.queryflux
        settings = process.control_plane or ControlPlaneConfig()
        core = Core.of(process, clock)
        self.name = worker_name(process)
        self.secret = settings.secret or Secret("")
        caller = Caller(self.secret, core.instance_id, self.name)
        addresses = [address_of(url, settings.tls) for url in settings.addresses]
        self.control_plane = HttpControlPlane(addresses, caller, core.clock)
        self.uplink = Uplink(
            process.history_uplink or HistoryUplinkConfig(),
            self.control_plane,
            settings.addresses,
            caller,
            core.clock,
        )
        self.capacity = WorkerCapacity(
            process.coordination or CoordinationConfig(),
            self.control_plane,
            core.instance_id,
            core.clock,
            core.metrics,
        )
        super().__init__(config, snapshot, core, self.capacity.admission, seat=seat)
        peers = settings.peer_bootstrap
        self.reports = Reports(
            self.control_plane,
            self.report,
            self.clock,
            self.metrics,
            interval_secs=settings.heartbeat_interval_secs,
        )
        self.sync = Sync(
            self.control_plane,
            self._prepare,
            self.clock,
            self.metrics,
            poll_secs=settings.poll_timeout_secs,
            peers=Peers(peers, caller, self.clock) if peers is not None else None,
            changed=self.reports.soon,
        )
        self.when_configured: Callable[[], None] = lambda: None
        """Called once, when the first configuration is in use."""
        self._started_at = self.clock.monotonic()
        self._leaving = False
        self._closed = False

    # Start.

    async def start(self) -> None:
        """Open the ops listener and the doors, and begin to look for a configuration."""
        try:
            self.uplink.start(self.records)
            await self._open_ops()
            await self._open_doors()
            self.capacity.start(self.pipeline, self._clusters)
            self.sync.start()
            self.reports.start()
        except BaseException:
            await self.close()
            raise

    async def _open_ops(self) -> None:
        listener = self.config.queryflux.ops_listener or OpsListenerConfig()
        self.ops = OpsListener(listener, worker_ops(self), "opsListener")
        await self.ops.start()
        log.info("operator port listens on %s:%d", listener.host, self.ops.port)

    async def _prepare(self, snapshot: WorkerSnapshot) -> Swap:
        """Make everything that a snapshot needs. Raises ConfigError."""
        swap = await self.activation.prepare_received(snapshot)

        def use() -> None:
            first = self.pipeline.active is None
            swap()
            if first:
                self.when_configured()
                self.reports.at_once()  # /readyz says so already

        return use

    # How it is.

    def check_ready(self) -> None:
        """As QueryProcess; what keeps the configuration from coming is said."""
        try:
            super().check_ready()
        except NotConfigured as error:
            status = self.sync.status
            why = status.failure
            if not why and status.rejected is not None:
                why = f"revision {status.rejected.revision} cannot be used: {status.rejected.error}"
            raise NotConfigured(f"{error.message}: {why}" if why else error.message) from None

    def not_ready(self) -> str:
        """Why this worker takes no queries; empty: it does."""
        try:
            self.check_ready()
        except QueryFluxError as error:
            return error.message
        return ""

    @property
    def phase(self) -> Phase:
        """What this worker is at."""
        if self._leaving:
            return Phase.DRAINING
        return Phase.STARTING if self.not_ready() else Phase.SERVING

    def report(self) -> Heartbeat:
        """What operators want to know, as of now."""
        process, status = self.config.queryflux, self.sync.status
        settings = process.control_plane or ControlPlaneConfig()
        position, rejected = status.position, status.rejected
        return Heartbeat(
            instance_id=self.instance_id,
            worker_name=self.name,
            version=__version__,
            advertise_address=process.advertise_address,
            heartbeat_interval_secs=settings.heartbeat_interval_secs,
            phase=self.phase.value,
            uptime_secs=self.clock.monotonic() - self._started_at,
            active_revision=status.revision,
            epoch=position.epoch if position is not None else None,
            sequence=position.sequence if position is not None else None,
            rejected_revision=rejected.revision if rejected is not None else None,
            rejected_error=rejected.error if rejected is not None else "",
            config_source=status.source,
            stale=status.stale,
            confirmed_age_secs=status.confirmed_age,
            sync=SyncReport(
                last_success_secs=status.success_age,
                failures=status.failures,
                error=status.failure,
                failing_secs=status.failing_secs,
            ),
            coordination=self.capacity.report(
                sum(run.admitted_at is not None for run in self.pipeline.running.values())
            ),
            history_uplink=self.uplink.report(),
            frontends=tuple(Frontend(name=name, port=door.port) for name, door in self.doors.items()),
            warnings=tuple(filter(None, (status.behind, unreachable(self.pipeline)))),
        )

    # The end.

    async def _leave(self) -> None:
        self._leaving = True
        self.reports.soon()

    async def close(self, grace: float = 0) -> None:
        if self._closed:
            return
        self._closed = True
        await close_all(
            self.sync.close,
            self.capacity.stop,
            self.pipeline.close,
            self.capacity.close,
            partial(self._close_doors, grace),
            self.records.close,
            self.reports.close,
        )
        if self.ops is not None:
            await self.ops.close()
        self.uplink.close()
        self.control_plane.close()
        self.query_log.flush()
