"""What a process keeps, and where: built from ``queryflux.persistence``. Drivers are imported when needed."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from queryflux.admission.claims import ClaimStore
from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import CapacityStore, CapacityUpkeep, SweepCoordinator, sweeping
from queryflux.config.fleet import CoordinationConfig
from queryflux.config.persistence import Persistence, PostgresPersistence, SqlitePersistence
from queryflux.config.process import ProcessConfig
from queryflux.config.store import ConfigStore
from queryflux.fleet.registry import RegistryStore
from queryflux.history.port import DurableHistoryStore
from queryflux.history.upkeep import Sweep, alone
from queryflux.model.errors import ConfigError, SchemaRefused, StoreUnavailable
from queryflux.persistence.memory_config import MemoryConfigStore
from queryflux.persistence.memory_registry import MemoryRegistryStore
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Shared:
    """What processes agree through: those of one database, or a process and its workers. ``leases`` are this
    process's own, ``leases_of`` gives those of any instance. ``claims`` None: each answers for its own
    queries."""

    leases: CapacityStore
    leases_of: Callable[[str], CapacityStore]
    sweeps: SweepCoordinator
    upkeep: CapacityUpkeep
    claims: ClaimStore | None = None


@dataclass(frozen=True, slots=True)
class Stores:
    """``open`` raises ConfigError that says what failed, and where. ``durable``: what is stored outlives this
    process. ``history`` None: in memory only. ``shared`` None: nobody else uses the store."""

    config: ConfigStore
    registry: RegistryStore
    durable: bool
    open: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]
    history: DurableHistoryStore | None = None
    shared: Shared | None = None

    @property
    def sweep(self) -> Sweep:
        """Says which process does what one does for all."""
        if self.shared is None:
            return alone
        sweeps = self.shared.sweeps
        return lambda name, rest_secs: sweeping(sweeps, name, rest_secs)


def build_stores(
    process: ProcessConfig, instance_id: str, clock: Clock, metrics: Metrics, *, first: bool = False
) -> Stores:
    """What ``queryflux.persistence`` asks for; nothing is opened yet. ``first``: no worker is there that an
    earlier process has served. Raises ConfigError."""
    persistence = process.persistence
    if isinstance(persistence, PostgresPersistence):
        return _postgres(persistence, process, instance_id, clock, metrics)
    shared = _with_workers(process, instance_id, clock, first) if process.serves_workers else None
    if isinstance(persistence, SqlitePersistence):
        return _sqlite(persistence, clock, shared)
    return Stores(
        MemoryConfigStore(),
        MemoryRegistryStore(clock),
        durable=False,
        open=_nothing,
        close=_nothing,
        shared=shared,
    )


def _with_workers(process: ProcessConfig, instance_id: str, clock: Clock, first: bool) -> Shared:
    """Leases in memory, for this process and the workers that it serves."""
    renew_secs = (process.coordination or CoordinationConfig()).lease_renew_secs
    ledger = Ledger(clock, adopts=True) if first else Ledger.reopened(clock, renew_secs)
    own = MemoryCapacityStore(ledger, instance_id)
    return Shared(own, lambda instance: MemoryCapacityStore(ledger, instance), own, own)


async def _nothing() -> None:
    """Memory is always open."""


def _sqlite(persistence: SqlitePersistence, clock: Clock, shared: Shared | None) -> Stores:
    from queryflux.persistence.sqlite.config import SqliteConfigStore
    from queryflux.persistence.sqlite.database import SqliteDatabase
    from queryflux.persistence.sqlite.history import SqliteHistoryStore

    database = SqliteDatabase(persistence.path)
    config, history = SqliteConfigStore(database), SqliteHistoryStore(database)

    async def open_both() -> None:
        with said_of(persistence):
            await database.open()
            await config.open()
            await history.open()

    registry = MemoryRegistryStore(clock)
    return Stores(
        config,
        registry,
        durable=True,
        open=open_both,
        close=database.close,
        history=history,
        shared=shared,
    )


def _postgres(
    persistence: PostgresPersistence,
    process: ProcessConfig,
    instance_id: str,
    clock: Clock,
    metrics: Metrics,
) -> Stores:
    from queryflux.persistence.postgres.capacity import PostgresCapacityStore
    from queryflux.persistence.postgres.claims import PostgresClaimStore
    from queryflux.persistence.postgres.config import PostgresConfigStore
    from queryflux.persistence.postgres.history import PostgresHistoryStore
    from queryflux.persistence.postgres.migrate import bring_up_to_date, require_up_to_date
    from queryflux.persistence.postgres.pools import Pools
    from queryflux.persistence.postgres.registry import PostgresRegistryStore
    from queryflux.persistence.postgres.sweeps import PostgresSweeps

    coordination = process.coordination or CoordinationConfig()
    pools = Pools.open(
        persistence,
        clock=clock,
        metrics=metrics,
        instance=instance_id,
        coordination_secs=coordination.acquire_timeout_secs,
    )
    sweeps = PostgresSweeps(pools.admin)
    stale_secs = coordination.claim_stale_secs

    async def migrate() -> None:
        with said_of(persistence):
            await (bring_up_to_date(pools, clock) if persistence.auto_migrate else require_up_to_date(pools))

    return Stores(
        PostgresConfigStore(pools, clock),
        PostgresRegistryStore(pools.query),
        durable=True,
        open=migrate,
        close=pools.close,
        history=PostgresHistoryStore(pools.query),
        shared=Shared(
            PostgresCapacityStore(pools.coordination, instance_id),
            lambda instance: PostgresCapacityStore(pools.coordination, instance),
            sweeps,
            sweeps,
            PostgresClaimStore(pools.query, instance_id, process.advertise_address, stale_secs),
        ),
    )


@contextmanager
def said_of(persistence: Persistence) -> Iterator[None]:
    """Raises ConfigError that names the place of what fails inside."""
    try:
        yield
    except (StoreUnavailable, SchemaRefused) as error:
        hint = error.hint if isinstance(error, SchemaRefused) else ""
        said = f" ({error.hint})" if error.hint and not hint else ""
        raise ConfigError(
            f"queryflux.persistence, {where_of(persistence)}: {error.message}{said}",
            hint=hint or _what_to_do(error.__cause__),
        ) from error


def _what_to_do(cause: BaseException | None) -> str:
    state = str(getattr(cause, "sqlstate", "") or "")
    if state.startswith("28"):
        return "check the user and the password under queryflux.persistence, and the server's pg_hba.conf"
    if state == "3D000":
        return "make the database, for example with createdb, or name another one under queryflux.persistence"
    return "see docs/configuration.md, configuration in a database"


def where_of(persistence: Persistence) -> str:
    """Where it keeps things, without credentials."""
    if isinstance(persistence, PostgresPersistence):
        url = persistence.url.reveal().strip() if persistence.url is not None else ""
        if url:
            parts = urlsplit(url)
            return f"{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"{persistence.host}:{persistence.port}/{persistence.database}"
    return persistence.path if isinstance(persistence, SqlitePersistence) else "memory"
