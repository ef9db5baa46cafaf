"""Claims in PostgreSQL: each call is one statement, and what depends on who owns a row says so in it.

A query that begins to run moves from one table to the other in one statement. Who looks for it at that very
moment may see neither row, and looks again. Where a page is kept need not outlive a crash of the database:
its owner does, and says it again with the next page.

A row that cannot be read, of a version that we do not know or of nobody, hides no other: it is passed over,
told of once, and goes when it is stale, since nobody else would end it.
"""

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from queryflux.admission.claims import MOST_LISTED, STALE_SECS
from queryflux.model.errors import StoreUnavailable
from queryflux.model.protocol import ClientProtocol
from queryflux.model.shared import Kept, SharedQuery, SharedRow

if TYPE_CHECKING:
    from queryflux.persistence.postgres.pools import Pool

log = logging.getLogger(__name__)

ANSWER_SECS = 3.0
"""Longest call, which takes a millisecond, a connection included: a database that takes longer is away."""

KEY = "SELECT relay_key FROM queryflux_meta"
WAIT = """
INSERT INTO queued_queries AS row (id, data, cluster_group, claimed_by, claimed_at, last_accessed)
VALUES ($1, $2::jsonb, $3, $4, clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO UPDATE SET claimed_at = excluded.claimed_at WHERE row.claimed_by = excluded.claimed_by
RETURNING true
"""
RUN = """
WITH waited AS (DELETE FROM queued_queries WHERE id = $2 AND claimed_by = $4 RETURNING 1)
INSERT INTO executing_queries AS row
    (id, proxy_query_id, data, owner, advertise_address, cluster_group, cluster_name,
     next_token, next_uri, last_uri, claimed_at, last_accessed)
SELECT $1, $2, $3::jsonb, $4, $5, $6, $7, $8, $9, $10, clock_timestamp(), clock_timestamp()
WHERE NOT $11 OR EXISTS (SELECT FROM waited)
    OR EXISTS (SELECT FROM executing_queries WHERE proxy_query_id = $2 AND owner = $4)
ON CONFLICT (proxy_query_id) DO UPDATE
    SET id = excluded.id, data = excluded.data, cluster_name = excluded.cluster_name,
        next_token = excluded.next_token, next_uri = excluded.next_uri, last_uri = excluded.last_uri,
        claimed_at = excluded.claimed_at
    WHERE row.owner = excluded.owner
RETURNING true
"""
MOVE = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
UPDATE executing_queries SET next_token = $3, next_uri = $4, last_uri = $5
FROM quick WHERE proxy_query_id = $1 AND owner = $2
RETURNING true
"""
REFRESH = """
WITH asked AS MATERIALIZED (
    SELECT id, clock_timestamp() - secs * interval '1 second' AS at
    FROM unnest($2::text[], $3::double precision[]) AS t (id, secs)),
waiting AS (
    UPDATE queued_queries AS row
        SET claimed_at = clock_timestamp(), last_accessed = greatest(last_accessed, asked.at)
        FROM asked WHERE row.id = asked.id AND claimed_by = $1
        RETURNING row.id, row.last_accessed),
running AS (
    UPDATE executing_queries AS row
        SET claimed_at = clock_timestamp(), last_accessed = greatest(last_accessed, asked.at)
        FROM asked WHERE proxy_query_id = asked.id AND owner = $1
        RETURNING proxy_query_id, row.last_accessed)
SELECT id, extract(epoch FROM clock_timestamp() - last_accessed)::double precision
FROM (SELECT * FROM waiting UNION ALL SELECT * FROM running) AS ours (id, last_accessed)
"""
END = """
WITH waiting AS (
    DELETE FROM queued_queries WHERE id = ANY ($2) AND claimed_by = $1 RETURNING id),
running AS (
    DELETE FROM executing_queries WHERE proxy_query_id = ANY ($2) AND owner = $1 RETURNING proxy_query_id)
SELECT id FROM waiting UNION ALL SELECT proxy_query_id FROM running
"""
GIVE_UP = """
UPDATE queued_queries SET claimed_by = NULL, claimed_at = NULL WHERE claimed_by = $1 RETURNING id
"""
_WAITING = """
id AS query_id, data, false AS executing, claimed_by AS owner, NULL AS address, '' AS cluster,
NULL::integer AS token, NULL AS uri, NULL AS before,
coalesce(claimed_at < clock_timestamp() - {stale}::interval, true) AS stale
"""
_RUNNING = """
coalesce(proxy_query_id, id) AS query_id, data, true AS executing, owner,
advertise_address AS address, cluster_name AS cluster,
next_token AS token, next_uri AS uri, last_uri AS before,
owner IS NULL OR claimed_at < clock_timestamp() - {stale}::interval AS stale
"""
FIND = f"""
WITH waiting AS (
    UPDATE queued_queries SET last_accessed = clock_timestamp() WHERE id = $1
        RETURNING {_WAITING.format(stale="$2")}),
