"""Records of queries in PostgreSQL: those of the whole fleet.

A batch is one statement: new records, and the digests of exactly those. Nothing is notified; records are
stored in the order of their ids, and digests counted in that of their hashes, so that two processes cannot
wait for each other.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from queryflux.history.port import (
    Added,
    ClusterSnapshot,
    DurableHistoryStore,
    HistoryFilter,
    Purged,
    Summary,
    Usage,
)
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import RecordsRefused, StoreUnavailable
from queryflux.persistence.records import (
    DIGEST_TEXTS,
    FIGURES,
    JSON_COLUMNS,
    PLAIN_COLUMNS,
    SUMMARY,
    columns_of,
    conditions,
    record_of,
    summary_of,
    usage_of,
)

if TYPE_CHECKING:
    from queryflux.persistence.postgres.pools import Pool

PURGED_AT_A_TIME = 10_000
"""Rows deleted by one statement: it must end long before the statement time-out."""

_FLOATS = {"queue_duration_ms", "execution_duration_ms"}
_INTS = {"total_splits", "translation_position"}
_BIGINTS = {
    "rows_returned",
    "engine_elapsed_time_ms",
    "cpu_time_ms",
    "processed_rows",
    "processed_bytes",
    "physical_input_bytes",
    "peak_memory_bytes",
    "spilled_bytes",
    "query_hash",
    "query_parameterized_hash",
    "translated_query_hash",
}
_SENT = (*PLAIN_COLUMNS, *DIGEST_TEXTS, "sql_preview", "created_at")
"""What a batch sends, an array each."""


def _array_type(name: str) -> str:
    if name in _FLOATS or name == "created_at":
        return "float8[]"
    if name == "was_translated":
        return "bool[]"
    return "bigint[]" if name in _BIGINTS else "int[]" if name in _INTS else "text[]"


def _given(name: str) -> str:
    if name == "created_at":
        return "to_timestamp(g.created_at)"
    return f"g.{name}::jsonb" if name in JSON_COLUMNS else f"g.{name}"


# An array without a value is sent empty: unnest fills up with nulls.
_RECORD = (*PLAIN_COLUMNS, "sql_preview", "created_at")
_ADD = f"""
WITH given AS (
    SELECT * FROM unnest({", ".join(f"${n}::{_array_type(name)}" for n, name in enumerate(_SENT, 1))})
        AS g({", ".join(_SENT)})
), added AS (
    INSERT INTO query_records ({", ".join(_RECORD)}, cluster_group_id, cluster_id)
    SELECT {", ".join(map(_given, _RECORD))}, cluster_group.id, cluster.id
    FROM given g
    LEFT JOIN cluster_group_configs cluster_group ON cluster_group.name = g.cluster_group
    LEFT JOIN cluster_configs cluster ON cluster.name = split_part(g.cluster_name, '::', 1)
    ORDER BY g.proxy_query_id
    ON CONFLICT (proxy_query_id) DO NOTHING
    RETURNING proxy_query_id
), digests AS (
    INSERT INTO query_digest_stats AS known (
        query_parameterized_hash, digest_text, translated_query_hash, translated_digest_text,
        first_seen, last_seen, call_count, sum_execution_ms, sum_rows_returned, cluster_group
    )
    SELECT
        g.query_parameterized_hash,
        min(g.digest_text),
        (array_agg(g.translated_query_hash ORDER BY g.created_at DESC)
            FILTER (WHERE g.translated_query_hash IS NOT NULL))[1],
        (array_agg(g.translated_digest_text ORDER BY g.created_at DESC)
            FILTER (WHERE g.translated_query_hash IS NOT NULL))[1],
        to_timestamp(min(g.created_at)),
        to_timestamp(max(g.created_at)),
        count(*),
        sum(g.execution_duration_ms),
        least(coalesce(sum(g.rows_returned), 0), 9223372036854775807)::bigint,
        (array_agg(g.cluster_group ORDER BY g.created_at DESC))[1]
    FROM given g JOIN added USING (proxy_query_id)
    WHERE g.query_parameterized_hash IS NOT NULL AND g.digest_text IS NOT NULL
    GROUP BY 1 ORDER BY 1
    ON CONFLICT (query_parameterized_hash) DO UPDATE SET
        translated_query_hash = coalesce(excluded.translated_query_hash, known.translated_query_hash),
        translated_digest_text = coalesce(excluded.translated_digest_text, known.translated_digest_text),
        first_seen = least(known.first_seen, excluded.first_seen),
        last_seen = greatest(known.last_seen, excluded.last_seen),
        call_count = known.call_count + excluded.call_count,
        sum_execution_ms = known.sum_execution_ms + excluded.sum_execution_ms,
        sum_rows_returned = least(
            known.sum_rows_returned::numeric + excluded.sum_rows_returned, 9223372036854775807
        )::bigint,
        cluster_group = excluded.cluster_group
)
SELECT count(*) FROM added
"""  # noqa: S608

_READ_COLUMNS = (*PLAIN_COLUMNS, *DIGEST_TEXTS, "created_at")
_READ = f"""
SELECT {", ".join(f"r.{name}" for name in PLAIN_COLUMNS)},
    d.digest_text,
    CASE WHEN r.translated_query_hash = d.translated_query_hash THEN d.translated_digest_text END,
    extract(epoch FROM r.created_at)::float8
