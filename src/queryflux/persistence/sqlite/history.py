"""Records of queries in SQLite: those of one process, in its file."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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
from queryflux.model.errors import RecordsRefused
from queryflux.persistence.records import (
    DIGEST_TEXTS,
    FIGURES,
    PLAIN_COLUMNS,
    SUMMARY,
    columns_of,
    conditions,
    record_of,
    summary_of,
    usage_of,
)
from queryflux.persistence.sqlite.database import SqliteDatabase

PURGED_AT_A_TIME = 2000
"""Rows deleted in one transaction: the file is nobody else's meanwhile."""

_COLUMNS = (*PLAIN_COLUMNS, "sql_preview", "created_at")

STEPS = (
    (
        """
        CREATE TABLE query_records (
            id INTEGER PRIMARY KEY,
            proxy_query_id TEXT NOT NULL UNIQUE,
            instance_id TEXT,
            worker TEXT,
            cluster_group TEXT NOT NULL,
            cluster_name TEXT NOT NULL,
            engine_type TEXT NOT NULL,
            frontend_protocol TEXT NOT NULL,
            source_dialect TEXT NOT NULL,
            target_dialect TEXT NOT NULL,
            was_translated INTEGER NOT NULL,
            username TEXT,
            catalog TEXT,
            db_name TEXT,
            sql_text TEXT,
            sql_preview TEXT NOT NULL,
            translated_sql TEXT,
            status TEXT NOT NULL,
            reason TEXT,
            routing_trace TEXT,
            queue_duration_ms REAL NOT NULL,
            execution_duration_ms REAL NOT NULL,
            rows_returned INTEGER,
            error_code TEXT,
            error_message TEXT,
            backend_query_id TEXT,
            engine_elapsed_time_ms INTEGER,
            cpu_time_ms INTEGER,
            processed_rows INTEGER,
            processed_bytes INTEGER,
            physical_input_bytes INTEGER,
            peak_memory_bytes INTEGER,
            spilled_bytes INTEGER,
            total_splits INTEGER,
            query_tags TEXT,
            query_hash INTEGER,
            query_parameterized_hash INTEGER,
            translated_query_hash INTEGER,
            translation_status TEXT,
            translation_reason TEXT,
            translation_message TEXT,
            translation_position INTEGER,
            created_at REAL NOT NULL
        )
        """,
        "CREATE INDEX query_records_created_at ON query_records (created_at DESC, id DESC)",
        "CREATE INDEX query_records_group ON query_records (cluster_group, created_at DESC)",
        "CREATE INDEX query_records_status ON query_records (status, created_at DESC)",
        """
        CREATE TABLE query_digest_stats (
            query_parameterized_hash INTEGER PRIMARY KEY,
            digest_text TEXT NOT NULL,
            translated_query_hash INTEGER,
            translated_digest_text TEXT,
            first_seen REAL NOT NULL,
            last_seen REAL NOT NULL,
            call_count INTEGER NOT NULL,
            sum_execution_ms REAL NOT NULL,
            sum_rows_returned INTEGER NOT NULL,
            cluster_group TEXT NOT NULL
        )
        """,
        "CREATE INDEX query_digest_stats_last_seen ON query_digest_stats (last_seen)",
        """
        CREATE TABLE cluster_snapshots (
            id INTEGER PRIMARY KEY,
            cluster_name TEXT NOT NULL,
            group_name TEXT NOT NULL,
            engine_type TEXT NOT NULL,
            running_queries INTEGER NOT NULL,
            queued_queries INTEGER NOT NULL,
            max_running_queries INTEGER,
            recorded_at REAL NOT NULL
        )
        """,
        "CREATE INDEX cluster_snapshots_recorded_at ON cluster_snapshots (recorded_at)",
    ),
)

_INSERT = (
    f"INSERT INTO query_records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "  # noqa: S608
    "ON CONFLICT (proxy_query_id) DO NOTHING"
)
_COUNT_DIGEST = """
INSERT INTO query_digest_stats VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?)
ON CONFLICT (query_parameterized_hash) DO UPDATE SET
    translated_query_hash = coalesce(excluded.translated_query_hash, translated_query_hash),
    translated_digest_text = coalesce(excluded.translated_digest_text, translated_digest_text),
    first_seen = min(first_seen, excluded.first_seen),
    last_seen = max(last_seen, excluded.last_seen),
    call_count = call_count + 1,
    sum_execution_ms = sum_execution_ms + excluded.sum_execution_ms,
    sum_rows_returned = sum_rows_returned + excluded.sum_rows_returned,
    cluster_group = excluded.cluster_group
"""
_READ_COLUMNS = (*PLAIN_COLUMNS, *DIGEST_TEXTS, "created_at")
_READ = f"""
SELECT {", ".join(f"r.{name}" for name in PLAIN_COLUMNS)},
    d.digest_text,
    CASE WHEN r.translated_query_hash = d.translated_query_hash THEN d.translated_digest_text END,
    r.created_at
FROM query_records r LEFT JOIN query_digest_stats d USING (query_parameterized_hash)
"""  # noqa: S608