running AS (
    UPDATE executing_queries SET last_accessed = clock_timestamp() WHERE proxy_query_id = $1 OR id = $1
        RETURNING {_RUNNING.format(stale="$2")})
SELECT * FROM waiting UNION ALL SELECT * FROM running
"""  # noqa: S608
CLAIM = f"""
WITH waiting AS (
    UPDATE queued_queries
        SET claimed_by = $2, claimed_at = clock_timestamp(), last_accessed = clock_timestamp()
        WHERE id = $1 AND claimed_by IS NOT DISTINCT FROM $4
            AND ($6 OR claimed_at IS NULL OR claimed_at < clock_timestamp() - $3::interval)
        RETURNING {_WAITING.format(stale="$3")}),
running AS (
    UPDATE executing_queries
        SET owner = $2, advertise_address = $5, claimed_at = clock_timestamp(),
            last_accessed = clock_timestamp()
        WHERE proxy_query_id = $1 AND owner IS NOT DISTINCT FROM $4
            AND ($6 OR claimed_at < clock_timestamp() - $3::interval)
        RETURNING {_RUNNING.format(stale="$3")}),
ours AS (SELECT * FROM waiting UNION ALL SELECT * FROM running),
lease AS (
    UPDATE cluster_capacity_leases SET instance_id = $2, heartbeat_at = clock_timestamp()
        WHERE query_id IN (SELECT query_id FROM ours))
SELECT * FROM ours
"""  # noqa: S608
STALE_WAITING = f"""
SELECT {_WAITING.format(stale="$1")} FROM queued_queries
WHERE (claimed_at IS NULL OR claimed_at < clock_timestamp() - $1::interval)
    AND last_accessed < clock_timestamp() - $2::interval
ORDER BY created_at LIMIT 1000
"""  # noqa: S608
STALE_RUNNING = f"""
SELECT {_RUNNING.format(stale="$1")} FROM executing_queries
WHERE claimed_at < clock_timestamp() - $1::interval AND last_accessed < clock_timestamp() - $2::interval
ORDER BY created_at LIMIT 1000
"""  # noqa: S608

OTHERS = f"""
WITH waiting AS (
    SELECT {_WAITING.format(stale="$2")}, created_at, '' AS backend
    FROM queued_queries WHERE claimed_by IS DISTINCT FROM $1),
running AS (
    SELECT {_RUNNING.format(stale="$2")}, created_at, id AS backend
    FROM executing_queries WHERE owner IS DISTINCT FROM $1)
SELECT * FROM waiting UNION ALL SELECT * FROM running ORDER BY created_at LIMIT {MOST_LISTED}
"""  # noqa: S608
REMOVE_WAITING = """
DELETE FROM queued_queries WHERE id = ANY ($3)
    AND (claimed_at IS NULL OR claimed_at < clock_timestamp() - $1::interval)
    AND last_accessed < clock_timestamp() - $2::interval
"""
REMOVE_RUNNING = """
DELETE FROM executing_queries WHERE coalesce(proxy_query_id, id) = ANY ($3)
    AND claimed_at < clock_timestamp() - $1::interval AND last_accessed < clock_timestamp() - $2::interval
