"""Where a process keeps its records: the newest in memory, and all of them in a store when there is one.
Those of a worker go to its control plane."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from queryflux.config.process import ProcessConfig
from queryflux.history.batches import Send, sending_to
from queryflux.history.buffer import DEFAULT_PACE, HistoryBuffer, Pace
from queryflux.history.fresh import FreshHistory
from queryflux.history.memory import MemoryHistory
from queryflux.history.port import ClusterSnapshot, DurableHistoryStore, HistoryStore
from queryflux.history.record import KEPT_LENGTH, QueryRecord
from queryflux.history.redaction import Held, Redaction, in_turns, redacted, stricter, strictest, told
from queryflux.history.stored import Digests, StoredQuery, engine_label, stored_form
from queryflux.history.upkeep import Sweep, keep_for_days, snapshot_clusters
from queryflux.persistence.memory_history import MemoryHistoryStore
from queryflux.pipeline.generation import Generation
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.sql.fingerprint import fingerprint, mask_literals

log = logging.getLogger(__name__)

READERS_WAIT_SECS = 1.0
"""So long a reader waits for what has just ended to reach the store."""
LAST_FLUSH_SECS = 5.0
"""So long a process that stops sends what it has not stored yet."""

NO_DIGESTS = Digests(None, None, None)
_MOST = 2**31 - 1
"""The largest number of a column of snapshots."""

Counts = Callable[[], Awaitable[Mapping[str, int]]]
"""Queries that run on each cluster, in the whole fleet."""


def digests_of(record: QueryRecord) -> Digests:
    """The digests of a record's texts. Of a text that was cut, those of what was kept."""
    text, translated = record.sql_text, record.translated_sql
    own = fingerprint(text, record.source_dialect, cut=len(text) >= KEPT_LENGTH)
    if translated is None:
        return Digests(*own)
    theirs = fingerprint(translated, record.target_dialect, cut=len(translated) >= KEPT_LENGTH)
    return Digests(*own, theirs.parameterized_hash, theirs.digest_text)


def mask(text: str, dialect: str) -> str | None:
    """SQL without its values; ``dialect`` is spelled as in history."""
    return mask_literals(text, dialect.lower())


def preview_of(text: str, dialect: str, length: int, policy: Redaction) -> str:
    """The beginning of a statement that runs, as it may be seen."""
    if policy is Redaction.NONE:
        return text[:length]
    if policy is Redaction.METADATA:
        return ""
    return (mask_literals(text, dialect) or "")[:length] if len(text) < KEPT_LENGTH else ""


