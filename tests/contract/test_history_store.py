"""What every store of history holds (queryflux.history.port)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.history.batches import Outcome, add_isolating, sending_to
from queryflux.history.buffer import HistoryBuffer
from queryflux.history.port import Added, ClusterSnapshot, HistoryFilter, HistoryStore, Purged
from queryflux.history.redaction import Held
from queryflux.history.stored import Digests, StoredQuery, storable, stored_form
from queryflux.model.errors import RecordsRefused, StoreUnavailable
from queryflux.persistence.postgres import history as postgres_history
from queryflux.persistence.sqlite import history as sqlite_history
from tests.kit.clock import START, ManualClock
from tests.kit.databases import DATABASES, new_database
from tests.kit.history_stores import DURABLE, STORES, Durable, open_durable, open_store
from tests.kit.metrics import NoMetrics
from tests.kit.records import record, stored

EVERYTHING = HistoryFilter()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HistoryStore]:
    async with open_store(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture(params=DURABLE)
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Durable]:
    async with open_durable(request.param, tmp_path) as opened:
        yield opened


async def ids(store: HistoryStore, limit: int = 100, offset: int = 0, **wanted: Any) -> list[str]:
    found = await store.query(HistoryFilter(**wanted), limit, offset)
    return [record.proxy_query_id for record in found]


FULL = StoredQuery(
    proxy_query_id="20261129_213144_00042_k3f9z",
    instance_id="qf-a-1",
    worker="edge-7",
    cluster_group="bi",
    cluster_name="lake",
    engine_type="DuckDb",
    frontend_protocol="PostgresWire",
    source_dialect="Postgres",
    target_dialect="DuckDb",
    was_translated=True,
    username="Zoë",
    catalog="memory",
    db_name="main",
    sql_text="select 'é' /* \n */",
    translated_sql="SELECT 'é'",
    status="Failed",
    reason="timedOut",
    routing_trace={"routers": [{"type": "header", "matched": False}], "used_fallback": True},
    queue_duration_ms=1.25,
    execution_duration_ms=2.5,
    rows_returned=2**63 - 1,
    error_code="TIMED_OUT",
    error_message="it took 'too' long",
    backend_query_id="20261129_213144_00001_abcde",
    engine_elapsed_time_ms=1,
    cpu_time_ms=2,
    processed_rows=3,
    processed_bytes=4,
    physical_input_bytes=5,
    peak_memory_bytes=6,
    spilled_bytes=7,
    total_splits=8,
    query_tags={"team": "blue", "flag": None},
    query_hash=-(2**63),
    query_parameterized_hash=2**63 - 1,
    translated_query_hash=-5,
    digest_text="select ?",
    translated_digest_text="SELECT ?",
    translation_status="fallback",
    translation_reason="no_schema",
    translation_message="near 'x'",
    translation_position=9,
    created_at=START + 0.125,
)


async def test_a_record_comes_back_as_it_went(store: HistoryStore) -> None:
    bare = stored(7)
    assert await store.add_many([FULL, bare]) == Added(2, 0)
    assert await store.get(FULL.proxy_query_id) == FULL
    assert await store.get("q7") == bare
    assert await store.get("q8") is None
    assert await store.query(EVERYTHING, 10) == [bare, FULL]


async def test_a_query_is_stored_once_and_the_first_record_stays(store: HistoryStore) -> None:
    assert await store.add_many([stored(1), stored(2), stored(1, username="bob")]) == Added(2, 1)
    assert await store.add_many([stored(2, username="bob"), stored(3)]) == Added(1, 1)
    assert {record.username for record in await store.query(EVERYTHING, 10)} == {"ann"}
    assert await ids(store) == ["q3", "q2", "q1"]


async def test_nothing_is_stored_of_nothing(store: HistoryStore) -> None:
    assert await store.add_many([]) == Added(0, 0)
    assert await store.query(EVERYTHING, 10) == []


async def test_records_are_found_newest_first_and_by_page(store: HistoryStore) -> None:
    await store.add_many([stored(n) for n in (3, 1, 5, 2, 4)])
    assert await ids(store, limit=2) == ["q5", "q4"]
    assert await ids(store, limit=2, offset=2) == ["q3", "q2"]
    assert await ids(store, limit=2, offset=4) == ["q1"]
    assert await ids(store, limit=2, offset=9) == []
    assert await ids(store, limit=0) == []


async def test_records_are_found_by_what_they_say(store: HistoryStore) -> None:
    await store.add_many(
        [
            stored(1, cluster_group="bi", engine_type="Trino"),
            stored(2, cluster_group="etl", engine_type="Trino", status="Failed", username="bob"),
            stored(3, cluster_group="bi", engine_type="DuckDb", worker="edge", sql_text="from ORDERS_ÄX 50%"),
            stored(4, cluster_group="bi", engine_type="DuckDb", sql_text="x" * 500 + "hidden"),
        ]
    )
    assert await ids(store, cluster_group="bi") == ["q4", "q3", "q1"]
    assert await ids(store, cluster_group="bi", engine="Trino") == ["q1"]
    assert await ids(store, status="Failed") == ["q2"]
    assert await ids(store, user="bob") == ["q2"]
    assert await ids(store, worker="edge") == ["q3"]
    assert await ids(store, search="orders_Äx 50%") == ["q3"]
    assert await ids(store, search="S_D") == []
    assert await ids(store, search="%") == ["q3"]
    assert await ids(store, search="hidden") == []
    assert await ids(store, search="'; --") == []
    assert await store.engines() == ["DuckDb", "Trino"]


async def test_some_time_at_a_glance(store: HistoryStore) -> None:
    nothing = await store.summary(START)
    assert (nothing.queries, nothing.error_rate, nothing.avg_duration_ms) == (0, 0, 0)
    await store.add_many(
        [
            stored(-1, status="Failed"),
            stored(1, execution_duration_ms=10.0),
            stored(2, execution_duration_ms=20.0, status="Cancelled"),
            stored(3, execution_duration_ms=30.0, status="Denied"),
            stored(4, execution_duration_ms=40.0, was_translated=True, translated_sql="x"),
        ]
    )
    summary = await store.summary(START)
    assert (summary.queries, summary.error_rate) == (4, 0.5)
    assert (summary.avg_duration_ms, summary.translation_rate) == (25, 0.25)


async def test_usage_by_engine_and_by_group(store: HistoryStore) -> None:
    given: dict[str, Any] = {"engine_type": "Trino", "cluster_group": "bi"}
    await store.add_many(
        [
            stored(-1, **given),
            stored(1, **given, execution_duration_ms=10.0, queue_duration_ms=6.0, rows_returned=7),
            stored(2, **given, execution_duration_ms=30.0, status="Failed", rows_returned=5),
            stored(3, **given, execution_duration_ms=20.0, status="Denied"),
            stored(4, **(given | {"cluster_group": "etl"}), execution_duration_ms=20.0, status="Cancelled"),
            stored(5, engine_type="DuckDb", was_translated=True, translated_sql="x"),
            stored(6, status="Failed"),
        ]
    )
    trino, duckdb = await store.engine_usage(START)
    assert (trino.name, trino.total_queries, duckdb.name, duckdb.total_queries) == ("Trino", 4, "DuckDb", 1)
    assert (trino.success_queries, trino.failed_queries, trino.cancelled_queries) == (1, 2, 1)
    assert (trino.avg_execution_ms, trino.min_execution_ms, trino.max_execution_ms) == (20, 10, 30)
    assert (trino.avg_queue_ms, trino.total_rows) == (1.5, 12)
    assert (trino.translated_queries, duckdb.translated_queries, duckdb.total_rows) == (0, 1, 0)
    groups = await store.group_usage(START)
    assert [(group.name, group.total_queries) for group in groups] == [("bi", 3), ("etl", 1)]


async def test_old_records_are_purged(store: HistoryStore) -> None:
    await store.add_many([stored(n) for n in range(5)])
    assert (await store.purge(START + 3)).records == 3
    assert await ids(store) == ["q4", "q3"]
    assert await store.purge(START + 3) == Purged(0, 0, 0)


# Stores that outlive their process.

OVERFLOW = stored(1, rows_returned=2**63)
SURROGATE = stored(2, sql_text="select '\ud800'")


@pytest.mark.parametrize("bad", [OVERFLOW, SURROGATE], ids=["overflow", "surrogate"])
async def test_a_record_that_does_not_fit_is_refused_and_isolated(durable: Durable, bad: StoredQuery) -> None:
    store, good = durable.store, [digested(n) for n in range(10, 20)]
    with pytest.raises(RecordsRefused) as refused:
        await store.add_many([*good, bad])
    assert "select" not in str(refused.value)
    assert await store.query(EVERYTHING, 100) == []
    assert durable.rows("SELECT count(*) FROM query_digest_stats") == [(0,)]
    kept = int(bad is SURROGATE)
    assert await add_isolating(store, [*good[:5], bad, *good[5:]]) == Outcome(10 + kept, 0, 1 - kept)
    assert len(await ids(store)) == 10 + kept
    assert durable.rows("SELECT call_count FROM query_digest_stats") == [(10,)]
    assert await add_isolating(store, [bad]) == Outcome(0, kept, 1 - kept)
    assert await add_isolating(store, []) == Outcome(0, 0, 0)


@pytest.mark.parametrize("odd", ["\0", "\ud800"])
async def test_a_record_with_what_is_no_character_is_kept_all_the_same(durable: Durable, odd: str) -> None:
    record = stored(1, sql_text=f"select '{odd}'", query_tags={f"a{odd}": odd})
    assert await add_isolating(durable.store, [stored(2), record]) == Outcome(2, 0, 0)
    kept = await durable.store.get("q1")
    assert kept in (record, storable(record))
    assert storable(record).sql_text == "select '\ufffd'"


def digested(number: int, **fields: Any) -> StoredQuery:
    given: dict[str, Any] = {
        "query_parameterized_hash": -7,
        "digest_text": "select ?",
        "rows_returned": 10,
        "execution_duration_ms": 2.0,
        "cluster_group": "bi",
        **fields,
    }
    return stored(number, **given)


COUNTED = """
SELECT query_parameterized_hash, digest_text, translated_query_hash, translated_digest_text,
    call_count, sum_execution_ms, sum_rows_returned, cluster_group
