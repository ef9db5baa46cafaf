"""What a client of a DuckDB cluster sees: answers, session state, transactions, endings."""

import asyncio
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.duckdb import build, seam
from queryflux.engines.duckdb.engine import DuckDbEngine
from queryflux.engines.duckdb.lanes import PARKED_LANES
from queryflux.engines.duckdb.work import BATCH_ROWS
from queryflux.engines.port import TransactionStatus
from queryflux.model.errors import (
    EngineError,
    EngineErrorKind,
    EngineUnavailable,
    InvalidRequest,
    QueryCancelled,
    TransactionFailed,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Parameter, Session
from queryflux.results.answer import Batches
from queryflux.runtime.clock import SystemClock
from tests.rooms.engine_duckdb.asking import Asking

SLOW = "SELECT count(*) FROM range(10000000000000) t(i) WHERE hash(i) % 7 = 3"
ENDLESS = "SELECT i, i::VARCHAR AS v FROM range(10000000000000) t(i)"


async def read_all(answer: Batches) -> None:
    while await answer.next() is not None:
        pass


async def at_work(engine: DuckDbEngine) -> None:
    async with asyncio.timeout(10):
        while engine.lanes.busy == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)


def status(asking: Asking) -> TransactionStatus:
    return asking.connection.transaction


@pytest.fixture
async def engine() -> AsyncIterator[DuckDbEngine]:
    engine = build("duck", ClusterConfig(engine="duckDb", threads=2), SystemClock())
    yield engine
    await engine.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("duckdb-")]


@pytest.fixture
async def asking(engine: DuckDbEngine) -> Asking:
    return Asking(engine)


async def test_counts_and_tags(asking: Asking) -> None:
    for sql, tag, rows in (
        ("CREATE TABLE t (a INTEGER, b VARCHAR)", "CREATE TABLE", None),
        ("INSERT INTO t VALUES (1, 'x'), (2, 'y')", "INSERT", 2),
        ("/* c */ update t set b = 'z'", "UPDATE", 2),
        ("-- c\nDELETE FROM t WHERE a = 1", "DELETE", 1),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", "CREATE VIEW", None),
        ("CREATE TABLE u AS SELECT * FROM range(5)", "CREATE TABLE", 5),
        ("ALTER TABLE t ADD COLUMN c INTEGER", "ALTER TABLE", None),
        ("DROP TABLE u", "DROP TABLE", None),
        ("SET threads = 2", "SET", None),
    ):
        done = await asking.done(sql)
        assert (done.tag, done.rows) == (tag, rows), sql


async def test_what_a_write_returns(asking: Asking) -> None:
    await asking.done("CREATE TABLE t (a INTEGER)")
    assert await asking.rows("INSERT INTO t VALUES (1), (2) RETURNING a * 10 AS x") == [(10,), (20,)]
    assert await asking.rows("WITH d AS (/* x */ DELETE FROM t RETURNING a) FROM d ORDER BY a") == [
        (1,),
        (2,),
    ]
    assert await asking.rows("SELECT count(*) FROM t") == [(0,)]


async def test_a_closed_answer_of_a_write_has_still_written(asking: Asking) -> None:
    await asking.done("CREATE TABLE t (a INTEGER)")
    answer = await asking.answer("INSERT INTO t SELECT * FROM range(100000) RETURNING a")
    assert isinstance(answer, Batches)
    await answer.close()
    assert await asking.rows("SELECT count(*) FROM t") == [(100000,)]


async def test_small_answers_need_no_second_call(engine: DuckDbEngine, asking: Asking) -> None:
    answer = await asking.answer("SELECT 1 AS a")
    assert engine.lanes.busy == 0
    assert isinstance(answer, Batches)
    assert (await answer.next()) is not None
    assert (await answer.next()) is None


async def test_large_answers_come_batch_by_batch(asking: Asking) -> None:
    answer = await asking.answer(f"SELECT * FROM range({BATCH_ROWS * 3 + 5})")
    assert isinstance(answer, Batches)
    sizes = []
    while (batch := await answer.next()) is not None:
        sizes.append(batch.num_rows)
    assert sizes == [BATCH_ROWS] * 3 + [5]


