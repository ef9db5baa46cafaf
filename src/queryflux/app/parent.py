"""``serve --workers N``: a process that owns the configuration, and N workers of its own that take queries.

The parent is a control plane, or a standalone that serves workers; it opens the operator port and no door.
Its workers are those of worker mode (worker.py), which ask it over loopback, with a secret made at each
start. Clients see one address: supervisor.py says how the workers share it.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Sequence

from msgspec.structs import replace

from queryflux.app.process import DRAINING
from queryflux.app.siblings import WorkersBySiblings, cancel_there, running_there
from queryflux.app.signs import Patience
from queryflux.app.standalone import Standalone
from queryflux.app.supervisor import LAST_SECONDS, Supervisor
from queryflux.config.clusters import ClusterConfig
from queryflux.config.fleet import CallerTls, ControlPlaneConfig, WorkerApiConfig
from queryflux.config.listeners import AdminApiConfig, FrontendsConfig, ListenerConfig, OpsListenerConfig
from queryflux.config.persistence import InMemoryPersistence
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.controlplane.live import RunningQuery
from queryflux.model.errors import ConfigError
from queryflux.model.secret import Secret
from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
MOST_WORKERS = 256


class Parent(Standalone):
    """The process that the operator starts."""

    def __init__(
        self,
        config: RootConfig,
        snapshot: Snapshot,
        workers: int,
        clock: Clock | None = None,
        *,
        patience: Patience | None = None,
    ) -> None:
        """Opens nothing; ``patience`` is with workers that hang. Raises ConfigError when this configuration
        cannot be served by several workers."""
        check_several(config, workers)
        process = config.queryflux
        self._secret = Secret(secrets.token_urlsafe(32))
        # All workers are this process's own and begin with it, unless the operator lets others come too.
        self.first = not process.serves_workers
        super().__init__(with_workers(config, self._secret), snapshot, clock)
        self.config = config  # with its doors, which operators are shown
        self.pipeline.health.rest()
        names = names_of(process, workers)
        self.own_workers = WorkersBySiblings(lambda: self.supervisor.siblings)
        self.supervisor = Supervisor(
            process, names, self.clock, self._child, self._gone, self.metrics, patience=patience
        )

    # The workers.

    def _child(self, name: str, number: int) -> ProcessConfig:
        """The configuration of a worker."""
        assert self.ops is not None
        shared = {**self.supervisor.ports}
        return child_of(self.config.queryflux, name, number, self.ops.port, self._secret, shared)

    async def _gone(self, instance: str) -> None:
        """A worker has died: nobody but us knows that at once, and that what it held is free."""
        try:
            freed = await self.lease_store(instance).release_all()
            if freed:
                log.info("%d leases of %s are free", freed, instance)
        finally:
            await self.registry.ended(instance)

    # Standalone, with workers for doors.

    async def start(self) -> None:
        try:
            await super().start()
            await self.supervisor.start(configured=self.pipeline.active is not None)
        except BaseException:
            await self.close()
            raise

    async def _open_doors(self, *_: object) -> None:
        self._open = True

    def check_ready(self) -> None:
        super().check_ready()
        self.supervisor.check_ready()

    def ports(self) -> dict[str, int]:
        """Those that clients use; gRPC's is the first worker's."""
        return self.supervisor.ports_of_first() | super().ports() | self.supervisor.ports

    def exposition(self) -> tuple[bytes, str]:
        self.supervisor.count()
        return super().exposition()

    async def _cancel_elsewhere(self, query_id: str) -> bool:
        siblings = self.supervisor.siblings
        if siblings is not None and await cancel_there(siblings, query_id):
            return True
        return await super()._cancel_elsewhere(query_id)

    async def _running_elsewhere(self) -> Sequence[RunningQuery]:
        siblings = self.supervisor.siblings
        workers = await running_there(siblings) if siblings is not None else []
        return [*workers, *await super()._running_elsewhere()]

    async def drain(self) -> None:
        """Let the workers drain, at most for shutdownDrainTimeoutSecs or until told to hurry."""
        seconds = self.config.queryflux.shutdown_drain_timeout_secs
        log.info(DRAINING, seconds)
        self.pipeline.begin_drain()
        self.supervisor.begin_drain(seconds)
        if self.config.queryflux.serves_workers:
            await self._leave()  # workers elsewhere go to another control plane
        ended = asyncio.ensure_future(self.supervisor.ended())
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait(
            {ended, hurry}, timeout=seconds + LAST_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (ended, hurry):
            task.cancel()
        await asyncio.gather(ended, hurry, return_exceptions=True)

    async def close(self, grace: float = 0) -> None:
        await self.supervisor.close()
        await super().close(grace)


def check_several(config: RootConfig, workers: int) -> None:
    """Raises ConfigError for what several processes cannot do."""
    process = config.queryflux
    if not 1 <= workers <= MOST_WORKERS:
        raise ConfigError(f"--workers is 1 to {MOST_WORKERS}")
    if process.role == "worker":
        raise ConfigError(
            "--workers is for a process that owns its configuration, and this file is a worker's",
            hint="give the control plane --workers, or start one worker for each file",
        )
    for name, cluster in config.clusters.items():
        if workers > 1 and _is_written_file(cluster):
            raise ConfigError(
                f"clusters.{name}: a DuckDB file that is written to can be opened by one process only",
                hint="set readOnly: true, or serve it without --workers",
            )


def _is_written_file(cluster: ClusterConfig) -> bool:
    path = cluster.database_path or ":memory:"
    return cluster.engine == "duckDb" and not path.startswith(":memory:") and not cluster.read_only


def names_of(process: ProcessConfig, workers: int) -> list[str]:
    """The names of the workers, the same after a restart."""
    base = process.worker_name or socket.gethostname()
    return [f"{base}-{number + 1}" for number in range(workers)]


def with_workers(config: RootConfig, secret: Secret) -> RootConfig:
    """The configuration of a process that leaves the doors to its workers, which know this secret."""
    process = config.queryflux
    api = process.worker_api
    return replace(
        config,
        queryflux=replace(
            process,
            frontends=FrontendsConfig(trino_http=ListenerConfig(enabled=False)),
            worker_api=replace(api, enabled=True, secrets=(*api.secrets, secret)),
        ),
    )


def child_of(
    process: ProcessConfig, name: str, number: int, port: int, secret: Secret, shared: dict[str, int]
) -> ProcessConfig:
    """The configuration of the worker ``number``, counted from 0, of a parent whose operator port is
    ``port``; ``shared`` are the ports that all workers listen on."""
    admin = process.admin_api
    host = LOOPBACK.get(admin.host, admin.host)
    scheme = "http" if admin.tls is None else "https"
    # Unless it is asked for, its port is any free one, which nobody elsewhere could know.
    here = "::1" if ":" in admin.host else "127.0.0.1"
    ops = process.ops_listener or OpsListenerConfig(host=here, port=0)
    return replace(
        process,
        role="worker",
        instance_id=f"{name}-{secrets.token_hex(4)}",
        worker_name=name,
        advertise_address=None,
        frontends=_doors(process.frontends, number, shared),
        admin_api=AdminApiConfig(),
        ops_listener=replace(ops, port=ops.port + number if ops.port else 0),
        persistence=InMemoryPersistence(),
        worker_api=WorkerApiConfig(),
        control_plane=ControlPlaneConfig(
            url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
            secret=secret,
            tls=CallerTls(insecure_skip_verify=True) if admin.tls is not None else None,  # it is ourselves
        ),
    )


def _doors(frontends: FrontendsConfig, number: int, shared: dict[str, int]) -> FrontendsConfig:
    flight = frontends.flight_sql
    if flight is not None and flight.port:
        flight = replace(flight, port=flight.port + number)
    doors = {
        "trino_http": frontends.trino_http,
        "postgres_wire": frontends.postgres_wire,
        "mysql_wire": frontends.mysql_wire,
    }
    keys = {"trino_http": "trinoHttp", "postgres_wire": "postgresWire", "mysql_wire": "mysqlWire"}
    bound = {
        field: replace(door, port=shared.get(keys[field], door.port))
        for field, door in doors.items()
        if door is not None
    }
    return replace(frontends, flight_sql=flight, **bound)
