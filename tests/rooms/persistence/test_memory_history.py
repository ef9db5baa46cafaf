"""Reading the records in memory takes milliseconds, and is done where nobody waits for it."""

import threading

from queryflux.history.memory import MemoryHistory
from queryflux.history.port import HistoryFilter
from queryflux.history.record import QueryRecord
from queryflux.history.stored import StoredQuery
from queryflux.persistence.memory_history import MemoryHistoryStore
from tests.kit.history_stores import plain_form
from tests.kit.records import record


async def test_records_are_prepared_off_the_loop() -> None:
    threads: set[threading.Thread] = set()

    def prepare(one: QueryRecord) -> StoredQuery:
        threads.add(threading.current_thread())
        return plain_form(one)

    own = MemoryHistory(100)
    for number in range(3):
        own.add(record(number))
    store = MemoryHistoryStore(own, prepare, 100)
    found = await store.query(HistoryFilter(), 2)
    assert [one.proxy_query_id for one in found] == ["q2", "q1"]
    assert threads
    assert threading.main_thread() not in threads