async def test_parameters(asking: Asking) -> None:
    values: list[Any] = [
        None, True, 7, 2**80, 1.5, Decimal("1.25"), "x'y", b"\x00\xff", date(2024, 2, 29),
        timedelta(days=1), UUID(int=5), [1, 2],
    ]  # fmt: skip
    for value in values:
        rows = await asking.rows("SELECT $1 IS NOT DISTINCT FROM $2", value, value)
        assert rows == [(True,)], value
    assert await asking.rows("SELECT i FROM range(5) t(i) WHERE i = $1", "3") == [(3,)]
    assert await asking.rows("SELECT i FROM range(5) t(i) WHERE i > ? LIMIT ?", 1, 2) == [(2,), (3,)]
    error = await asking.error("SELECT $1, $2", 1)
    assert "2" in error.message
    typed = asking.request("SELECT $1 + INTERVAL 1 DAY AS d")
    request = type(typed)(
        typed.query_id, typed.sql, typed.session, typed.identity, (Parameter("2024-02-28", "date"),)
    )
    answer = await asking.connection.execute(request)
    assert isinstance(answer, Batches)
    batch = await answer.next()
    assert batch is not None
    assert str(batch.column(0)[0]) == "2024-02-29 00:00:00"


async def test_describe(asking: Asking) -> None:
    await asking.done("CREATE TABLE t (a BIGINT, b VARCHAR, c DECIMAL(9,2), u UUID)")

    async def shape(sql: str) -> Any:
        return await asking.connection.describe(asking.request(sql))

    described = await shape("SELECT a + $1 AS r, c, $2::DATE AS d, u FROM t WHERE a = $1 AND b = $3")
    assert described.parameter_types == ("bigint", "date", "text")
    assert described.schema.names == ["r", "c", "d", "u"]
    assert described.schema.types == [pa.int64(), pa.decimal128(9, 2), pa.date32(), pa.uuid()]
    assert (await shape("SELECT $1")).schema.types == [pa.string()]
    assert (await shape("INSERT INTO t (a, c) VALUES ($1, $2)")).parameter_types == ("bigint", "numeric(9,2)")
    for sql in ("INSERT INTO t (a) VALUES (1)", "BEGIN", "DROP TABLE t"):
        assert (await shape(sql)).schema is None
    assert (await shape("EXPLAIN SELECT 1")).schema.names == ["explain_key", "explain_value"]
    with pytest.raises(EngineError) as caught:
        await shape("SELECT nope FROM t")
    assert (caught.value.kind, caught.value.position) == (EngineErrorKind.COLUMN_NOT_FOUND, 7)
    assert await asking.rows("SELECT count(*) FROM t") == [(0,)]


async def test_described_and_answered_alike(asking: Asking) -> None:
    sql = "SELECT 1 AS a, 'x' AS b, 1.5 AS c, [1] AS d, uuid() AS e, now() AS f, '1'::JSON AS g, sum(i) AS h FROM range(3) t(i)"  # noqa: E501
    described = await asking.connection.describe(asking.request(sql))
    answer = await asking.answer(sql)
    assert isinstance(answer, Batches)
    assert described.schema is not None
    assert described.schema.equals(answer.schema, check_metadata=True)
    batch = await answer.next()
    assert batch is not None
    assert batch.schema.equals(answer.schema, check_metadata=True)


async def test_many_uuids(asking: Asking) -> None:
    rows = await asking.rows(
        "SELECT u, u::VARCHAR FROM (SELECT CASE WHEN i % 3 > 0 THEN uuid() END AS u FROM range(40000) t(i))"
    )
    assert len(rows) == 40000
    assert all((u is None and text is None) or str(u) == text for u, text in rows)


