"""Records of queries, for tests of history."""

from typing import Any

from queryflux.history.record import QueryRecord
from queryflux.history.stored import StoredQuery
from queryflux.model.endings import EndReason, QueryStatus
from tests.kit.clock import START


def record(number: int, **fields: Any) -> QueryRecord:
    """A query of ann's that ended well; the higher the number, the later."""
    given: dict[str, Any] = {
        "proxy_query_id": f"q{number}",
        "frontend_protocol": "TrinoHttp",
        "username": "ann",
        "sql_text": f"SELECT {number}",
        "status": QueryStatus.SUCCESS,
        "reason": EndReason.COMPLETED,
        "created_at": START + number,
        "queue_duration_ms": 0.0,
        "execution_duration_ms": 1.0,
        **fields,
    }
    return QueryRecord(**given)


def stored(number: int, **fields: Any) -> StoredQuery:
    """The same as stores keep it."""
    given: dict[str, Any] = {
        "proxy_query_id": f"q{number}",
        "frontend_protocol": "TrinoHttp",
        "username": "ann",
        "sql_text": f"SELECT {number}",
        "status": "Success",
        "reason": "completed",
        "created_at": START + number,
        "execution_duration_ms": 1.0,
        **fields,
    }
    return StoredQuery(**given)
