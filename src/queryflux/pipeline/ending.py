"""What is left of a query when it has ended: one record, one log line, the counts."""

from collections.abc import Callable, Mapping
from typing import Protocol

from queryflux.history.record import QueryRecord
from queryflux.model.endings import EndReason, QueryStatus
from queryflux.runtime.metrics import Count, Histogram, Metrics
from queryflux.telemetry.logs import QueryLine

SLOW_REASONS = {
    EndReason.QUEUE_FULL: "queryflux_queue_rejections_total",
    EndReason.CAPACITY_TIMEOUT: "queryflux_capacity_timeouts_total",
}


MOST_TAGS = 1000
OTHER = "(other)"
"""Clients choose their tags: beyond so many different ones they are counted together."""


class History(Protocol):
    """Where records go."""

    def add(self, record: QueryRecord) -> None:
        """Remember one query; never blocks."""


class Log(Protocol):
    """Where query lines go."""

    def add(self, line: Callable[[], QueryLine]) -> None:
        """Log one query; never blocks."""


class Recorder:
    """Writes down how queries ended."""

    def __init__(self, history: History, log: Log, metrics: Metrics) -> None:
        self._history = history
        self._log = log
        self._metrics = metrics
        self._tags: dict[tuple[str, str, str], Count] = {}
        self._children: dict[tuple[str, str, QueryStatus, str], tuple[Count, Histogram | None]] = {}

    def write(self, record: QueryRecord, unlabelled: frozenset[str]) -> None:
        """Record, log line and metrics of one query. ``unlabelled`` are tag keys that metrics leave out."""
        self._history.add(record)
        self._log.add(lambda: line(record))
        self._count(record)
        if record.query_tags:
            self._count_tags(record.query_tags, record.cluster_group, unlabelled)

    def _count(self, record: QueryRecord) -> None:
        engine, group = record.engine_type, record.cluster_group
        key = (engine, group, record.status, record.frontend_protocol)
        children = self._children.get(key)
        if children is None:
            children = self._children[key] = self._make(*key)
        children[0].inc()
        if children[1] is not None:
            children[1].observe(record.execution_duration_ms / 1000)
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
        if not engine:
            return count, None  # it never came to an engine
        duration = self._metrics.histogram(
            "queryflux_query_duration_seconds", engine_type=engine, cluster_group=group
        )
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


def line(record: QueryRecord) -> QueryLine:
    """The log line. The SQL itself stays in history: logs travel further than history does."""
    stats, translation = record.engine_stats, record.translation
    return QueryLine(
        ended_at=record.created_at + (record.queue_duration_ms + record.execution_duration_ms) / 1000,
        id=record.proxy_query_id,
        status=record.status.value,
        reason=record.reason.value,
        user=record.username,
        protocol=record.frontend_protocol,
        group=record.cluster_group,
        cluster=record.cluster_name,
        queued_ms=round(record.queue_duration_ms, 3),
        ms=round(record.execution_duration_ms, 3),
        rows=record.rows_returned,
        translation=translation.status if translation is not None else None,
        engine_id=stats.backend_query_id if stats is not None else None,
        error=record.error_code,
        message=record.error_message,
    )