async def test_session_state_is_the_clients_own(engine: DuckDbEngine, asking: Asking) -> None:
    other = Asking(engine)
    await asking.done("SET VARIABLE x = 5")
    await asking.done("CREATE TEMP TABLE mine AS SELECT 1")
    assert await asking.rows("SELECT getvariable('x'), count(*) FROM mine") == [(5, 1)]
    assert await other.rows("SELECT getvariable('x')") == [(None,)]
    await other.error("SELECT * FROM mine")
    await asking.connection.close()
    for _ in range(PARKED_LANES + 2):
        third = Asking(engine)
        assert await third.rows("SELECT getvariable('x')") == [(None,)]
        await third.connection.close()
    assert engine.lanes.busy == 0


async def test_the_enum_of_a_pivot_stays_with_nobody(engine: DuckDbEngine, asking: Asking) -> None:
    await asking.rows("PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)")
    assert await asking.rows("SELECT count(*) FROM duckdb_types() WHERE NOT internal") == [(0,)]
    assert engine.lanes.busy == 0


async def test_where_names_are_looked_up(engine: DuckDbEngine, asking: Asking) -> None:
    await asking.done("CREATE SCHEMA sales")
    await asking.done("CREATE TABLE sales.t AS SELECT 'sales' AS a")
    await asking.done("CREATE TABLE t AS SELECT 'main' AS a")
    await asking.done("ATTACH ':memory:' AS other")
    await asking.done("CREATE TABLE other.t AS SELECT 'other' AS a")
    for catalog, database, expected in (
        (None, None, "main"),
        ("memory", "sales", "sales"),
        (None, "SALES", "sales"),
        ("unknown", "sales", "sales"),
        ("other", None, "other"),
        (None, "other", "other"),
        ("other", "main", "other"),
        ("postgres", None, "main"),
        (None, None, "main"),
    ):
        session = Session(ClientProtocol.MYSQL_WIRE, catalog=catalog, database=database)
        assert await Asking(engine, session).rows("SELECT a FROM t") == [(expected,)], (catalog, database)


async def test_transactions_as_postgres_has_them(engine: DuckDbEngine, asking: Asking) -> None:
    await asking.done("CREATE TABLE t (a INTEGER)")
    assert (await asking.done("COMMIT")).tag == "COMMIT"
    assert (await asking.done("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ WRITE")).tag == "BEGIN"
    assert status(asking) is TransactionStatus.OPEN
    assert (await asking.done("begin work")).tag == "BEGIN"
    await asking.done("INSERT INTO t VALUES (1)")
    await asking.error("SELECT 'x'::INTEGER")
    assert status(asking) is TransactionStatus.FAILED
    for sql in ("SELECT 1", "BEGIN"):
        with pytest.raises(TransactionFailed):
            await asking.answer(sql)
    with pytest.raises(TransactionFailed):
        await asking.connection.describe(asking.request("SELECT 1"))
    assert (await asking.done("COMMIT")).tag == "ROLLBACK"
    assert status(asking) is TransactionStatus.IDLE
    assert await asking.rows("SELECT count(*) FROM t") == [(0,)]
    await asking.done("BEGIN READ ONLY")
    assert (await asking.error("INSERT INTO t VALUES (1)")).kind is EngineErrorKind.READ_ONLY
    await asking.done("ROLLBACK")
    assert engine.lanes.busy == 0


async def test_an_error_while_streaming_fails_the_transaction(engine: DuckDbEngine, asking: Asking) -> None:
    await asking.done("BEGIN")
    answer = await asking.answer(
        "SELECT CASE WHEN i = 15000000 THEN 'x' ELSE '1' END::INTEGER FROM range(20000000) t(i)"
    )
    assert isinstance(answer, Batches)
    with pytest.raises(EngineError) as caught:
        await read_all(answer)
    assert caught.value.kind is EngineErrorKind.INVALID_VALUE
    assert await answer.next() is None
    assert status(asking) is TransactionStatus.FAILED
    await asking.done("ROLLBACK")
    assert await asking.rows("SELECT 1") == [(1,)]


