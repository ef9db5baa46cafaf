"""What is left of a query when it has ended: one record, one log line, the counts.

A query that ended hands itself to the recorder and is done. Its record is made when somebody looks at
history, metrics or log, or a moment later, when an engine is at work anyway: whoever looks sees every query
that has ended.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from queryflux.history.record import KEPT_LENGTH, QueryRecord
from queryflux.history.redaction import Redaction
from queryflux.model.endings import EndReason, QueryStatus
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Count, Histogram, Metrics
from queryflux.telemetry.logs import QueryLine

if TYPE_CHECKING:
    from queryflux.pipeline.run import Run

SLOW_REASONS = {
    EndReason.QUEUE_FULL: "queryflux_queue_rejections_total",
    EndReason.CAPACITY_TIMEOUT: "queryflux_capacity_timeouts_total",
}

KEEP_SECS = 0.05
MOST_KEPT = 32
"""So long, and so many of them, ended queries may wait to be written down."""

_COMPLETED = EndReason.COMPLETED

MOST_TAGS = 1000
OTHER = "(other)"
"""Clients choose their tags: beyond so many different ones they are counted together."""


class History(Protocol):
    """Where records go."""

    def add(self, record: QueryRecord) -> None:
        """Remember one query; never blocks."""

    def keep_to(self, redaction: Redaction) -> None:
        """This is what records may say from now on."""

    def told(self, record: QueryRecord) -> str | None:
        """The text of an error as it may be seen."""

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        """Call ``catch_up`` before anybody is shown anything."""


class Log(Protocol):
    """Where query lines go."""

    enabled: bool
    """Whether it wants any."""

    def add(self, line: QueryLine) -> None:
        """Log one query; never blocks."""

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        """Call ``catch_up`` before the lines are taken for complete."""


class Written(NamedTuple):
    """What was written down of a query, for those that are like it."""

    record: QueryRecord
    line: QueryLine
    counter: Count
    duration: Histogram | None


class Recorder:
    """Writes down how queries ended."""

    def __init__(self, history: History, log: Log, metrics: Metrics, clock: Clock) -> None:
        self._history = history
        self._log = log
        self._metrics = metrics
        self._clock = clock
        self._tags: dict[tuple[str, str, str], Count] = {}
        self._children: dict[tuple[str, str, QueryStatus, str], tuple[Count, Histogram | None]] = {}
        self.kept: deque[Run] = deque()
        """Ended, and not written down yet."""
        self._armed = False
        self._called = False
        self._lock = threading.Lock()
        """Tests look at history from threads of their own."""
        for shown in (history, log, metrics):
            shown.before_reading(self.catch_up)

    def keep_to(self, redaction: Redaction) -> None:
        """This is what records and log lines may say of queries that end from now on."""
        self.catch_up()
        self._history.keep_to(redaction)

    def write(self, run: "Run") -> None:
        """Record, log line and metrics of a query that has ended, now."""
        self.kept.append(run)
        self.catch_up()

    def keep(self, run: "Run") -> None:
        """The same for a short one, soon: nothing of it is large."""
        self.kept.append(run)
        if not self._armed:
            self._armed = True
            self._clock.call_later(KEEP_SECS, self._due)
        elif len(self.kept) >= MOST_KEPT:
            self.catch_up()

    def soon(self) -> None:
        """Catch up once whatever runs now waits for something: an engine has just been given work."""
        if not self._called:
            self._called = True
            self._clock.call_later(0, self._at_leisure)

    def _due(self) -> None:
        self._armed = False
        self.catch_up()

    def _at_leisure(self) -> None:
        self._called = False
        self.catch_up()

    def catch_up(self) -> None:
        """Write down every query that has ended. Callable from any thread."""
        kept = self.kept
        with self._lock:
            while kept:
                run = kept.popleft()
                alike = run.alike
                if alike is None or run.reason is not _COMPLETED:
                    self._write(run)
                elif (first := alike.get(run.cluster)) is not None:
                    self._write_as(first, run)
                else:
                    alike[run.cluster] = self._write(run)

    def _write(self, run: "Run") -> "Written":
        record = record_of(run)
        said = line(record, self._history.told(record))
        self._history.add(record)
        self._log.add(said)
        count, duration = self._count(record)
        if record.query_tags:
            self._count_tags(record.query_tags, record.cluster_group, run.generation.untagged_metrics)
        return Written(record, said, count, duration)

    def _write_as(self, first: "Written", run: "Run") -> None:
        """``_write`` for a query whose record says the same as that of ``first``, but for what is here."""
        answer = run.answer
        assert answer is not None
        seconds = run.ended_at - run.received
        rows, stats = run.rows, answer.stats
        self._history.add(
            replace(
                first.record,
                proxy_query_id=run.id,
                sql_text=run.statement.text,
                created_at=run.created_at,
                execution_duration_ms=seconds * 1000,
                rows_returned=rows,
                engine_stats=stats,
            )
        )
        if self._log.enabled:
            self._log.add(
                replace(
                    first.line,
                    ended_at=run.created_at + seconds,
                    id=run.id,
                    ms=round(seconds * 1000, 3),
                    rows=rows,
                    engine_id=stats.backend_query_id,
                )
            )
        first.counter.inc()
        if first.duration is not None:
            first.duration.observe(seconds)
        if first.record.query_tags:
            self._count_tags(
                first.record.query_tags, first.record.cluster_group, run.generation.untagged_metrics
            )

    def _count(self, record: QueryRecord) -> tuple[Count, Histogram | None]:
        """Gives what a completed query like it is counted by."""
        group = record.cluster_group
        key = (record.engine_type, group, record.status, record.frontend_protocol)
        count, duration = self._children.get(key) or self._make(*key)
        count.inc()
        if duration is not None:
            duration.observe(record.execution_duration_ms / 1000)
        if record.queue_duration_ms > 0:
            waited = self._metrics.histogram("queryflux_queue_duration_seconds", cluster_group=group)
            waited.observe(record.queue_duration_ms / 1000)
        if (refused := SLOW_REASONS.get(record.reason)) is not None:
            self._metrics.counter(refused, cluster_group=group).inc()
        if record.translated_sql is not None:
            self._metrics.counter(
                "queryflux_translated_queries_total",
                src_dialect=record.source_dialect,
                tgt_dialect=record.target_dialect,
            ).inc()
        elif record.translation is not None and record.translation.reason:
            self._metrics.counter(
                "queryflux_translation_skipped_total", reason=record.translation.reason
            ).inc()
        return count, duration

    def _make(
        self, engine: str, group: str, status: QueryStatus, protocol: str
    ) -> tuple[Count, Histogram | None]:
        count = self._metrics.counter(
            "queryflux_queries_total",
            engine_type=engine,
            cluster_group=group,
            status=status.value,
            protocol=protocol,
        )
        duration = None
        if engine:  # else it never came to one
            duration = self._metrics.histogram(
                "queryflux_query_duration_seconds", engine_type=engine, cluster_group=group
            )
        self._children[engine, group, status, protocol] = count, duration
        return count, duration

    def _count_tags(self, tags: Mapping[str, str | None], group: str, unlabelled: frozenset[str]) -> None:
        for key, value in tags.items():
            if key in unlabelled:
                continue
            labels = (key, value or "", group)
            counter = self._tags.get(labels)
            if counter is None:
                if len(self._tags) >= MOST_TAGS:
                    labels = (OTHER, OTHER, group)
                counter = self._tags[labels] = self._metrics.counter(
                    "queryflux_query_tags_total",
                    tag_key=labels[0],
                    tag_value=labels[1],
                    cluster_group=group,
                )
            counter.inc()


def record_of(run: "Run") -> QueryRecord:
    """The record of a query that has ended."""
    session, statement, translation, failure = run.session, run.statement, run.translation, run.failure
    answer, target, trace, admitted = run.answer, run.target, run.trace, run.admitted_at
    engine = target.engine if target is not None else None
    text, reason, ended = statement.text, run.reason, run.ended_at
    queued = (admitted if admitted is not None else ended) - run.received if run.waited else 0.0
    translated = None
    if translation is not None and translation.sql != text:
        translated = translation.sql[:KEPT_LENGTH]
    return QueryRecord(
        proxy_query_id=run.id,
        frontend_protocol=session.protocol.label,
        username=run.talk.identity.user,
        sql_text=text[:KEPT_LENGTH],
        status=reason.status,
        reason=reason,
        created_at=run.created_at,
        queue_duration_ms=queued * 1000,
        execution_duration_ms=(ended - admitted) * 1000 if admitted is not None else 0.0,
        cluster_group=run.group,
        cluster_name=run.cluster,
        engine_type=engine.engine_key if engine is not None else "",
        catalog=session.catalog,
        database=session.database,
        source_dialect=statement.dialect,
        target_dialect=engine.dialect if engine is not None else "",
        translated_sql=translated,
        translation=translation,
        rows_returned=run.rows,
        error_code=getattr(failure, "code", None) if failure is not None else None,
        error_message=str(failure) if failure is not None else None,
        query_tags=run.tags or None,
        engine_stats=answer.stats if answer is not None else None,
        trace=trace.to_dict if trace is not None else None,
    )


def line(record: QueryRecord, message: str | None) -> QueryLine:
    """The log line, with what may be told of the error. The SQL itself stays in history: logs travel further
    than history does."""
    stats, translation = record.engine_stats, record.translation
    queued, ran = record.queue_duration_ms, record.execution_duration_ms
    return QueryLine(
        ended_at=record.created_at + (queued + ran) / 1000,
        id=record.proxy_query_id,
        status=record.status,
        reason=record.reason,
        user=record.username,
        protocol=record.frontend_protocol,
        group=record.cluster_group,
        cluster=record.cluster_name,
        queued_ms=round(queued, 3),
        ms=round(ran, 3),
        rows=record.rows_returned,
        translation=translation.status if translation is not None else None,
        engine_id=stats.backend_query_id if stats is not None else None,
        error=record.error_code,
        message=message,
    )
