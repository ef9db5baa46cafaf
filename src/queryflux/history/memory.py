"""History in memory: the newest records, up to a number of them; older ones make room."""

from collections import deque
from collections.abc import Callable, Iterator

from queryflux.history.record import QueryRecord
from queryflux.history.stored import StoredQuery
from queryflux.model.endings import QueryStatus

MAX_BYTES = 64 << 20
RECORD_OVERHEAD = 1500
"""About what a record takes without its texts."""


class MemoryHistory:
    """The newest ``max_records`` records of this process, in about ``max_bytes`` of memory. ``evicted``
    counts those that made room."""

    def __init__(self, max_records: int, max_bytes: int = MAX_BYTES) -> None:
        self._records: deque[QueryRecord] = deque()
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._bytes = 0
        self._evicted = 0
        self._catch_up: Callable[[], object] | None = None

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        """Call ``catch_up`` before anything is shown: it may bring records."""
        self._catch_up = catch_up

    @property
    def records(self) -> deque[QueryRecord]:
        """What is remembered, oldest first."""
        if self._catch_up is not None:
            self._catch_up()
        return self._records

    @property
    def stored(self) -> int:
        """Records that ever came."""
        return len(self.records) + self._evicted

    @property
    def evicted(self) -> int:
        """Records that are gone because newer ones came."""
        return self.stored - len(self._records)

    def add(self, record: QueryRecord) -> None:
        """Remember one query."""
        records = self._records
        records.append(record)
        self._bytes += size_of(record)
        while self._bytes > self._max_bytes or len(records) > self._max_records:
            self._bytes -= size_of(records.popleft())
            self._evicted += 1

    def take(self) -> list[QueryRecord]:
        """Forget everything, and give it away, oldest first."""
        taken = list(self.records)
        self._records.clear()
        self._bytes = 0
        self._evicted += len(taken)
        return taken

    def __len__(self) -> int:
        return len(self.records)

    def get(self, query_id: str) -> QueryRecord | None:
        """The record of a query."""
        return next((record for record in self.newest() if record.proxy_query_id == query_id), None)

    def newest(
        self, *, group: str | None = None, status: QueryStatus | None = None, search: str | None = None
    ) -> Iterator[QueryRecord]:
        """Newest first; ``search`` looks for a piece of the SQL, case aside."""
        needle = search.casefold() if search else None
        for record in reversed(self.records):
            if (
                (group is None or record.cluster_group == group)
                and (status is None or record.status is status)
                and (needle is None or needle in record.sql_preview.casefold())
            ):
                yield record


def size_of(record: QueryRecord | StoredQuery) -> int:
    """About the bytes that a record holds."""
    size = RECORD_OVERHEAD
    if record.sql_text is not None:
        size += len(record.sql_text)
    if record.translated_sql is not None:
        size += len(record.translated_sql)
    if record.error_message is not None:
        size += len(record.error_message)
    return size
