"""H1: records of finished queries into PostgreSQL, from the buffer's ``add`` to the acknowledgement.

Every text is another one (its values differ), as an application writes them; 200 shapes, so digests are
counted too. Records come as fast as the buffer takes them without dropping any. Beside them: COPY of the same
columns into the same table, which is what the server can take from one connection without looking for
duplicates and without digests. The server writes to disk for every batch.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from itertools import islice

import uvloop

from bench.processes import durable_database
from bench.result import Result
from queryflux.app.history import ProcessHistory
from queryflux.config.process import ProcessConfig
from queryflux.history.record import QueryRecord
from queryflux.history.redaction import Redaction
from queryflux.history.upkeep import alone
from queryflux.persistence.postgres.history import PostgresHistoryStore
from queryflux.runtime.clock import SystemClock
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.databases import Database
from tests.kit.records import record

ID = "H1"
TITLE = "history: records a second into PostgreSQL, beside COPY of the same rows"
RECORDS = 40_000
SHAPES = 200
MOST_WAITING = 5_000
TICK = 0.002
TURNS = 3


def records(prefix: str) -> Iterator[QueryRecord]:
    """Queries of about 200 characters, each with values of its own."""
    for number in range(RECORDS):
        shape = number % SHAPES
        yield record(
            number,
            proxy_query_id=f"{prefix}_{number}",
            cluster_group="bi",
            cluster_name="lake",
            engine_type="trino",
            source_dialect="trino",
            target_dialect="trino",
            catalog="tpch",
            database="sf1",
            rows_returned=number,
            sql_text=(
                f"SELECT l_returnflag, sum(l_quantity) AS q{shape} FROM lineitem WHERE l_shipdate <= "
                f"DATE '1998-12-{number % 28 + 1:02}' AND l_orderkey IN ({number}, {number + 1}) "
                "GROUP BY l_returnflag ORDER BY l_returnflag"
            ),
        )


async def through_the_buffer(store: PostgresHistoryStore, prefix: str) -> tuple[float, float, float, float]:
    """Records a second; CPU of this process and cost of ``add`` in us a record; the longest time in ms that
    the loop was held up."""
    history = ProcessHistory(ProcessConfig(), "bench", SystemClock(), PrometheusMetrics())
    history.keep_to(Redaction.NONE)
    history.keep_in(store, alone, lambda: None)
    buffer = history.buffer
    assert buffer is not None
    coming = list(records(prefix))
    held = 0.0
    adding = 0.0
    began, cpu = time.perf_counter(), time.process_time()
    queue = iter(coming)
    while buffer.stored < RECORDS:
        before = time.perf_counter()
        for one in islice(queue, min(200, MOST_WAITING - buffer.waiting)):
            history.add(one)
        after = time.perf_counter()
        adding += after - before
        await asyncio.sleep(TICK)
        held = max(held, time.perf_counter() - after - TICK)
        if buffer.stored + buffer.waiting == RECORDS:
            await buffer.flush(30)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    await history.close(5)
    assert (buffer.stored, buffer.dropped, buffer.rejected) == (RECORDS, 0, 0)
    return RECORDS / seconds, used / RECORDS * 1e6, adding / RECORDS * 1e6, held * 1000


async def by_copy(database: Database) -> float:
    """Rows a second."""
    names = database.rows(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'query_records' "
        "AND column_name <> 'id' ORDER BY ordinal_position"
    )
    columns = [name for (name,) in names]
    async with database.pool(1) as pool, pool.connection() as connection:
        listed = ", ".join(columns)
        rows = [tuple(row) for row in await connection.fetch(f"SELECT {listed} FROM query_records")]
        await connection.execute("TRUNCATE query_records")
        began = time.perf_counter()
        for start in range(0, len(rows), 500):
            await connection.copy_records_to_table(
                "query_records", records=rows[start : start + 500], columns=columns
            )
        return len(rows) / (time.perf_counter() - began)


async def measure(database: Database) -> Result:
    """Medians of the turns."""
    async with database.pool(6) as pool:
        turns = [
            await through_the_buffer(PostgresHistoryStore(pool), f"turn{number}") for number in range(TURNS)
        ]
    rate, cpu, adding, held = (statistics.median(column) for column in zip(*turns, strict=True))
    database.rows(f"DELETE FROM query_records WHERE proxy_query_id NOT LIKE 'turn{TURNS - 1}%'")
    copied = await by_copy(database)
    return Result(
        figures={
            "records_per_s": rate,
            "process_cpu_us_per_record": cpu,
            "add_us": adding,
            "loop_held_ms_max": held,
            "copy_rows_per_s": copied,
        },
        peer="COPY of the same rows over one connection, 500 at a time",
        ratio={"of_copy": rate / copied},
        notes=f"{RECORDS} records, {SHAPES} digests, median of {TURNS} turns; fsync on",
    )


def run() -> Result:
    """On a PostgreSQL of its own that writes to disk."""
    try:
        with durable_database("history") as database:
            return uvloop.run(measure(database))
    except RuntimeError as error:
        return Result(skipped=str(error))