class ProcessHistory:
    """Takes the records of this process; ``reader`` is what operators look at, and where workers' records
    go.

    What leaves the process, is stored or is shown is redacted: a record under the strictest policy that was
    in use since its query ended. Under a policy that hides nothing a record is kept as it comes, and costs
    its query next to nothing; under another it is redacted before it is kept anywhere.
    """

    def __init__(self, process: ProcessConfig, instance_id: str, clock: Clock, metrics: Metrics) -> None:
        """In memory only, until ``keep_in`` or ``send_to``; a worker keeps nothing in memory. Until a
        configuration says what records may say they say the least."""
        most = process.history.max_records if process.role != "worker" else 0
        self._instance_id = instance_id
        self._retention_days = process.query_history_retention_days
        self._clock = clock
        self._metrics = metrics
        self.memory = MemoryHistory(most)
        self._in_memory = MemoryHistoryStore(self.memory, self._prepare, most)
        self.reader: HistoryStore = self._in_memory
        self.buffer: HistoryBuffer | None = None
        self._catch_up: Callable[[], object] = lambda: None
        self._upkeep = TaskGroup("history upkeep")
        self._policy = Redaction.METADATA
        self._tightening: list[Redaction] = []
        """Policies that what is kept here is being brought to."""
        self._one_at_a_time = asyncio.Lock()

    @property
    def in_memory(self) -> int:
        """Records that are kept in memory."""
        return len(self._in_memory)

    # What records may say.

    @property
    def policy(self) -> Redaction:
        """That of queries that end now."""
        return self._policy

    def told(self, record: QueryRecord) -> str | None:
        """The text of a record's error as it may be seen."""
        return told(record, self._policy, mask)

    def admitted(self, record: StoredQuery) -> StoredQuery:
        """A record that a worker sent, which may not have heard of the policy in use yet."""
        return redacted(record, self._policy, mask)

    def keep_to(self, redaction: Redaction) -> None:
        """This is what records may say from now on, those that are kept here already too. A looser policy is
        for queries that end once all that is done."""
        before, self._policy = self._policy, redaction
        if not stricter(redaction, before):
            return
        kept: list[Held] = [*self._in_memory.take(), *self.memory.take()]
        if kept or self.buffer is not None:
            self._tightening.append(redaction)
            self._upkeep.spawn("redaction", self._redact(redaction, kept))

    async def _redact(self, policy: Redaction, kept: Sequence[Held]) -> None:
        """Redact what was in memory, where nobody sees it until that is done, and what waits to be stored,
        which is sent under this policy meanwhile."""

        def change(record: Held) -> StoredQuery:
            return self._stored(record, policy)

        async with self._one_at_a_time:
            self._in_memory.keep(await in_turns(kept, change))
            if self.buffer is not None:
                await self.buffer.redo(change)
        self._tightening.remove(policy)

    def _prepare(self, record: Held) -> StoredQuery:
        """Its stored form, as it may be seen now. Callable from any thread."""
        return self._stored(record, strictest(self._policy, *self._tightening))

    def _stored(self, record: Held, policy: Redaction) -> StoredQuery:
        if isinstance(record, QueryRecord):
            digests = NO_DIGESTS if policy is Redaction.METADATA else digests_of(record)
            record = stored_form(record, digests, self._instance_id)
        return redacted(record, policy, mask)

    # Records come, and go where they are kept.

    def add(self, record: QueryRecord) -> None:
        """Remember one query; never blocks."""
        if self._policy is Redaction.NONE:
            self.memory.add(record)
            if self.buffer is not None:
                self.buffer.add(record)
            return
        try:
            stored = self._stored(record, self._policy)
        except Exception:
            log.exception("history: the record of query %s cannot be kept", record.proxy_query_id)
            if self.buffer is not None:
                self.buffer.refuse()
            return
        self._in_memory.keep([stored])
        if self.buffer is not None:
            self.buffer.add(stored)

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        """Call ``catch_up`` before anything is shown: it may bring records."""
        self._catch_up = catch_up
        self.memory.before_reading(catch_up)

    def keep_in(
        self,
        store: DurableHistoryStore,
        sweep: Sweep,
        generation: Callable[[], Generation | None],
        fleet_counts: Counts | None = None,
    ) -> None:
        """Send every record to ``store`` from now on, and keep it in order when it is our turn. With
        ``fleet_counts`` snapshots have those, else what runs in this process."""
        self.send_to(sending_to(store))
        self.reader = FreshHistory(store, self._flush)

        async def sample() -> Sequence[ClusterSnapshot]:
            counts = await fleet_counts() if fleet_counts is not None else {}
            return snapshots_of(generation(), counts, self._clock.now())

        self._upkeep.spawn("cluster snapshots", snapshot_clusters(store, sample, self._clock, sweep))
        if self._retention_days is not None:
            self._upkeep.spawn("retention", keep_for_days(store, self._retention_days, self._clock, sweep))

    def send_to(self, send: Send, pace: Pace = DEFAULT_PACE) -> None:
        """Send every record there from now on."""
        self.buffer = HistoryBuffer(send, self._prepare, self._clock, self._metrics, pace)
        self.buffer.start()

    async def _flush(self) -> None:
        self._catch_up()
        if self.buffer is not None:
            await self.buffer.flush(READERS_WAIT_SECS)

    async def close(self, seconds: float = LAST_FLUSH_SECS) -> None:
        """Store what is left, for at most so long; the rest is counted as dropped. May be called twice."""
        await self._upkeep.close()
        self._catch_up()
        if self.buffer is not None:
            await self.buffer.close(seconds)


def snapshots_of(
    generation: Generation | None, fleet: Mapping[str, int], now: float
) -> list[ClusterSnapshot]:
    """How busy each cluster is, once for each of its groups. A cluster without leases counts what runs in
    this process."""
    if generation is None:
        return []
    return [
        ClusterSnapshot(
            cluster_name=member.name,
            group_name=name,
            engine_type=engine_label(generation.clusters[member.name].engine.engine_key),
            running_queries=fleet.get(member.name, member.running),
            queued_queries=len(plan.admission.waiters),
            max_running_queries=None
            if (limit := plan.admission.limit_of(member)) is None
            else min(limit, _MOST),
            recorded_at=now,
        )
        for name, plan in generation.groups.items()
        for member in plan.admission.members
    ]
