"""Queries as operators see them: those that run, those that have ended, and what they add up to. No HTTP."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from queryflux.controlplane.live import Live
from queryflux.history.port import HistoryFilter, HistoryStore, Summary, Usage
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import QueryNotFound, StoreUnavailable
from queryflux.runtime.clock import Clock

ELSEWHERE_SECS = 4.0
"""So long queries of other processes are waited for; the database's own limit is shorter, as a rule."""
MAX_HOURS = 168
MAX_LIMIT = 1000
_HOUR = 3600.0


class QueriesService:
    """Looks into history and at what runs in this process. Methods that look into history raise
    StoreUnavailable."""

    def __init__(self, history: HistoryStore, live: Live, clock: Clock) -> None:
        self._history = history
        self._live = live
        self._clock = clock

    async def ended(self, wanted: HistoryFilter, limit: int, offset: int) -> list[dict[str, Any]]:
        """Records of queries that have ended, newest first, at most MAX_LIMIT; without their whole text."""
        rows = await self._history.query(wanted, min(limit, MAX_LIMIT), offset)
        return [short(row) for row in rows]

    async def one(self, query_id: str) -> dict[str, Any]:
        """Everything that is known of a query that has ended. Raises QueryNotFound."""
        row = await self._history.get(query_id)
        if row is None:
            raise QueryNotFound(f"history has no query {query_id!r}", hint="it may still run, or be too old")
        return {**short(row), "sql_text": row.sql_text}

    async def running(self) -> tuple[list[dict[str, Any]], str]:
        """Queries that run or wait, the oldest first: those of this process, and what it knows of those of
        others. And why it does not know these, or nothing."""
        found, why = list(self._live.running()), ""
        try:
            async with asyncio.timeout(ELSEWHERE_SECS):
                found += await self._live.running_elsewhere()
        except (StoreUnavailable, TimeoutError) as error:
            late = f"no answer within {ELSEWHERE_SECS:g} s"
            said = error.message if isinstance(error, StoreUnavailable) else late
            why = f"queries of other processes cannot be listed: {said}"
        found.sort(key=lambda query: query.created_at)
        return [to_builtins(query) for query in found], why

    async def cancel(self, query_id: str) -> None:
        """End a query, by our id or its engine's. Raises QueryNotFound."""
        if not await self._live.cancel(query_id):
            raise QueryNotFound(
                f"no query {query_id!r} runs here",
                hint="it may have ended; GET /admin/queries/running lists those that can be cancelled here,"
                " and not those of the fleet's workers, which their clients end",
            )

    async def last_hour(self) -> Summary:
        """The last hour at a glance."""
        return await self._history.summary(self._clock.now() - _HOUR)

    async def engines(self) -> list[str]:
        """Engines that queries went to."""
        return await self._history.engines()

    async def engine_usage(self, hours: int) -> Sequence[Usage]:
        """By engine, over so many hours (1 to MAX_HOURS)."""
        return await self._history.engine_usage(self._since(hours))

    async def group_usage(self, hours: int) -> Sequence[Usage]:
        """By group, over so many hours (1 to MAX_HOURS)."""
        return await self._history.group_usage(self._since(hours))

    def _since(self, hours: int) -> float:
        return self._clock.now() - min(max(hours, 1), MAX_HOURS) * _HOUR


def short(row: StoredQuery) -> dict[str, Any]:
    """A record as JSON, with the beginning of its text."""
    record = asdict(row)
    record["sql_preview"] = row.sql_preview
    del record["sql_text"]
    return record
