"""History in memory: the newest records, up to a number of them; older ones make room."""

from collections import deque
from collections.abc import Iterator

from queryflux.history.record import QueryRecord
from queryflux.model.endings import QueryStatus


class MemoryHistory:
    """The newest ``max_records`` records of this process. ``evicted`` counts those that made room."""

    def __init__(self, max_records: int) -> None:
        self._records: deque[QueryRecord] = deque(maxlen=max_records)
        self.stored = 0

    @property
    def evicted(self) -> int:
        """Records that are gone because newer ones came."""
        return self.stored - len(self._records)

    def add(self, record: QueryRecord) -> None:
        """Remember one query."""
        self.stored += 1
        self._records.append(record)

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
