"""TPC-H: data as Parquet files, made once and kept outside the checkout; the 22 queries of tests/fixtures."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from tests.kit.places import cache_folder

QUERIES = Path(__file__).parents[1] / "fixtures" / "tpch"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
NUMBERS = range(1, 23)


def tpch_data(scale: str) -> Path:
    """A folder with the eight tables; skips the test where the generator is missing."""
    folder = cache_folder() / f"tpch-{scale}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:  # another test process may want it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((folder / f"{table}.parquet").is_file() for table in TABLES):
            _generate(folder, scale)
    return folder


def _generate(folder: Path, scale: str) -> None:
    tool = Path(sys.executable).parent / "tpchgen-cli"
    if not tool.is_file():
        pytest.skip("tpchgen-cli is not installed")
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    subprocess.run(
        [tool, "parquet", "-s", scale, f"--output-dir={unfinished}"], check=True, capture_output=True
    )
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def query_text(number: int) -> str:
    """One of the 22, in PostgreSQL's dialect."""
    return (QUERIES / f"q{number:02d}.sql").read_text(encoding="utf-8").strip().rstrip(";")


POSTGRES_SCHEMA = """
CREATE TABLE region (r_regionkey bigint, r_name char(25), r_comment varchar(152));
CREATE TABLE nation (n_nationkey bigint, n_name char(25), n_regionkey bigint, n_comment varchar(152));
CREATE TABLE supplier (s_suppkey bigint, s_name char(25), s_address varchar(40), s_nationkey bigint,
    s_phone char(15), s_acctbal numeric(15, 2), s_comment varchar(101));
CREATE TABLE part (p_partkey bigint, p_name varchar(55), p_mfgr char(25), p_brand char(10),
    p_type varchar(25), p_size int, p_container char(10), p_retailprice numeric(15, 2),
    p_comment varchar(23));
CREATE TABLE partsupp (ps_partkey bigint, ps_suppkey bigint, ps_availqty int,
    ps_supplycost numeric(15, 2), ps_comment varchar(199));
CREATE TABLE customer (c_custkey bigint, c_name varchar(25), c_address varchar(40), c_nationkey bigint,
    c_phone char(15), c_acctbal numeric(15, 2), c_mktsegment char(10), c_comment varchar(117));
CREATE TABLE orders (o_orderkey bigint, o_custkey bigint, o_orderstatus char(1),
    o_totalprice numeric(15, 2), o_orderdate date, o_orderpriority char(15), o_clerk char(15),
    o_shippriority int, o_comment varchar(79));
CREATE TABLE lineitem (l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int,
    l_quantity numeric(15, 2), l_extendedprice numeric(15, 2), l_discount numeric(15, 2),
    l_tax numeric(15, 2), l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date,
    l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44));
"""
KEYS = """
CREATE INDEX ON lineitem (l_orderkey); CREATE INDEX ON lineitem (l_partkey, l_suppkey);
CREATE INDEX ON orders (o_orderkey); CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON partsupp (ps_partkey, ps_suppkey); CREATE INDEX ON part (p_partkey); ANALYZE;
"""


def load_postgres(connection: "psycopg.Connection[Any]", data: Path) -> None:
    """Make the eight tables in a PostgreSQL database and fill them from the Parquet files."""
    connection.execute(POSTGRES_SCHEMA.encode())
    with duckdb.connect() as source:
        for table in TABLES:
            rows = source.read_parquet(str(data / f"{table}.parquet")).fetchall()
            with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
    connection.execute(KEYS.encode())
