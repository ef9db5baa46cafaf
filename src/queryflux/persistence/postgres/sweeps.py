"""What one process does for the fleet now and then, in PostgreSQL: sweep locks, expiry, drift.

A sweep lock is a row and not a session's lock, so that it can be given back over another connection and says
when the sweep is due again. Its times are the database's.
"""

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

from queryflux.admission.port import SWEEP_LOCK_SECS, Recount
from queryflux.persistence.postgres.capacity import asking

if TYPE_CHECKING:
    from queryflux.persistence.postgres.pools import Pool

TRY_LOCK = """
INSERT INTO sweep_locks AS held (name, token, expires_at) VALUES ($1, $2, clock_timestamp() + $3)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, expires_at = excluded.expires_at
    WHERE held.expires_at <= clock_timestamp()
RETURNING true
"""
UNLOCK = """
UPDATE sweep_locks SET token = '', expires_at = clock_timestamp() + $3 WHERE name = $1 AND token = $2
"""
EXPIRE = "SELECT queryflux_capacity_expire($1)"
# Of processes that ended, or that ask no more: each start has a new instance id, and its rows would stay.
FORGET = """
DELETE FROM cluster_capacity_waiters WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM cluster_capacity_waiters WHERE seen_at < clock_timestamp() - $1::interval
    FOR UPDATE SKIP LOCKED))
"""
DIFFERING = """
SELECT cluster_name
FROM (SELECT cluster_name, leased, drift_seen FROM cluster_capacity_counters) AS counters
FULL JOIN (SELECT cluster_name, count(*) AS rows FROM cluster_capacity_leases GROUP BY 1) AS leases
    USING (cluster_name)
WHERE leased IS DISTINCT FROM coalesce(rows, 0) OR drift_seen <> 0
ORDER BY cluster_name
"""
SETTLE = "SELECT was, became FROM queryflux_capacity_settle($1)"


class PostgresSweeps:
    """A SweepCoordinator, and the CapacityUpkeep that it coordinates."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def try_lock(self, name: str, hold_secs: float = SWEEP_LOCK_SECS) -> str | None:
        """As SweepCoordinator."""
        token = secrets.token_hex(16)
        async with asking(self._pool) as connection:
            held = await connection.fetchval(TRY_LOCK, name, token, timedelta(seconds=hold_secs))
        return token if held else None

    async def unlock(self, name: str, token: str, rest_secs: float) -> None:
        """As SweepCoordinator."""
        async with asking(self._pool) as connection:
            await connection.execute(UNLOCK, name, token, timedelta(seconds=rest_secs))

    async def expire(self, older_than_secs: float) -> int:
        """As CapacityUpkeep."""
        older_than = timedelta(seconds=older_than_secs)
        async with asking(self._pool) as connection:
            await connection.execute(FORGET, older_than)
            return int(await connection.fetchval(EXPIRE, older_than))

    async def settle(self) -> list[Recount]:
        """As CapacityUpkeep: one cluster at a time, each in a transaction of its own."""
        recounts: list[Recount] = []
        async with asking(self._pool) as connection:
            for (cluster,) in await connection.fetch(DIFFERING):
                was, became = await connection.fetchrow(SETTLE, cluster)
                if (was, became) != (0, 0):
                    recounts.append(Recount(cluster, was, became))
        return recounts
