"""History in memory."""

from typing import Any

from queryflux.history.memory import MemoryHistory
from queryflux.history.record import QueryRecord
from queryflux.model.endings import EndReason, QueryStatus


def record(number: int, **fields: Any) -> QueryRecord:
    given: dict[str, Any] = {
        "proxy_query_id": f"q{number}",
        "frontend_protocol": "TrinoHttp",
        "username": "ann",
        "sql_text": f"SELECT {number}",
        "status": QueryStatus.SUCCESS,
        "reason": EndReason.COMPLETED,
        "created_at": float(number),
        "queue_duration_ms": 0.0,
        "execution_duration_ms": 1.0,
        **fields,
    }
    return QueryRecord(**given)


def test_the_newest_are_kept_and_the_others_counted() -> None:
    history = MemoryHistory(3)
    for number in range(5):
        history.add(record(number))
    assert [kept.proxy_query_id for kept in history.newest()] == ["q4", "q3", "q2"]
    assert (len(history), history.stored, history.evicted) == (3, 5, 2)


def test_none_are_kept_when_none_may_be() -> None:
    history = MemoryHistory(0)
    history.add(record(1))
    assert list(history.newest()) == []
    assert history.evicted == 1


def test_records_are_found_by_what_they_say() -> None:
    history = MemoryHistory(10)
    history.add(record(1, cluster_group="bi"))
    history.add(record(2, cluster_group="etl", status=QueryStatus.FAILED))
    history.add(record(3, cluster_group="bi", sql_text="select * from ORDERS"))
    assert [kept.proxy_query_id for kept in history.newest(group="bi")] == ["q3", "q1"]
    assert [kept.proxy_query_id for kept in history.newest(status=QueryStatus.FAILED)] == ["q2"]
    assert [kept.proxy_query_id for kept in history.newest(search="orders")] == ["q3"]
    assert history.get("q2") is not None
    assert history.get("q9") is None


def test_the_preview_is_cut() -> None:
    assert len(record(1, sql_text="x" * 2000).sql_preview) == 500


def test_large_texts_make_room_for_each_other() -> None:
    history = MemoryHistory(1000, max_bytes=100_000)
    for number in range(20):
        history.add(record(number, sql_text="x" * 30_000))
    assert [kept.proxy_query_id for kept in history.newest()] == ["q19", "q18", "q17"]
