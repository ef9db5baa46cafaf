"""A store as a reader of the same process sees it: with every query that has ended here."""

from collections.abc import Awaitable, Callable, Sequence

from queryflux.history.port import Added, HistoryFilter, HistoryStore, Purged, Summary, Usage
from queryflux.history.stored import StoredQuery


class FreshHistory(HistoryStore):
    """Has what waits sent to the store before it reads there."""

    def __init__(self, store: HistoryStore, flush: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._flush = flush

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        return await self._store.add_many(records)

    async def query(self, wanted: HistoryFilter, limit: int, offset: int = 0) -> list[StoredQuery]:
        await self._flush()
        return await self._store.query(wanted, limit, offset)

    async def get(self, query_id: str) -> StoredQuery | None:
        await self._flush()
        return await self._store.get(query_id)

    async def engines(self) -> list[str]:
        await self._flush()
        return await self._store.engines()

    async def summary(self, since: float) -> Summary:
        await self._flush()
        return await self._store.summary(since)

    async def engine_usage(self, since: float) -> list[Usage]:
        await self._flush()
        return await self._store.engine_usage(since)

    async def group_usage(self, since: float) -> list[Usage]:
        await self._flush()
        return await self._store.group_usage(since)

    async def purge(self, before: float) -> Purged:
        return await self._store.purge(before)
