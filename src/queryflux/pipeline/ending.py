"""What is left of a query when it has ended: one record, one log line, the counts."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from queryflux.history.record import QueryRecord
from queryflux.model.endings import EndReason
from queryflux.runtime.metrics import Count, Histogram, Metrics

SLOW_REASONS = {
    EndReason.QUEUE_FULL: "queryflux_queue_rejections_total",
    EndReason.CAPACITY_TIMEOUT: "queryflux_capacity_timeouts_total",
}


class History(Protocol):
    """Where records go."""

    def add(self, record: QueryRecord) -> None:
        """Remember one query; never blocks."""


class Log(Protocol):
    """Where query lines go."""

    def add(self, fields: Callable[[], dict[str, Any]]) -> None:
        """Log one query; never blocks."""


class Recorder:
    """Writes down how queries ended."""

    def __init__(self, history: History, log: Log, metrics: Metrics) -> None:
        self._history = history
        self._log = log
        self._metrics = metrics
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._ended: dict[tuple[str, str, str, str], Count] = {}

    def write(self, record: QueryRecord, unlabelled: frozenset[str]) -> None:
        """Record, log line and metrics of one query. ``unlabelled`` are tag keys that metrics leave out."""
        self._history.add(record)
        self._log.add(lambda: line(record))
        self._count(record)
        if record.query_tags:
            self._count_tags(record.query_tags, record.cluster_group, unlabelled)

    def _count(self, record: QueryRecord) -> None:
        engine, group = record.engine_type, record.cluster_group
        key = (engine, group, record.status.value, record.frontend_protocol)
        counter = self._ended.get(key)
        if counter is None:
            counter = self._ended[key] = self._metrics.counter(
                "queryflux_queries_total",
                engine_type=engine,
                cluster_group=group,
                status=record.status.value,
                protocol=record.frontend_protocol,
            )
        counter.inc()
        if engine:
            duration = self._durations.get((engine, group))
            if duration is None:
                duration = self._durations[engine, group] = self._metrics.histogram(
                    "queryflux_query_duration_seconds", engine_type=engine, cluster_group=group
                )
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
        elif record.translation_status == "no" and record.translation_reason:
            self._metrics.counter(
                "queryflux_translation_skipped_total", reason=record.translation_reason
            ).inc()

    def _count_tags(self, tags: Mapping[str, str | None], group: str, unlabelled: frozenset[str]) -> None:
        for key, value in tags.items():
            if key not in unlabelled:
                self._metrics.counter(
                    "queryflux_query_tags_total", tag_key=key, tag_value=value or "", cluster_group=group
                ).inc()


def line(record: QueryRecord) -> dict[str, Any]:
    """The log line's fields. The SQL itself stays in history: logs travel further than history does."""
    return {
        "time": record.created_at + (record.queue_duration_ms + record.execution_duration_ms) / 1000,
        "id": record.proxy_query_id,
        "status": record.status.value,
        "reason": record.reason.value,
        "user": record.username,
        "protocol": record.frontend_protocol,
        "group": record.cluster_group,
        "cluster": record.cluster_name,
        "queued_ms": round(record.queue_duration_ms, 3),
        "ms": round(record.execution_duration_ms, 3),
        "rows": record.rows_returned,
        "translation": record.translation_status,
        "engine_id": record.backend_query_id,
        "error": record.error_code,
        "message": record.error_message,
    }
