"""One record per query (docs/history.md): who, what, where, how long, and how it ended."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from queryflux.model.endings import EndReason, QueryStatus

PREVIEW_LENGTH = 500
KEPT_LENGTH = 64 << 10
"""Characters kept of a statement's text and of its translation."""


class TranslationOutcome(Protocol):
    """What became of the text; ``position`` is a 0-based offset in it."""

    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def message(self) -> str: ...
    @property
    def position(self) -> int | None: ...


class EngineFigures(Protocol):
    """What the engine said of its own work (``results.answer.EngineStats``)."""

    backend_query_id: str | None
    elapsed_ms: int | None
    cpu_ms: int | None
    processed_rows: int | None
    processed_bytes: int | None
    physical_input_bytes: int | None
    peak_memory_bytes: int | None
    spilled_bytes: int | None
    total_splits: int | None


class QueryRecord(Struct, frozen=True, kw_only=True, gc=False):
    """What history keeps. Times are seconds since the epoch, durations milliseconds.

    ``trace`` renders the routing trace when somebody reads it, so that no query pays for it.
    """

    proxy_query_id: str
    frontend_protocol: str
    username: str
    sql_text: str
    status: QueryStatus
    reason: EndReason
    created_at: float
    queue_duration_ms: float
    execution_duration_ms: float
    cluster_group: str = ""
    cluster_name: str = ""
    engine_type: str = ""
    catalog: str | None = None
    database: str | None = None
    source_dialect: str = ""
    target_dialect: str = ""
    translated_sql: str | None = None
    translation: TranslationOutcome | None = None
    rows_returned: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    query_tags: Mapping[str, str | None] | None = None
    engine_stats: EngineFigures | None = None
    trace: Callable[[], Any] | None = None

    @property
    def sql_preview(self) -> str:
        """The first 500 characters of the client's text."""
        return self.sql_text[:PREVIEW_LENGTH]
