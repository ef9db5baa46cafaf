"""Where records are kept, as history sees it. What every store holds: tests/contract/test_history_store.py.

- A query is stored once, whoever sends its record and how often: the first one stays.
- Digests are counted from records that were really stored, in the same transaction.
- A call that cannot be made, or of which nobody knows whether it was made, raises StoreUnavailable; to make
  it again is safe.
- A batch with a record that the store cannot take raises RecordsRefused, and nothing of it is stored.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from queryflux.history.stored import StoredQuery


class Added(NamedTuple):
    """What became of a batch: records that are new, records that the store had already."""

    stored: int
    duplicates: int


class Purged(NamedTuple):
    """What retention deleted."""

    records: int
    digests: int
    snapshots: int


class HistoryFilter(Struct, frozen=True, kw_only=True):
    """Which records; what is None does not matter. ``search`` is a piece of the preview, the
    case of ASCII letters aside; the others are whole values, spelled as they are stored."""

    search: str | None = None
    status: str | None = None
    cluster_group: str | None = None
    engine: str | None = None
    user: str | None = None
    worker: str | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """Some time at a glance. Rates are shares from 0 to 1, of all queries; whatever is not Success counts as
    an error. The duration is that of execution, in milliseconds."""

    queries: int
    error_rate: float
    avg_duration_ms: float
    translation_rate: float


class Usage(Struct, frozen=True, kw_only=True):
    """Queries of one engine or one group. Denied ones are among the failed; durations are milliseconds."""

    name: str
    total_queries: int
    success_queries: int
    failed_queries: int
    cancelled_queries: int
    avg_execution_ms: float
    min_execution_ms: float
    max_execution_ms: float
    avg_queue_ms: float
    translated_queries: int
    total_rows: int


class ClusterSnapshot(Struct, frozen=True, kw_only=True):
    """How busy a cluster was as a member of one group. ``max_running_queries`` None: no limit;
    ``queued_queries`` are those of the group."""

    cluster_name: str
    group_name: str
    engine_type: str
    running_queries: int
    queued_queries: int
    max_running_queries: int | None
    recorded_at: float


class HistoryStore(Protocol):
    """Records of finished queries. Times are seconds since the epoch. Every call raises StoreUnavailable."""

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        """Store what is not stored yet. Raises RecordsRefused."""

    async def query(self, wanted: HistoryFilter, limit: int, offset: int = 0) -> list[StoredQuery]:
        """Newest first."""

    async def get(self, query_id: str) -> StoredQuery | None:
        """The record of a query."""

    async def engines(self) -> list[str]:
        """Engines that records name, in order."""

    async def summary(self, since: float) -> Summary:
        """Queries that came since then."""

    async def engine_usage(self, since: float) -> list[Usage]:
        """Queries that came since then, by engine; those that reached none are left out."""

    async def group_usage(self, since: float) -> list[Usage]:
        """Queries that came since then, by group under its present name; those without one are left out."""

    async def purge(self, before: float) -> Purged:
        """Delete records and snapshots made before then, and digests not seen since."""


class DurableHistoryStore(HistoryStore, Protocol):
    """A store that outlives its process; it keeps how busy clusters were, too."""

    async def add_snapshots(self, snapshots: Sequence[ClusterSnapshot]) -> None:
        """Keep how busy clusters were. Raises StoreUnavailable."""
