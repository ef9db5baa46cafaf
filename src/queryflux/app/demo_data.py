"""The demo's data, its questions, and DuckDB's own answers to them, without QueryFlux in between."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from queryflux.app.demo_clients import Rows
from queryflux.model.errors import ConfigError

SCALE = "0.1"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")

QUESTIONS = (
    ("How many line items are there?", "SELECT count(*) AS line_items FROM lineitem"),
    (
        "What was returned, and for how much?",
        "SELECT l_returnflag, sum(l_quantity) AS quantity, sum(l_extendedprice * (1 - l_discount)) AS revenue"
        " FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag",
    ),
    (
        "Which nations order most?",
        "SELECT n_name, count(*) AS orders, max(o_orderdate) AS latest FROM orders"
        " JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey"
        " GROUP BY n_name ORDER BY orders DESC, n_name LIMIT 3",
    ),
)


def make_data(data: Path) -> None:
    """TPC-H tables as Parquet files, made once, however many demos begin at a time. Raises ConfigError."""
    try:
        _make(data)
    except OSError as error:
        raise ConfigError(
            f"the data cannot be made in {data}: {error.strerror or error}",
            hint="--dir names a folder that can be written to, there already or not",
        ) from None


def _make(data: Path) -> None:
    if _is_there(data):
        return
    beside = Path(sys.executable).parent / "tpchgen-cli"
    tool = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    if tool is None:
        raise ConfigError("the demo needs tpchgen-cli", hint="pip install 'queryflux[demo]'")
    print(f"Making TPC-H data at scale {SCALE} in {data} ...", flush=True)
    data.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=data.parent) as folder:
        unfinished = Path(folder) / data.name
        unfinished.mkdir()
        command = [tool, "parquet", "-s", SCALE, f"--output-dir={unfinished}"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise ConfigError(f"tpchgen-cli failed: {made.stderr.strip() or made.stdout.strip()}")
        if data.exists() and not _is_there(data):
            shutil.rmtree(data)
        try:
            unfinished.rename(data)
        except OSError:
            if not _is_there(data):  # else another demo was faster
                raise


def _is_there(data: Path) -> bool:
    return all((data / f"{table}.parquet").is_file() for table in TABLES)


def ask_duckdb(data: Path) -> list[Rows]:
    """The right answers."""
    import duckdb

    with duckdb.connect() as connection:
        for table in TABLES:
            connection.read_parquet(str(data / f"{table}.parquet")).create_view(table)
        return [connection.execute(sql).fetchall() for _, sql in QUESTIONS]


def same(rows: Rows, right: Rows) -> bool:
    """Whether two answers have the same values: decimal(38,2) and numeric, in every client's own types."""
    return [[_normal(it) for it in row] for row in rows] == [[_normal(it) for it in row] for row in right]


def _normal(value: Any) -> str:
    text = str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
