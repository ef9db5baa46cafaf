"""History in memory: the newest records, up to a number of them; older ones make room."""

from collections import deque
from collections.abc import Iterator

from queryflux.history.record import QueryRecord
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
        self.stored = 0

    @property
    def evicted(self) -> int:
        """Records that are gone because newer ones came."""
        return self.stored - len(self._records)

    def add(self, record: QueryRecord) -> None:
        """Remember one query."""
        self.stored += 1
        self._records.append(record)
        self._bytes += size_of(record)
        while len(self._records) > self._max_records or self._bytes > self._max_bytes:
            self._bytes -= size_of(self._records.popleft())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, query_id: str) -> QueryRecord | None:
        """The record of a query."""
        return next((record for record in self.newest() if record.proxy_query_id == query_id), None)

    def newest(
        self, *, group: str | None = None, status: QueryStatus | None = None, search: str | None = None
    ) -> Iterator[QueryRecord]:
        """Newest first; ``search`` looks for a piece of the SQL, case aside."""
        needle = search.casefold() if search else None
        for record in reversed(self._records):
            if (
                (group is None or record.cluster_group == group)
                and (status is None or record.status is status)
                and (needle is None or needle in record.sql_preview.casefold())
            ):
                yield record


def size_of(record: QueryRecord) -> int:
    """About the bytes that a record holds."""
    texts = len(record.sql_text) + len(record.translated_sql or "") + len(record.error_message or "")
    return RECORD_OVERHEAD + texts