async def test_two_writers_of_one_row(engine: DuckDbEngine, asking: Asking) -> None:
    other = Asking(engine)
    await asking.done("CREATE TABLE t AS SELECT 1 AS a")
    await asking.done("BEGIN")
    await other.done("BEGIN")
    await asking.done("UPDATE t SET a = 2")
    error = await other.error("UPDATE t SET a = 3")
    assert error.kind is EngineErrorKind.SERIALIZATION
    assert error.sqlstate == "40001"
    await other.done("ROLLBACK")
    await asking.done("COMMIT")


async def test_one_statement_at_a_time(asking: Asking) -> None:
    answer = await asking.answer(ENDLESS)
    for attempt in (asking.answer("SELECT 1"), asking.answer("BEGIN")):
        with pytest.raises(InvalidRequest):
            await attempt
    await answer.close() if isinstance(answer, Batches) else None
    assert await asking.rows("SELECT 1") == [(1,)]


async def test_cancel_in_a_transaction_fails_it(engine: DuckDbEngine, asking: Asking) -> None:
    await asking.done("BEGIN")
    waiting = asyncio.create_task(asking.rows(SLOW))
    await at_work(engine)
    await asyncio.sleep(0)
    await asking.connection.cancel()
    with pytest.raises(QueryCancelled):
        await waiting
    assert status(asking) is TransactionStatus.FAILED
    await asking.done("ROLLBACK")
    assert await asking.rows("SELECT 1") == [(1,)]


async def test_cancel_at_once(asking: Asking) -> None:
    """An interrupt that arrives before DuckDB has begun must not be lost."""
    for _ in range(50):
        waiting = asyncio.create_task(asking.rows(SLOW))
        await asyncio.sleep(0)
        await asking.connection.cancel()
        with pytest.raises(QueryCancelled):
            await waiting
    assert await asking.rows("SELECT 1") == [(1,)]


async def test_cancel_while_names_are_looked_up(engine: DuckDbEngine) -> None:
    asking = Asking(engine, Session(ClientProtocol.MYSQL_WIRE, database="nowhere"))
    waiting = asyncio.create_task(asking.rows(SLOW))
    await asyncio.sleep(0)
    await asking.connection.cancel()
    with pytest.raises(QueryCancelled):
        await waiting
    assert engine.lanes.busy == 0


async def test_a_task_cancelled_twice_leaves_nothing(engine: DuckDbEngine, asking: Asking) -> None:
    waiting = asyncio.create_task(asking.rows(SLOW))
    await at_work(engine)
    waiting.cancel()
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await engine.tasks.wait()
    assert engine.lanes.busy == 0
    assert await asking.rows("SELECT 1") == [(1,)]


@pytest.mark.parametrize("word", ["BEGIN", "COMMIT"])
async def test_a_task_cancelled_while_a_transaction_begins_or_ends_leaves_none_open(
    engine: DuckDbEngine, asking: Asking, word: str
) -> None:
    other = Asking(engine)
    for turns in range(8):
        if word == "COMMIT":
            await asking.done("BEGIN")
        waiting = asyncio.create_task(asking.done(word))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if status(asking) is not TransactionStatus.IDLE:
            await asking.done("ROLLBACK")
        await other.done("BEGIN")  # on the lane that came back: DuckDB refuses a second one inside the first
        await other.done("ROLLBACK")


async def test_a_client_that_leaves_mid_stream(engine: DuckDbEngine, asking: Asking) -> None:
    answer = await asking.answer(ENDLESS)
    assert isinstance(answer, Batches)
    await answer.next()
    await asking.connection.close()
    with pytest.raises(QueryCancelled):
        await answer.next()
    assert engine.lanes.busy == 0
    with pytest.raises(InvalidRequest):
        await asking.answer("SELECT 1")


