"""What the SQL stores of history share: columns, filters, figures. A store fills in how its dialect spells a
placeholder, a moment and the table that has the groups' present names."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from queryflux.history.port import HistoryFilter, Summary, Usage
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import RecordsRefused

DIGEST_TEXTS = ("digest_text", "translated_digest_text")
"""Fields that have no column in ``query_records``; ``query_digest_stats`` has them."""
JSON_COLUMNS = frozenset({"routing_trace", "query_tags"})
PLAIN_COLUMNS = tuple(
    name for name in StoredQuery.__struct_fields__ if name not in {*DIGEST_TEXTS, "created_at"}
)
"""Every column that holds its field as it is, or as JSON."""

FIGURES = """
    count(*),
    count(*) FILTER (WHERE r.status = 'Success'),
    count(*) FILTER (WHERE r.status IN ('Failed', 'Denied')),
    count(*) FILTER (WHERE r.status = 'Cancelled'),
    coalesce(avg(r.execution_duration_ms), 0.0),
    coalesce(min(r.execution_duration_ms), 0.0),
    coalesce(max(r.execution_duration_ms), 0.0),
    coalesce(avg(r.queue_duration_ms), 0.0),
    count(*) FILTER (WHERE r.was_translated),
    coalesce(sum(r.rows_returned), 0)
"""
"""Of the records ``r``: the fields of Usage after its name."""

SUMMARY = """
    count(*),
    coalesce(avg(CASE WHEN r.status = 'Success' THEN 0.0 ELSE 1.0 END), 0.0),
    coalesce(avg(r.execution_duration_ms), 0.0),
    coalesce(avg(CASE WHEN r.was_translated THEN 1.0 ELSE 0.0 END), 0.0)
"""
"""The fields of Summary."""

_EQUAL = {
    "status": "status",
    "cluster_group": "cluster_group",
    "engine": "engine_type",
    "user": "username",
    "worker": "worker",
}


def columns_of(records: Sequence[StoredQuery]) -> Iterator[list[Any]]:
    """The values of each of PLAIN_COLUMNS, JSON as text. Raises RecordsRefused when something has no JSON."""
    for name in PLAIN_COLUMNS:
        values = [getattr(record, name) for record in records]
        yield [_as_json(value) for value in values] if name in JSON_COLUMNS else values


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError) as error:
        raise RecordsRefused(f"not to be written as JSON: {error}") from error


def record_of(names: Sequence[str], values: Sequence[Any]) -> StoredQuery:
    """A record from a row whose columns are ``names``."""
    fields = dict(zip(names, values, strict=True))
    for name in JSON_COLUMNS:
        if fields[name] is not None:
            fields[name] = msgspec.json.decode(fields[name])
    fields["was_translated"] = bool(fields["was_translated"])
    return StoredQuery(**fields)


def conditions(wanted: HistoryFilter, contains: str, place: Callable[[Any], str]) -> str:
    """A WHERE clause over ``query_records r``, or nothing. ``place`` takes a value and gives its placeholder;
    ``contains`` is a condition with ``{}`` for that of the text searched for."""
    parts = [
        f"r.{column} = {place(value)}"
        for name, column in _EQUAL.items()
        if (value := getattr(wanted, name)) is not None
    ]
    if wanted.search is not None:
        parts.append(contains.format(place(wanted.search)))
    return "WHERE " + " AND ".join(parts) if parts else ""


def usage_of(row: Sequence[Any]) -> Usage:
    """From a name and FIGURES."""
    name, total, success, failed, cancelled, average, least, most, queued, translated, rows = row
    return Usage(
        name=name,
        total_queries=total,
        success_queries=success,
        failed_queries=failed,
        cancelled_queries=cancelled,
        avg_execution_ms=average,
        min_execution_ms=least,
        max_execution_ms=most,
        avg_queue_ms=queued,
        translated_queries=translated,
        total_rows=int(rows),
    )


def summary_of(row: Sequence[Any]) -> Summary:
    """From SUMMARY."""
    queries, errors, duration, translated = row
    return Summary(
        queries=queries,
        error_rate=float(errors),
        avg_duration_ms=duration,
        translation_rate=float(translated),
    )