class SqliteHistoryStore(DurableHistoryStore):
    """The history of one process."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def open(self) -> None:
        """Bring the file's tables up to date. Raises ConfigError, StoreUnavailable."""
        await self._database.upgrade("history", STEPS)

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        return await self._database.write(lambda connection: _add(connection, records))

    async def query(self, wanted: HistoryFilter, limit: int, offset: int = 0) -> list[StoredQuery]:
        values: list[Any] = []

        def place(value: Any) -> str:
            values.append(value)
            return "?"

        where = conditions(wanted, "instr(lower(r.sql_preview), lower({})) > 0", place)
        sql = f"{_READ} {where} ORDER BY r.created_at DESC, r.id DESC LIMIT ? OFFSET ?"
        return await self._records(sql, *values, limit, offset)

    async def get(self, query_id: str) -> StoredQuery | None:
        return next(iter(await self._records(f"{_READ} WHERE r.proxy_query_id = ?", query_id)), None)

    async def engines(self) -> list[str]:
        rows = await self._rows(
            "SELECT DISTINCT engine_type FROM query_records WHERE engine_type <> '' ORDER BY engine_type"
        )
        return [name for (name,) in rows]

    async def summary(self, since: float) -> Summary:
        sql = f"SELECT {SUMMARY} FROM query_records r WHERE r.created_at >= ?"  # noqa: S608
        return summary_of((await self._rows(sql, since))[0])

    async def engine_usage(self, since: float) -> list[Usage]:
        return await self._usage("engine_type", since)

    async def group_usage(self, since: float) -> list[Usage]:
        return await self._usage("cluster_group", since)

    async def _usage(self, column: str, since: float) -> list[Usage]:
        sql = (
            f"SELECT r.{column}, {FIGURES} FROM query_records r "  # noqa: S608
            f"WHERE r.created_at >= ? AND r.{column} <> '' GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return [usage_of(row) for row in await self._rows(sql, since)]

    async def add_snapshots(self, snapshots: Sequence[ClusterSnapshot]) -> None:
        rows = [
            (
                one.cluster_name,
                one.group_name,
                one.engine_type,
                one.running_queries,
                one.queued_queries,
                one.max_running_queries,
                one.recorded_at,
            )
            for one in snapshots
        ]
        sql = "INSERT INTO cluster_snapshots VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
        await self._database.write(lambda connection: connection.executemany(sql, rows))

    async def purge(self, before: float) -> Purged:
        return Purged(
            await self._delete("query_records", "created_at", before),
            await self._delete("query_digest_stats", "last_seen", before),
            await self._delete("cluster_snapshots", "recorded_at", before),
        )

    async def _delete(self, table: str, column: str, before: float) -> int:
        sql = (
            f"DELETE FROM {table} WHERE rowid IN "  # noqa: S608
            f"(SELECT rowid FROM {table} WHERE {column} < ? LIMIT {PURGED_AT_A_TIME})"
        )
        total = 0
        while True:
            deleted = await self._database.write(
                lambda connection: connection.execute(sql, (before,)).rowcount
            )
            total += deleted
            if deleted < PURGED_AT_A_TIME:
                return total

    async def _rows(self, sql: str, *values: Any) -> list[Any]:
        return await self._database.read(lambda connection: connection.execute(sql, values).fetchall())

    async def _records(self, sql: str, *values: Any) -> list[StoredQuery]:
        return [record_of(_READ_COLUMNS, row) for row in await self._rows(sql, *values)]


def _add(connection: sqlite3.Connection, records: Sequence[StoredQuery]) -> Added:
    stored = 0
    with _refusing():
        columns = list(columns_of(records))
        for record, *values in zip(records, *columns, strict=True):
            row = (*values, record.sql_preview, record.created_at)
            if connection.execute(_INSERT, row).rowcount:
                stored += 1
                _count_digest(connection, record)
    return Added(stored, len(records) - stored)


def _count_digest(connection: sqlite3.Connection, record: StoredQuery) -> None:
    if record.query_parameterized_hash is None or record.digest_text is None:
        return
    connection.execute(
        _COUNT_DIGEST,
        (
            record.query_parameterized_hash,
            record.digest_text,
            record.translated_query_hash,
            record.translated_digest_text,
            record.created_at,
            record.created_at,
            record.execution_duration_ms,
            record.rows_returned or 0,
            record.cluster_group,
        ),
    )


@contextmanager
def _refusing() -> Iterator[None]:
    """What the values are at fault for."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeError) as error:
        raise RecordsRefused(f"not to be stored: {error}") from error