async def test_lanes_beyond_the_parked_ones_end(engine: DuckDbEngine) -> None:
    answers = [await Asking(engine).answer(ENDLESS) for _ in range(PARKED_LANES + 3)]
    for answer in answers:
        assert isinstance(answer, Batches)
        await answer.close()
    assert engine.lanes.busy == 0

    def threads() -> int:
        return sum(thread.name.startswith("duckdb-") for thread in threading.enumerate())

    async with asyncio.timeout(10):
        while threads() > PARKED_LANES:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_closed_engine_is_unavailable(engine: DuckDbEngine, asking: Asking) -> None:
    await engine.close()
    with pytest.raises(EngineUnavailable):
        await Asking(engine).answer("SELECT 1")
    for question in (engine.probe(), engine.tables(), engine.columns()):
        with pytest.raises(EngineUnavailable):
            await question


async def test_what_is_not_there_is_named_without_its_place_on_this_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("link", "link/../link"):
        path = f"{tmp_path}/{folder}/sales.db"
        for config in (
            ClusterConfig(engine="duckDb", database_path=path, read_only=True),
            ClusterConfig(engine="duckDb", data_path=path),
        ):
            caplog.clear()
            engine = build("east", config, SystemClock())
            for _ in range(2):
                with pytest.raises(EngineUnavailable) as caught:
                    await engine.probe()
                assert caught.value.message.startswith("cluster east: DuckDB cannot open sales.db: ")
                assert str(tmp_path) not in caught.value.message
                assert ".." not in caught.value.message
            (told,) = caplog.messages
            assert path in told, "the operator has to find it"
            await engine.close()


async def test_who_holds_a_file_is_for_the_log_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "sales.db"
    holding = f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print(flush=True); sys.stdin.read()"
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", holding, stdin=PIPE, stdout=PIPE)
    try:
        assert holder.stdout is not None
        await holder.stdout.readline()
        engine = build("east", ClusterConfig(engine="duckDb", database_path=str(path)), SystemClock())
        with pytest.raises(EngineUnavailable) as caught:
            await engine.probe()
        assert "another process has it open" in caught.value.message
        assert sys.executable not in caught.value.message
        assert f"PID {holder.pid}" not in caught.value.message
        assert f"PID {holder.pid}" in caplog.text
    finally:
        await holder.communicate(b"")
    await engine.probe()
    await engine.close()


async def test_a_file_that_somebody_else_writes(tmp_path: Path) -> None:
    path = tmp_path / "not_a_database.duckdb"
    path.write_bytes(b"no database in here" * 1000)
    engine = build("file", ClusterConfig(engine="duckDb", database_path=str(path)), SystemClock())
    with pytest.raises(EngineUnavailable, match="not_a_database"):
        await engine.probe()
    path.unlink()
    await engine.probe()
    await engine.close()


async def test_an_instance_given_up_is_opened_again(engine: DuckDbEngine, asking: Asking) -> None:
    await asking.done("CREATE TABLE t (a INTEGER)")
    engine.reopen()
    assert (await asking.error("SELECT * FROM t")).kind is EngineErrorKind.TABLE_NOT_FOUND


def test_duckdb_still_has_the_seam_we_use() -> None:
    import duckdb

    with duckdb.connect() as connection:
        bound = seam.bind(connection, "SELECT $1::INTEGER AS a, $2")
        assert bound.returns == "query_result"
        assert [(name, str(kind)) for name, kind in bound.parameters] == [("1", "INTEGER"), ("2", "UNKNOWN")]
        bound = seam.bind(connection, "SELECT $1::INTEGER AS a", [None])
        assert (bound.names, [str(kind) for kind in bound.types]) == (["a"], ["INTEGER"])
        reader, types = seam.stream(connection, "SELECT 1::INTEGER AS a", None, 10)
        assert reader.schema == seam.arrow_schema(connection, ["a"], types)
        assert reader.read_all().to_pylist() == [{"a": 1}]


async def test_a_division_by_zero_says_so(asking: Asking) -> None:
    assert (await asking.error("SELECT 1 // 0")).kind is EngineErrorKind.DIVISION_BY_ZERO


async def test_hints_do_not_guess_internal_names(asking: Asking) -> None:
    assert "pg_" not in (await asking.error("SELECT * FROM pg_attrdeff")).hint
    await asking.done("CREATE TABLE orders (a INTEGER)")
    assert '"orders"' in (await asking.error("SELECT * FROM orderss")).hint