FROM query_digest_stats ORDER BY 1
"""


async def test_digests_are_counted_from_records_that_are_new(durable: Durable) -> None:
    translated = {"translated_query_hash": 5, "translated_digest_text": "SELECT ?"}
    first = [digested(1, **translated), digested(2, rows_returned=None), stored(3)]
    await durable.store.add_many(first)
    assert durable.rows(COUNTED) == [(-7, "select ?", 5, "SELECT ?", 2, 4.0, 10, "bi")]
    other = digested(5, query_parameterized_hash=8, digest_text="select b")
    again = digested(4, cluster_group="etl")
    await durable.store.add_many([*first, again, again, other])
    assert durable.rows(COUNTED) == [
        (-7, "select ?", 5, "SELECT ?", 3, 6.0, 20, "etl"),
        (8, "select b", None, None, 1, 2.0, 10, "bi"),
    ]


async def test_a_digest_with_very_many_rows_goes_on_counting(durable: Durable) -> None:
    for number in range(3):
        added = await durable.store.add_many([digested(number, rows_returned=2**63 - 1)])
        assert added == Added(1, 0)
    ((calls, rows),) = durable.rows("SELECT call_count, sum_rows_returned FROM query_digest_stats")
    assert calls == 3
    assert rows >= 2**63 - 1


async def test_digests_know_when_they_were_seen_and_go_when_that_is_long_ago(durable: Durable) -> None:
    await durable.store.add_many([digested(5)])
    await durable.store.add_many([digested(3), digested(1, query_parameterized_hash=8)])
    assert await durable.store.purge(START + 4) == Purged(2, 1, 0)
    assert durable.rows("SELECT query_parameterized_hash, call_count FROM query_digest_stats") == [(-7, 2)]


async def test_snapshots_are_kept_and_purged(durable: Durable) -> None:
    one = ClusterSnapshot(
        cluster_name="lake",
        group_name="bi",
        engine_type="Trino",
        running_queries=3,
        queued_queries=2,
        max_running_queries=None,
        recorded_at=START,
    )
    await durable.store.add_snapshots([one, replace(one, max_running_queries=7, recorded_at=START + 5)])
    await durable.store.add_snapshots([])
    columns = "cluster_name, group_name, engine_type, running_queries, queued_queries, max_running_queries"
    assert durable.rows(f"SELECT {columns} FROM cluster_snapshots ORDER BY recorded_at") == [
        ("lake", "bi", "Trino", 3, 2, None),
        ("lake", "bi", "Trino", 3, 2, 7),
    ]
    assert await durable.store.purge(START + 1) == Purged(0, 0, 1)


async def test_much_is_purged_piece_by_piece(durable: Durable, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite_history, postgres_history):
        monkeypatch.setattr(module, "PURGED_AT_A_TIME", 3)
    await durable.store.add_many([stored(n) for n in range(10)])
    assert (await durable.store.purge(START + 8)).records == 8


async def test_writers_of_the_same_records_and_digests_do_not_hinder_each_other(durable: Durable) -> None:
    batches = [
        [digested(n, query_parameterized_hash=n % 5, proxy_query_id=f"{n + shift}") for n in range(50)]
        for shift in range(0, 100, 10)
    ]
    batches += [batch[::-1] for batch in batches]
    added = await asyncio.gather(*(durable.store.add_many(batch) for batch in batches))
    assert sum(one.stored for one in added) == 140
    assert sum(one.duplicates for one in added) == 20 * 50 - 140
    assert durable.rows("SELECT sum(call_count) FROM query_digest_stats") == [(140,)]


async def test_a_restart_of_the_store_loses_nothing_and_stores_nothing_twice(durable: Durable) -> None:
    clock = ManualClock()
    buffer = HistoryBuffer(sending_to(durable.store), digested_form, clock, NoMetrics())
    buffer.start()
    total = 0

    async def add(number: int) -> None:
        nonlocal total
        for _ in range(number):
            buffer.add(record(total))
            total += 1
            if total % 20 == 0:
                await asyncio.sleep(0)

    await add(450)
    stopping = asyncio.ensure_future(durable.stop())
    while not stopping.done():
        await add(20 if total < 5000 else 0)  # a server may take its time, and the buffer has an end
        await clock.advance(0.1)
    await stopping
    await add(250)
    await clock.advance(10)
    assert buffer.waiting >= 250
    await durable.start()
    await add(250)
    async with asyncio.timeout(60):
        while buffer.waiting:
            await clock.advance(0.1)
            await asyncio.sleep(0.001)  # the store answers in real time
    assert (buffer.stored, buffer.dropped, buffer.rejected) == (total, 0, 0)
    assert durable.rows("SELECT count(*), count(DISTINCT proxy_query_id) FROM query_records") == [
        (total, total)
    ]
    assert durable.rows("SELECT call_count FROM query_digest_stats") == [(total,)]
    await buffer.close(1)


def digested_form(one: Held) -> StoredQuery:
    return one if isinstance(one, StoredQuery) else stored_form(one, Digests(1, 2, "select ?"))


async def test_records_are_kept_when_the_store_starts_again(durable: Durable) -> None:
    await durable.store.add_many([FULL])
    await durable.stop()
    await durable.start()
    async with asyncio.timeout(30):
        while True:
            with suppress(StoreUnavailable):
                assert await durable.store.get(FULL.proxy_query_id) == FULL
                break
    assert await durable.store.add_many([FULL]) == Added(0, 1)


# What a fleet's database adds.


@pytest.mark.parametrize("kind", DATABASES)
async def test_records_name_their_cluster_and_group_also_when_these_get_another_name(
    kind: str, tmp_path: Path
) -> None:
    async with open_durable(kind, tmp_path) as durable:
        durable.rows("INSERT INTO cluster_group_configs (name) VALUES ('bi')")
        durable.rows("INSERT INTO cluster_configs (name, engine_key) VALUES ('lake', 'trino')")
        await durable.store.add_many(
            [stored(1, cluster_group="bi", cluster_name="lake::small"), stored(2, cluster_group="gone")]
        )
        ids = "SELECT cluster_group_id IS NULL, cluster_id IS NULL FROM query_records ORDER BY proxy_query_id"
        assert durable.rows(ids) == [(False, False), (True, True)]
        durable.rows("UPDATE cluster_group_configs SET name = 'reports'")
        await durable.store.add_many([stored(3, cluster_group="reports")])
        usage = await durable.store.group_usage(START)
        assert [(one.name, one.total_queries) for one in usage] == [("reports", 2), ("gone", 1)]


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_cluster_that_is_removed_at_this_moment_costs_no_record(kind: str) -> None:
    with new_database(kind) as database:
        database.rows("INSERT INTO cluster_configs (name, engine_key) VALUES ('lake', 'trino')")
        async with database.pool() as pool, pool.connection() as editor:
            store = postgres_history.PostgresHistoryStore(pool)
            async with editor.transaction():
                await editor.execute("DELETE FROM cluster_configs")
                adding = asyncio.ensure_future(add_isolating(store, [stored(1, cluster_name="lake")]))
                waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                while await editor.fetchval(waits) == 0:
                    assert not adding.done()
            assert await adding == Outcome(1, 0, 0)
        assert database.rows("SELECT cluster_name, cluster_id FROM query_records") == [("lake", None)]


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_store_that_may_not_write_is_asked_again_later(kind: str, tmp_path: Path) -> None:
    async with open_durable(kind, tmp_path) as durable:
        ((database,),) = durable.rows("SELECT current_database()")
        durable.rows(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        with pytest.raises(StoreUnavailable):
            await durable.store.add_many([stored(1)])
