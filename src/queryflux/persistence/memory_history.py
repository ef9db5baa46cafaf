"""Records of queries in memory, as a store: what this process ran, and what others sent."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from queryflux.history.memory import MAX_BYTES, MemoryHistory, size_of
from queryflux.history.port import Added, HistoryFilter, HistoryStore, Purged, Summary, Usage
from queryflux.history.record import QueryRecord
from queryflux.history.stored import StoredQuery, engine_label
from queryflux.runtime.threads import in_thread

Prepare = Callable[[QueryRecord], StoredQuery]
AnyRecord = QueryRecord | StoredQuery
T = TypeVar("T")


class MemoryHistoryStore(HistoryStore):
    """Reads a MemoryHistory, and keeps the newest ``max_received`` of the records that are added to it."""

    def __init__(
        self, own: MemoryHistory, prepare: Prepare, max_received: int, max_bytes: int = MAX_BYTES
    ) -> None:
        """``prepare`` makes the stored form of a record of this process; it is called in any thread."""
        self._own = own
        self._prepare = prepare
        self._max_received = max_received
        self._max_bytes = max_bytes
        self._received: dict[str, StoredQuery] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Records of this process and of others."""
        return len(self._own) + len(self._received)

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        return self.keep(records)

    def keep(self, records: Sequence[StoredQuery]) -> Added:
        """``add_many`` for who cannot wait."""
        received, stored = self._received, 0
        for record in records:
            if record.proxy_query_id not in received:
                received[record.proxy_query_id] = record
                self._bytes += size_of(record)
                stored += 1
        while len(received) > self._max_received or self._bytes > self._max_bytes:
            self._bytes -= size_of(received.pop(next(iter(received))))
        return Added(stored, len(records) - stored)

    def take(self) -> list[StoredQuery]:
        """Forget what was added, and give it away, oldest first."""
        taken = list(self._received.values())
        self._received.clear()
        self._bytes = 0
        return taken

    async def _read(self, look: Callable[[list[AnyRecord]], T]) -> T:
        """What ``look`` makes of all records, newest first. Off the loop: there may be thousands of them."""
        records: list[AnyRecord] = [*self._received.values(), *self._own.records]

        def work() -> T:
            records.sort(key=lambda record: record.created_at)
            records.reverse()
            return look(records)

        return await in_thread("history", work)

    async def _read_since(self, since: float, look: Callable[[list[AnyRecord]], T]) -> T:
        return await self._read(
            lambda records: look([record for record in records if record.created_at >= since])
        )

    def _stored(self, record: AnyRecord) -> StoredQuery:
        return record if isinstance(record, StoredQuery) else self._prepare(record)

    async def query(self, wanted: HistoryFilter, limit: int, offset: int = 0) -> list[StoredQuery]:
        def look(records: list[AnyRecord]) -> list[StoredQuery]:
            found = [record for record in records if _matches(record, wanted)]
            return [self._stored(record) for record in found[offset : offset + limit]]

        return await self._read(look)

    async def get(self, query_id: str) -> StoredQuery | None:
        record = self._received.get(query_id) or self._own.get(query_id)
        return self._stored(record) if record is not None else None

    async def engines(self) -> list[str]:
        return await self._read(
            lambda records: sorted({engine_label(it.engine_type) for it in records if it.engine_type})
        )

    async def summary(self, since: float) -> Summary:
        return await self._read_since(since, _summary)

    async def engine_usage(self, since: float) -> list[Usage]:
        return await self._read_since(
            since, lambda records: _usage((engine_label(it.engine_type), it) for it in records)
        )

    async def group_usage(self, since: float) -> list[Usage]:
        return await self._read_since(since, lambda records: _usage((it.cluster_group, it) for it in records))

    async def purge(self, before: float) -> Purged:
        old = [name for name, record in self._received.items() if record.created_at < before]
        for name in old:
            self._bytes -= size_of(self._received.pop(name))
        return Purged(len(old), 0, 0)


def _matches(record: AnyRecord, wanted: HistoryFilter) -> bool:
    return (
        (wanted.status is None or record.status == wanted.status)
        and (wanted.cluster_group is None or record.cluster_group == wanted.cluster_group)
        and (wanted.engine is None or engine_label(record.engine_type) == wanted.engine)
        and (wanted.user is None or record.username == wanted.user)
        and (wanted.worker is None or getattr(record, "worker", None) == wanted.worker)
        and (wanted.search is None or wanted.search.lower() in record.sql_preview.lower())
    )


def _summary(records: Sequence[AnyRecord]) -> Summary:
    return Summary(
        queries=len(records),
        error_rate=_mean(record.status != "Success" for record in records),
        avg_duration_ms=_mean(record.execution_duration_ms for record in records),
        translation_rate=_mean(map(_translated, records)),
    )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _translated(record: AnyRecord) -> bool:
    return record.was_translated if isinstance(record, StoredQuery) else record.translated_sql is not None


def _usage(named: Iterable[tuple[str, AnyRecord]]) -> list[Usage]:
    by_name: dict[str, list[AnyRecord]] = {}
    for name, record in named:
        if name:
            by_name.setdefault(name, []).append(record)
    usages = [_usage_of(name, group) for name, group in by_name.items()]
    return sorted(usages, key=lambda usage: (-usage.total_queries, usage.name))


def _usage_of(name: str, records: Sequence[AnyRecord]) -> Usage:
    durations = [record.execution_duration_ms for record in records]
    statuses = [str(record.status) for record in records]
    return Usage(
        name=name,
        total_queries=len(records),
        success_queries=statuses.count("Success"),
        failed_queries=statuses.count("Failed") + statuses.count("Denied"),
        cancelled_queries=statuses.count("Cancelled"),
        avg_execution_ms=_mean(durations),
        min_execution_ms=min(durations),
        max_execution_ms=max(durations),
        avg_queue_ms=_mean(record.queue_duration_ms for record in records),
        translated_queries=sum(map(_translated, records)),
        total_rows=sum(record.rows_returned or 0 for record in records),
    )
