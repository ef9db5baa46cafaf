"""Leases in PostgreSQL: one cap for everybody who uses the database.

What is exact and what may deadlock is decided in the functions and triggers of V21 and V22; here each call is
one statement in a transaction of its own, on the coordination pool. Whoever calls must not cancel an acquire
under way (admission.grouped does not).
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from queryflux.admission.port import Lease, Wanted
from queryflux.model.errors import StoreUnavailable

if TYPE_CHECKING:
    from queryflux.persistence.postgres.pools import Pool

ACQUIRE = "SELECT queryflux_capacity_try_acquire($1, $2, $3, $4)"
ACQUIRE_MANY = "SELECT queryflux_capacity_try_acquire_many($1, $2, $3, $4, $5)"
RELEASE = """
DELETE FROM cluster_capacity_leases
WHERE query_id = ANY ($1) AND instance_id = $3
    AND (query_id, cluster_name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
RENEW = "SELECT queryflux_capacity_renew($1, $2)"
STILL_THERE = "SELECT query_id FROM cluster_capacity_leases WHERE instance_id = $1 AND query_id = ANY ($2)"
RENEW_ONE = """
UPDATE cluster_capacity_leases SET heartbeat_at = clock_timestamp()
WHERE instance_id = $1 AND query_id = $2 RETURNING query_id
"""
RELEASE_ALL = """
WITH gone AS (DELETE FROM cluster_capacity_leases WHERE instance_id = $1 RETURNING 1)
SELECT count(*) FROM gone
"""
COUNTS = "SELECT cluster_name, leased FROM cluster_capacity_counters WHERE leased > 0"
RUNNING = "SELECT cluster_name, running FROM cluster_capacity_counters"
PUBLISH = "SELECT queryflux_capacity_publish_running($1, $2)"


@asynccontextmanager
async def asking(pool: "Pool") -> AsyncIterator["asyncpg.Connection"]:
    """A connection. Whatever server or driver complain about, nothing is decided: StoreUnavailable."""
    try:
        async with pool.connection(watched=True) as connection:
            yield connection
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        message = "the database of QueryFlux could not answer"
        raise StoreUnavailable(message, hint=str(error)) from error


class PostgresCapacityStore:
    """The leases of one instance; a CapacityStore."""

    def __init__(self, pool: "Pool", instance: str) -> None:
        self._pool = pool
        self.instance = instance

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        """As CapacityStore."""
        async with asking(self._pool) as connection:
            return bool(await connection.fetchval(ACQUIRE, cluster, self.instance, query_id, limit))

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        """As CapacityStore."""
        ids, limits = [query_id for query_id, _ in wanted], [limit for _, limit in wanted]
        async with asking(self._pool) as connection:
            return list(
                await connection.fetchval(ACQUIRE_MANY, cluster, self.instance, ids, limits, list(released))
            )

    async def release_many(self, leases: Sequence[Lease]) -> None:
        """As CapacityStore."""
        clusters, ids = [cluster for cluster, _ in leases], [query_id for _, query_id in leases]
        async with asking(self._pool) as connection:
            await connection.execute(RELEASE, ids, clusters, self.instance)

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """As CapacityStore. Rows that somebody has locked are waited for one by one, holding no other."""
        ids = [query_id for _, query_id in leases]
        async with asking(self._pool) as connection:
            held = {row[0] for row in await connection.fetch(RENEW, self.instance, ids)}
            if len(held) == len(ids):
                return held
            missing = [query_id for query_id in ids if query_id not in held]
            for (query_id,) in await connection.fetch(STILL_THERE, self.instance, missing):
                if await connection.fetchval(RENEW_ONE, self.instance, query_id):
                    held.add(query_id)
            return held

    async def release_all(self) -> int:
        """As CapacityStore."""
        async with asking(self._pool) as connection:
            return int(await connection.fetchval(RELEASE_ALL, self.instance))

    async def counts(self) -> dict[str, int]:
        """As CapacityStore."""
        async with asking(self._pool) as connection:
            return {row[0]: row[1] for row in await connection.fetch(COUNTS)}

    async def publish_running(self, cluster: str, running: int) -> None:
        """As CapacityStore."""
        async with asking(self._pool) as connection:
            await connection.execute(PUBLISH, cluster, running)

    async def running(self) -> dict[str, int]:
        """As CapacityStore."""
        async with asking(self._pool) as connection:
            return {row[0]: row[1] for row in await connection.fetch(RUNNING)}
