"""A record as stores keep it and readers get it: plain values, named as the columns of ``query_records``."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins

from queryflux.history.record import PREVIEW_LENGTH, QueryRecord


class Digests(NamedTuple):
    """Digests of a record's texts: 64-bit xxHash values as signed integers, and texts without values. What is
    None has none: there was no such text, or it cannot be cut into tokens."""

    query_hash: int | None
    query_parameterized_hash: int | None
    digest_text: str | None
    translated_query_hash: int | None = None
    translated_digest_text: str | None = None


class StoredQuery(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One query, as JSON too: what equals its default is left out, so no default may ever change.

    ``created_at`` is seconds since the epoch, durations are milliseconds; ``query_hash`` is of the exact
    text, the other hashes are of the digest texts. ``worker`` is None for a query that the process which
    keeps the history ran itself."""

    proxy_query_id: str
    instance_id: str | None = None
    worker: str | None = None
    cluster_group: str = ""
    cluster_name: str = ""
    engine_type: str = ""
    frontend_protocol: str
    source_dialect: str = ""
    target_dialect: str = ""
    was_translated: bool = False
    username: str | None = None
    catalog: str | None = None
    db_name: str | None = None
    sql_text: str | None = None
    translated_sql: str | None = None
    status: str
    reason: str | None = None
    routing_trace: Any = None
    queue_duration_ms: float = 0.0
    execution_duration_ms: float = 0.0
    rows_returned: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    backend_query_id: str | None = None
    engine_elapsed_time_ms: int | None = None
    cpu_time_ms: int | None = None
    processed_rows: int | None = None
    processed_bytes: int | None = None
    physical_input_bytes: int | None = None
    peak_memory_bytes: int | None = None
    spilled_bytes: int | None = None
    total_splits: int | None = None
    query_tags: Mapping[str, str | None] | None = None
    query_hash: int | None = None
    query_parameterized_hash: int | None = None
    translated_query_hash: int | None = None
    digest_text: str | None = None
    translated_digest_text: str | None = None
    translation_status: str | None = None
    translation_reason: str | None = None
    translation_message: str | None = None
    translation_position: int | None = None
    created_at: float

    @property
    def sql_preview(self) -> str:
        """The first 500 characters of the client's text."""
        return (self.sql_text or "")[:PREVIEW_LENGTH]


_DIALECT_LABELS = {
    "": "",
    "mysql": "MySql",
    "duckdb": "DuckDb",
    "starrocks": "StarRocks",
    "clickhouse": "ClickHouse",
}


def engine_label(key: str) -> str:
    """The spelling of an engine in history: ``duckDb`` is ``DuckDb``."""
    return key[:1].upper() + key[1:]


def dialect_label(name: str) -> str:
    """The spelling of a dialect in history: ``mysql`` is ``MySql``."""
    label = _DIALECT_LABELS.get(name)
    return name[:1].upper() + name[1:] if label is None else label


def stored_form(record: QueryRecord, digests: Digests, instance_id: str | None = None) -> StoredQuery:
    """What stores keep of a record that the process ``instance_id`` made."""
    translation, stats = record.translation, record.engine_stats
    return StoredQuery(
        proxy_query_id=record.proxy_query_id,
        instance_id=instance_id,
        cluster_group=record.cluster_group,
        cluster_name=record.cluster_name,
        engine_type=engine_label(record.engine_type),
        frontend_protocol=record.frontend_protocol,
        source_dialect=dialect_label(record.source_dialect),
        target_dialect=dialect_label(record.target_dialect),
        was_translated=record.translated_sql is not None,
        username=record.username,
        catalog=record.catalog,
        db_name=record.database,
        sql_text=record.sql_text,
        translated_sql=record.translated_sql,
        status=record.status.value,
        reason=record.reason.value,
        routing_trace=to_builtins(record.trace()) if record.trace is not None else None,
        queue_duration_ms=record.queue_duration_ms,
        execution_duration_ms=record.execution_duration_ms,
        rows_returned=record.rows_returned,
        error_code=record.error_code,
        error_message=record.error_message,
        backend_query_id=stats.backend_query_id if stats is not None else None,
        engine_elapsed_time_ms=stats.elapsed_ms if stats is not None else None,
        cpu_time_ms=stats.cpu_ms if stats is not None else None,
        processed_rows=stats.processed_rows if stats is not None else None,
        processed_bytes=stats.processed_bytes if stats is not None else None,
        physical_input_bytes=stats.physical_input_bytes if stats is not None else None,
        peak_memory_bytes=stats.peak_memory_bytes if stats is not None else None,
        spilled_bytes=stats.spilled_bytes if stats is not None else None,
        total_splits=stats.total_splits if stats is not None else None,
        query_tags=dict(record.query_tags) if record.query_tags is not None else None,
        translation_status=translation.status if translation is not None else None,
        translation_reason=translation.reason if translation is not None else None,
        translation_message=(translation.message or None) if translation is not None else None,
        translation_position=translation.position if translation is not None else None,
        created_at=record.created_at,
        **digests._asdict(),
    )


_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
"""What PostgreSQL, or UTF-8, has no place for."""


def storable(record: StoredQuery) -> StoredQuery:
    """The record with U+FFFD in the place of what no store of ours may be able to keep; the same one where
    there is nothing like it."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    changed = {name: _kept(value) for name, value in fields.items()}
    return record if changed == fields else StoredQuery(**changed)


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return _NO_CHARACTER.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_kept(key): _kept(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(item) for item in value]
    return value