FROM query_records r LEFT JOIN query_digest_stats d USING (query_parameterized_hash)
"""  # noqa: S608

_REFUSALS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    UnicodeError,
    OverflowError,
)
"""What a record's values are at fault for."""
_MOST_TRIES = 5
"""For a batch whose cluster or group is removed at the moment that it is stored."""


class PostgresHistoryStore(DurableHistoryStore):
    """The history that a fleet shares."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        distinct = list({record.proxy_query_id: record for record in reversed(records)}.values())[::-1]
        arrays = list(columns_of(distinct))
        arrays += ([getattr(record, name) for record in distinct] for name in _SENT[len(PLAIN_COLUMNS) :])
        arrays = [values if values.count(None) < len(values) else [] for values in arrays]
        async with self._pool.connection() as connection:
            try:
                stored = await _add(connection, arrays)
            except _REFUSALS as error:
                raise RecordsRefused(_reason(error)) from None
        return Added(stored, len(records) - stored)

    async def query(self, wanted: HistoryFilter, limit: int, offset: int = 0) -> list[StoredQuery]:
        values: list[Any] = []

        def place(value: Any) -> str:
            values.append(value)
            return f"${len(values)}"

        where = conditions(wanted, "strpos(lower(r.sql_preview), lower({})) > 0", place)
        page = f"LIMIT {place(limit)} OFFSET {place(offset)}"
        return await self._records(f"{_READ} {where} ORDER BY r.created_at DESC, r.id DESC {page}", *values)

    async def get(self, query_id: str) -> StoredQuery | None:
        return next(iter(await self._records(f"{_READ} WHERE r.proxy_query_id = $1", query_id)), None)

    async def engines(self) -> list[str]:
        rows = await self._rows(
            "SELECT DISTINCT engine_type FROM query_records WHERE engine_type <> '' ORDER BY engine_type"
        )
        return [row[0] for row in rows]

    async def summary(self, since: float) -> Summary:
        sql = f"SELECT {SUMMARY} FROM query_records r WHERE r.created_at >= to_timestamp($1)"  # noqa: S608
        return summary_of((await self._rows(sql, since))[0])

    async def engine_usage(self, since: float) -> list[Usage]:
        return await self._usage("r.engine_type", "", since)

    async def group_usage(self, since: float) -> list[Usage]:
        present = "coalesce(g.name, r.cluster_group)"
        return await self._usage(
            present, "LEFT JOIN cluster_group_configs g ON g.id = r.cluster_group_id", since
        )

    async def _usage(self, name: str, join: str, since: float) -> list[Usage]:
        sql = (
            f"SELECT {name}, {FIGURES} FROM query_records r {join} "  # noqa: S608
            f"WHERE r.created_at >= to_timestamp($1) AND {name} <> '' GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return [usage_of(row) for row in await self._rows(sql, since)]

    async def add_snapshots(self, snapshots: Sequence[ClusterSnapshot]) -> None:
        sql = """
            INSERT INTO cluster_snapshots (
                cluster_name, group_name, engine_type, running_queries, queued_queries, max_running_queries,
                recorded_at
            )
            SELECT c, g, e, running, queued, most, to_timestamp(t)
            FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::int[], $6::int[], $7::float8[])
                AS given(c, g, e, running, queued, most, t)
        """
        names = ClusterSnapshot.__struct_fields__
        await self._rows(sql, *([getattr(one, name) for one in snapshots] for name in names))

    async def purge(self, before: float) -> Purged:
        return Purged(
            await self._delete("query_records", "created_at", before),
            await self._delete("query_digest_stats", "last_seen", before),
            await self._delete("cluster_snapshots", "recorded_at", before),
        )

    async def _delete(self, table: str, column: str, before: float) -> int:
        sql = f"""
            WITH old AS (
                DELETE FROM {table} WHERE ctid IN (
                    SELECT ctid FROM {table} WHERE {column} < to_timestamp($1) LIMIT {PURGED_AT_A_TIME}
                ) AND {column} < to_timestamp($1) RETURNING 1
            )
            SELECT count(*) FROM old
        """  # noqa: S608
        total = 0
        while True:
            deleted: int = (await self._rows(sql, before))[0][0]
            total += deleted
            if deleted < PURGED_AT_A_TIME:
                return total

    async def _rows(self, sql: str, *values: Any) -> list[Any]:
        async with self._pool.connection() as connection:
            rows: list[Any] = await connection.fetch(sql, *values)
            return rows

    async def _records(self, sql: str, *values: Any) -> list[StoredQuery]:
        return [record_of(_READ_COLUMNS, row) for row in await self._rows(sql, *values)]


async def _add(connection: "asyncpg.Connection", arrays: Sequence[list[Any]]) -> int:
    """Store a batch; how many records are new. A cluster or group that is removed between the statement's
    look at it and the check of its reference is no fault of the records: the next statement does not see
    it. Raises what the database complains about."""
    for _ in range(_MOST_TRIES - 1):
        with suppress(asyncpg.ForeignKeyViolationError):
            return int(await connection.fetchval(_ADD, *arrays))
    try:
        return int(await connection.fetchval(_ADD, *arrays))
    except asyncpg.ForeignKeyViolationError as error:
        raise StoreUnavailable("clusters and groups of the database keep changing") from error


def _reason(error: Exception) -> str:
    """What the database complains about. Its message may quote the record, and goes to no log."""
    kind = type(error).__name__
    return f"{kind} ({error.sqlstate})" if isinstance(error, asyncpg.PostgresError) else kind
