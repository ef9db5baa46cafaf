"""A worker of the simulated fleet: the product's sync, peers, leases, records and reports, put together as
app/worker.py does, and clients whose queries run on a model of engines.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, cast

from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.app.activation import Activation
from queryflux.app.history import ProcessHistory
from queryflux.app.worker_ops import PeerCall
from queryflux.config.fleet import PeerBootstrapConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import Snapshot
from queryflux.controlplane.worker_app import WorkerApp, WorkerEndpoint
from queryflux.controlplane.worker_login import WorkerLogin
from queryflux.fleet.paths import PEER_CONFIG
from queryflux.fleet.registry import Heartbeat
from queryflux.fleet.registry import Sync as SyncReport
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.history.buffer import Pace
from queryflux.history.record import QueryRecord
from queryflux.history.redaction import Redaction
from queryflux.model.endings import EndReason, QueryStatus
from queryflux.model.errors import ConfigError
from queryflux.model.ids import QueryIds
from queryflux.model.secret import Secret
from queryflux.pipeline.ending import Recorder
from queryflux.pipeline.generation import Generation
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.telemetry.logs import QueryLog
from queryflux.worker.client import Address, Caller, HttpControlPlane
from queryflux.worker.coordination import RemoteCoordinationStore
from queryflux.worker.heartbeat import Reports
from queryflux.worker.peers import Peers
from queryflux.worker.sync import Swap, Sync
from queryflux.worker.uplink import HistoryUplink
from tests.kit.metrics import NoMetrics
from tests.sim.network import Host
from tests.sim.process import LATE_SECS, RENEW_SECS, Clients, Engine
from tests.sim.tables import UNSTORABLE
from tests.sim.world import LoopClock

if TYPE_CHECKING:
    from queryflux.app.worker import Worker

POLL_SECS = 5.0
HEARTBEAT_SECS = 4.0
THINK_SECS = 2.0
CLIENTS = ("one", "few", "both")
COMPILE_SECS = (0.0, 0.2)
SLOW_COMPILE_SECS = (2.0, 4.0)
UNUSABLE = "unusable"
"""A cluster of this name: the control plane has what it takes, and no worker has."""
LITERAL = "4711"
CONTROL_PLANES = ("cp1", "cp2")
PACE = Pace(flush_secs=2.0, flush_records=20, batch_records=8, max_records=60)


class WorkerProcess(Clients):
    """A worker from its first turn on."""

    def __init__(
        self,
        host: Host,
        instance: str,
        secret: str,
        engine: Engine,
        chance: Random,
        peers: Callable[[], Sequence[str]],
        activated: Callable[["WorkerProcess", WorkerSnapshot], object],
    ) -> None:
        """``peers`` gives the hosts that the name of all workers resolves to; ``activated`` is told what is
        used from now on."""
        self.host = host
        self.secret = Secret(secret)
        self.clock = LoopClock(host)
        self._caller = Caller(self.secret, instance, host.name)
        addresses = [Address(name, 9000, f"{name}:9000") for name in CONTROL_PLANES]
        chance.shuffle(addresses)
        self._control_plane = HttpControlPlane(addresses, self._caller, self.clock)
        store = RemoteCoordinationStore(self._control_plane, instance, self.clock, acquire_secs=LATE_SECS)
        super().__init__(host, store, engine, chance, THINK_SECS)
        self._peers = peers
        self._activated = activated
        self.compiled: list[tuple[str, int, str]] = []
        """Where everything stood that was made ready, and its revision."""
        self.finished: dict[str, Redaction] = {}
        """Queries that should have a record, and what it may say at the most."""
        self.ready = False
        self.stopping = False
        self.stopped = False
        self.hurried = False
        """It makes configurations ready without delay."""
        self.pipeline: QueryPipeline
        host.call_soon(self._begin)

    def _begin(self) -> None:
        clock, metrics, host, chance = self.clock, NoMetrics(), self.host, self.chance
        control_plane = self._control_plane
        self.leases = Leases(
            self.witness, clock, metrics, renew_secs=RENEW_SECS, acquire_secs=LATE_SECS, chance=chance
        )
        self.admission = LeasedAdmission(clock, self.leases, chance)
        process = ProcessConfig(role="worker")
        self.records = ProcessHistory(process, self.instance, clock, metrics)
        self.records.send_to(HistoryUplink(control_plane, host.name, self.instance).send, PACE)
        log = QueryLog("console", clock, enabled=False)
        self.pipeline = QueryPipeline(
            clock=clock,
            metrics=metrics,
            recorder=Recorder(self.records, log, metrics, clock),
            ids=QueryIds("sim", clock.now),
            admission=self.admission,
        )
        self._activation = Activation(process, Snapshot(), clock, self._activate)
        self.reports = Reports(
            control_plane, self.report, clock, metrics, interval_secs=HEARTBEAT_SECS, chance=chance
        )
        peers = Peers(
            PeerBootstrapConfig(address="workers:9100", max_age_secs=120),
            self._caller,
            clock,
            resolve=self._resolve,
            shuffle=chance.shuffle,
        )
        self.sync = Sync(
            control_plane,
            self._prepare,
            clock,
            metrics,
            poll_secs=POLL_SECS,
            peers=peers,
            changed=self.reports.soon,
            chance=chance.random,
        )
        call = WorkerEndpoint("GET", PEER_CONFIG, PeerCall(cast("Worker", self)).answer)
        host.app = WorkerApp([call], WorkerLogin([self.secret], clock))
        self.ready = True
        self.sync.start()
        self.reports.start()
        self.leases.start()
        for name in CLIENTS:
            host.create_task(self.client(name))

    async def _resolve(self, name: str, port: int) -> list[tuple[str, int]]:
        return [(host, port) for host in self._peers()]

    # Configuration.

    async def _prepare(self, snapshot: WorkerSnapshot) -> Swap:
        self.compiled.append((snapshot.epoch, snapshot.sequence, snapshot.revision))
        slow = self.chance.random() < 0.1 and not self.hurried
        await self.clock.sleep(self.chance.uniform(*(SLOW_COMPILE_SECS if slow else COMPILE_SECS)))
        if UNUSABLE in snapshot.content["clusters"]:
            raise ConfigError("this worker has no such file")
        swap = await self._activation.prepare_received(snapshot)

        def use() -> None:
            swap()
            self._activated(self, snapshot)

        return use

    def _activate(self, generation: Generation) -> None:
        self.pipeline.activate(generation)
        self.groups = {name: plan.admission for name, plan in generation.groups.items()}
        self.edited_at = self.loop.world.now

    def check_ready(self) -> None:
        """As app/worker.py: raises until there is a configuration, and when it ends."""
        self.pipeline.check_ready()

    def report(self) -> Heartbeat:
        """Of what operators see, what is looked at here."""
        status = self.sync.status
        position, rejected = status.position, status.rejected
        return Heartbeat(
            instance_id=self.instance,
            worker_name=self.host.name,
            heartbeat_interval_secs=HEARTBEAT_SECS,
            active_revision=status.revision,
            epoch=position.epoch if position is not None else None,
            sequence=position.sequence if position is not None else None,
            rejected_revision=rejected.revision if rejected is not None else None,
            rejected_error=rejected.error if rejected is not None else "",
            config_source=status.source,
            stale=status.stale,
            confirmed_age_secs=status.confirmed_age,
            sync=SyncReport(failures=status.failures, error=status.failure),
        )

    # Records.

    def ended(self, query_id: str, group: str, cluster: str, status: QueryStatus) -> None:
        self.finished[query_id] = self.records.policy
        name = UNSTORABLE if self.chance.random() < 0.01 else "somebody"
        text = f"SELECT {LITERAL}"
        self.records.add(
            QueryRecord(
                proxy_query_id=query_id,
                frontend_protocol="TrinoHttp",
                username=name,
                sql_text=text,
                status=status,
                reason=EndReason.COMPLETED if status is QueryStatus.SUCCESS else EndReason.FAILED,
                created_at=self.clock.now(),
                queue_duration_ms=0.0,
                execution_duration_ms=1.0,
                cluster_group=group,
                cluster_name=cluster,
                source_dialect="trino",
            )
        )

    @property
    def delivery(self) -> dict[str, Any]:
        """What became of the records."""
        assert self.records.buffer is not None
        return self.records.buffer.delivery._asdict()

    # The end.

    async def stop(self) -> None:
        """In good order, when its clients have gone."""
        self.stopping = True
        self.pipeline.begin_drain()
        while self.at_rest < len(CLIENTS):
            await self.clock.sleep(0.2)
        await self.sync.close()
        self.witness.closing = True  # calls that nobody answers for long end with their process
        await self.leases.close()
        await self.records.close(20)
        await self.reports.close()
        self.host.app = None
        self.stopped = True