"""
MOST_TOLD = 10_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SharedQuery).decode


class PostgresClaimStore:
    """The claims of one instance; a ClaimStore."""

    def __init__(
        self, pool: "Pool", instance: str, address: str | None, stale_secs: float = STALE_SECS
    ) -> None:
        """``address`` is how other processes reach this one; None: they cannot."""
        self._pool = pool
        self.instance = instance
        self._address = address
        self._stale = timedelta(seconds=stale_secs)
        self._told: set[str] = set()
        """Rows that cannot be read and have been told of."""

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator["asyncpg.Connection"]:
        """A connection for one call. Whatever server or driver complain about, nothing is decided:
        StoreUnavailable."""
        try:
            async with self._pool.connection(watched=True, within=ANSWER_SECS) as connection:
                yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            message = "the database of QueryFlux could not answer"
            raise StoreUnavailable(message, hint=str(error)) from error

    async def relay_key(self) -> bytes:
        """As ClaimStore."""
        async with self._asking() as connection:
            return bytes(await connection.fetchval(KEY))

    async def wait(self, query: SharedQuery) -> bool:
        """As ClaimStore."""
        async with self._asking() as connection:
            told = await connection.fetchval(WAIT, query.id, _text(query), query.group, self.instance)
        return bool(told)

    async def run(
        self, query: SharedQuery, cluster: str, backend_id: str, kept: Kept | None, *, waited: bool
    ) -> bool:
        """As ClaimStore."""
        place = (kept.token, kept.uri, kept.before) if kept is not None else (None, None, None)
        async with self._asking() as connection:
            return bool(
                await connection.fetchval(
                    RUN,
                    backend_id,
                    query.id,
                    _text(query),
                    self.instance,
                    self._address,
                    query.group,
                    cluster,
                    *place,
                    waited,
                )
            )

    async def move(self, query_id: str, kept: Kept) -> bool:
        """As ClaimStore."""
        async with self._asking() as connection:
            place = (kept.token, kept.uri, kept.before)
            return bool(await connection.fetchval(MOVE, query_id, self.instance, *place))

    async def refresh(self, idle: Mapping[str, float]) -> dict[str, float]:
        """As ClaimStore."""
        async with self._asking() as connection:
            rows = await connection.fetch(REFRESH, self.instance, list(idle), list(idle.values()))
        return {row[0]: row[1] for row in rows}

    async def end(self, query_ids: Collection[str]) -> set[str]:
        """As ClaimStore."""
        async with self._asking() as connection:
            return {row[0] for row in await connection.fetch(END, self.instance, list(query_ids))}

    async def give_up(self) -> set[str]:
        """As ClaimStore."""
        async with self._asking() as connection:
            return {row[0] for row in await connection.fetch(GIVE_UP, self.instance)}

    async def find(self, query_id: str) -> SharedRow | None:
        """As ClaimStore."""
        async with self._asking() as connection:
            for _ in range(2):
                row = await connection.fetchrow(FIND, query_id, self._stale)
                if row is not None:
                    return self._row(row)
        return None

    async def claim(self, row: SharedRow, *, alive: bool) -> SharedRow | None:
        """As ClaimStore."""
        async with self._asking() as connection:
            claimed = await connection.fetchrow(
                CLAIM, row.query.id, self.instance, self._stale, row.owner, self._address, alive
            )
        return self._row(claimed) if claimed is not None else None

    async def others(self) -> Sequence[tuple[SharedRow, str]]:
        """As ClaimStore."""
        async with self._asking() as connection:
            rows = await connection.fetch(OTHERS, self.instance, self._stale)
        known = ((self._row(row), row["backend"]) for row in rows)
        return [(row, backend) for row, backend in known if row is not None]

    async def stale(self, *, executing: bool, idle_secs: float) -> Sequence[SharedRow]:
        """As ClaimStore."""
        sql = STALE_RUNNING if executing else STALE_WAITING
        times = (self._stale, timedelta(seconds=idle_secs))
        async with self._asking() as connection:
            rows = await connection.fetch(sql, *times)
            read = [(row["query_id"], self._row(row)) for row in rows]
            if unread := [query_id for query_id, row in read if row is None]:
                await connection.execute(REMOVE_RUNNING if executing else REMOVE_WAITING, *times, unread)
                log.warning("removed %d rows of queries that cannot be read", len(unread))
        return [row for _, row in read if row is not None]

    def _row(self, row: "asyncpg.Record") -> SharedRow | None:
        """None, told of once for each query, when it cannot be read."""
        try:
            return _row(row)
        except (msgspec.MsgspecError, ValueError) as error:
            query_id = row["query_id"]
            if query_id not in self._told:
                if len(self._told) >= MOST_TOLD:
                    self._told.clear()
                self._told.add(query_id)
                log.warning("the row of query %s cannot be read and is passed over: %s", query_id, error)
            return None


def _text(query: SharedQuery) -> str:
    return _encode(query).decode()


def _row(row: "asyncpg.Record") -> SharedRow:
    """Raises MsgspecError and ValueError for one that cannot be read."""
    query = _decode(row["data"])
    ClientProtocol(query.protocol)
    if query.id != row["query_id"]:
        raise ValueError(f"it is about another query, {query.id}")
    kept = Kept(row["token"], row["uri"], row["before"] or "") if row["uri"] is not None else None
    return SharedRow(
        query=query,
        executing=row["executing"],
        owner=row["owner"],
        address=row["address"],
        stale=row["stale"],
        cluster=row["cluster"],
        kept=kept,
    )
