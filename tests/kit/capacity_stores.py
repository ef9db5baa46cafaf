"""Fleets of capacity stores for the contract: in memory, on both versions of PostgreSQL, and workers whose
control plane has the one or the other."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import CapacityStore
from queryflux.admission.sweep import LOCK
from queryflux.controlplane.capacity_calls import CapacityCalls
from queryflux.persistence.postgres.capacity import PostgresCapacityStore
from queryflux.persistence.postgres.pools import Pool
from queryflux.persistence.postgres.sweeps import PostgresSweeps
from queryflux.runtime.clock import SystemClock
from queryflux.worker.coordination import RemoteCoordinationStore
from tests.kit.clock import ManualClock
from tests.kit.databases import DATABASES, Database, new_database
from tests.kit.worker_server import Client, served

TIMES = {
    "cluster_capacity_leases": ("heartbeat_at",),
    "cluster_capacity_waiters": ("since", "seen_at"),
    "sweep_locks": ("expires_at",),
}
WORKER_OF = "worker of "
KINDS = ("memory", *DATABASES, WORKER_OF + "memory", WORKER_OF + DATABASES[-1])


class Fleet(Protocol):
    """Stores that share their leases, and what moves time for them."""

    sweeps: Any
    """A SweepCoordinator and CapacityUpkeep."""

    def store(self, instance: str) -> CapacityStore:
        """The store of an instance."""

    async def wait(self, seconds: float) -> None:
        """So much time passes for leases and sweep locks."""

    async def waiting(self) -> set[str]:
        """Instances that were refused, as far as that is remembered."""


class MemoryFleet:
    """A Fleet in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.sweeps = MemoryCapacityStore(self.ledger, "")

    def store(self, instance: str) -> MemoryCapacityStore:
        return MemoryCapacityStore(self.ledger, instance)

    async def wait(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def waiting(self) -> set[str]:
        return {name for waiting in self.ledger.waiters.values() for name in waiting}


class PostgresFleet:
    """A Fleet in a database. Time passes by making everything older."""

    def __init__(self, database: Database, pool: Pool) -> None:
        self.database = database
        self.pool = pool
        self.sweeps = PostgresSweeps(pool)

    def store(self, instance: str) -> PostgresCapacityStore:
        return PostgresCapacityStore(self.pool, instance)

    async def wait(self, seconds: float) -> None:
        async with self.pool.connection() as connection:
            for table, columns in TIMES.items():
                aged = ", ".join(f"{column} = {column} - interval '{seconds} s'" for column in columns)
                await connection.execute(f"UPDATE {table} SET {aged}")

    async def waiting(self) -> set[str]:
        return {name for (name,) in self.database.rows("SELECT instance_id FROM cluster_capacity_waiters")}


class RemoteSweeps:
    """Sweep locks by a worker's call; upkeep, which is no worker's, where the leases are."""

    def __init__(self, behind: Fleet, worker: RemoteCoordinationStore) -> None:
        self.try_lock, self.unlock = worker.try_lock, worker.unlock
        self.expire, self.settle = behind.sweeps.expire, behind.sweeps.settle


class WorkerFleet:
    """A Fleet of workers, over HTTP; each has a client of its own."""

    def __init__(self, behind: Fleet, port: int) -> None:
        self._behind = behind
        self._port = port
        self.clients: list[Client] = []
        self.sweeps = RemoteSweeps(behind, self.store("sweeper"))
        self.wait = behind.wait
        self.waiting = behind.waiting

    def store(self, instance: str, missing: Sequence[str] = ()) -> RemoteCoordinationStore:
        """The store of a worker; ``missing`` are paths that its control plane does not have."""
        client = Client(self._port, instance, missing)
        self.clients.append(client)
        return RemoteCoordinationStore(client, instance, SystemClock())


@asynccontextmanager
async def workers_of(behind: Fleet) -> AsyncIterator[WorkerFleet]:
    """Workers of a control plane that keeps its leases like ``behind``. Any sweep is theirs to do."""
    calls = CapacityCalls(behind.store, behind.sweeps, {"leases", "another", LOCK})
    async with served(calls.endpoints()) as port:
        fleet = WorkerFleet(behind, port)
        yield fleet
        for client in fleet.clients:
            client.close()


@asynccontextmanager
async def open_fleet(kind: str, size: int = 8) -> AsyncIterator[Fleet]:
    """A new fleet without leases."""
    if kind.startswith(WORKER_OF):
        async with open_fleet(kind.removeprefix(WORKER_OF), size) as behind, workers_of(behind) as fleet:
            yield fleet
        return
    if kind == "memory":
        yield MemoryFleet()
        return
    with new_database(kind) as database:
        async with database.pool(size) as pool:
            yield PostgresFleet(database, pool)
