"""TPCH: all 22 queries at scale 1 through the PostgreSQL door, beside DuckDB's own Python API."""

import statistics
import time
from collections.abc import Callable
from functools import partial

import duckdb
import psycopg

from bench.processes import queryflux
from bench.result import Result
from tests.kit.places import free_port
from tests.kit.rows import same_rows
from tests.kit.tpch import NUMBERS, TABLES, query_text, tpch_data

ID = "TPCH"
TITLE = "22 TPC-H queries at scale 1 through the PostgreSQL door, beside DuckDB's Python API"
RUNS = 3

CONFIG = """
queryflux:
  frontends:
    trinoHttp: {{enabled: false, port: 0}}
    postgresWire: {{host: 127.0.0.1, port: {door}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
clusters:
  folder: {{engine: duckDb, dataPath: "{path}"}}
clusterGroups:
  main: {{members: [folder]}}
routingFallback: main
"""


def timed(ask: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    ask()
    return time.perf_counter() - started


def ask(connection: psycopg.Connection, text: str) -> object:
    """All rows, through the door."""
    return connection.execute(text.encode()).fetchall()


def ask_directly(connection: duckdb.DuckDBPyConnection, text: str) -> object:
    """All rows, from DuckDB."""
    return connection.execute(text).fetchall()


def run() -> Result:
    """Each query in turn, ours and DuckDB's, several times; the sum of medians."""
    data = tpch_data("1")
    door, admin = free_port(), free_port()
    with (
        queryflux(CONFIG.replace("{path}", str(data)), door=door, admin=admin),
        psycopg.connect(host="127.0.0.1", port=door, user="bench", autocommit=True) as ours,
        duckdb.connect() as direct,
    ):
        for table in TABLES:
            direct.read_parquet(str(data / f"{table}.parquet")).create_view(table)
        result = Result(peer="DuckDB's Python API in the benchmark's own process", notes=f"median of {RUNS}")
        total = {"queryflux": 0.0, "duckdb": 0.0}
        for number in NUMBERS:
            text = query_text(number)
            same_rows(ours.execute(text.encode()).fetchall(), direct.execute(text).fetchall())
            seconds: dict[str, list[float]] = {"queryflux": [], "duckdb": []}
            for _ in range(RUNS):
                seconds["queryflux"].append(timed(partial(ask, ours, text)))
                seconds["duckdb"].append(timed(partial(ask_directly, direct, text)))
            for name, times in seconds.items():
                total[name] += statistics.median(times)
            result.figures[f"q{number:02d}_queryflux_ms"] = statistics.median(seconds["queryflux"]) * 1000
            result.figures[f"q{number:02d}_duckdb_ms"] = statistics.median(seconds["duckdb"]) * 1000
    result.figures["total_queryflux_s"] = total["queryflux"]
    result.figures["total_duckdb_s"] = total["duckdb"]
    result.ratio["total"] = total["queryflux"] / total["duckdb"]
    return result
