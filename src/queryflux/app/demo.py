"""``queryflux demo``: TPC-H data, one process with four doors, three questions through each of them.

The expected answers come from DuckDB asked directly, without QueryFlux in between.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

from queryflux.app.demo_clients import CLIENTS, Client, Rows
from queryflux.app.folder import folder_config, free_ports, how_to_connect
from queryflux.app.serve import ports_of, quieten_libraries
from queryflux.app.standalone import Standalone
from queryflux.config.snapshot import snapshot_of
from queryflux.history.record import QueryRecord
from queryflux.model.errors import ConfigError
from queryflux.telemetry.logs import setup

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

LEGEND = """\
Each answer is compared with DuckDB's own. Behind it stand the cluster group that the question was routed to,
the cluster of the group that answered (here there is one of each: the folder), and how long that took."""


def run_demo(directory: Path, host: str, wanted: Mapping[str, int | None], *, check: bool) -> int:
    """Make the data, serve it, ask; then stay up until Ctrl-C, or exit when ``check`` (0: every answer was
    right). Raises ConfigError when the demo's packages are missing or the data cannot be made."""
    setup("console", "warning")
    quieten_libraries()
    data = directory / f"tpch-{SCALE}"
    make_data(data)
    try:
        return uvloop.run(_demo(data, host, wanted, check=check))
    except KeyboardInterrupt:
        if check:
            raise
        return 0


def make_data(data: Path) -> None:
    """TPC-H tables as Parquet files, made once. Raises ConfigError."""
    if all((data / f"{table}.parquet").is_file() for table in TABLES):
        return
    beside = Path(sys.executable).parent / "tpchgen-cli"
    tool = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    if tool is None:
        raise ConfigError("the demo needs tpchgen-cli", hint="pip install 'queryflux[demo]'")
    print(f"Making TPC-H data at scale {SCALE} in {data} ...", flush=True)
    unfinished = data.with_name(data.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command = [tool, "parquet", "-s", SCALE, f"--output-dir={unfinished}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise ConfigError(f"tpchgen-cli failed: {made.stderr.strip() or made.stdout.strip()}")
    shutil.rmtree(data, ignore_errors=True)
    unfinished.rename(data)


async def _demo(data: Path, host: str, wanted: Mapping[str, int | None], *, check: bool) -> int:
    ports, notes = free_ports(host, dict(wanted))
    for note in notes:
        print(note)
    config = folder_config(data, host, ports, log_level="warning")
    standalone = Standalone(config, snapshot_of(config))
    await standalone.start()
    try:
        print(how_to_connect(host, ports_of(standalone)))
        print(LEGEND, flush=True)
        expected = await asyncio.to_thread(ask_duckdb, data)
        wrong = await ask_every_door(standalone, host, expected)
        print(f"\n{len(CLIENTS) * len(QUESTIONS)} answers, {wrong} wrong.", flush=True)
        if not check:
            asyncio.get_running_loop().call_soon(lambda: print("Serving until Ctrl-C.", flush=True))
            await standalone.run()
    finally:
        await standalone.close()
    return 1 if wrong else 0


def ask_duckdb(data: Path) -> list[Rows]:
    """The right answers."""
    import duckdb

    with duckdb.connect() as connection:
        for table in TABLES:
            connection.read_parquet(str(data / f"{table}.parquet")).create_view(table)
        return [connection.execute(sql).fetchall() for _, sql in QUESTIONS]


async def ask_every_door(standalone: Standalone, host: str, expected: list[Rows]) -> int:
    """Ask each question through each door, and show what came; gives the number of wrong answers."""
    wrong = 0
    for (question, sql), right in zip(QUESTIONS, expected, strict=True):
        print(f"\n{question}\n  {sql}")
        for client in CLIENTS:
            rows, trouble = await _ask(client, host, standalone.doors[client.door].port, sql)
            good = rows is not None and normal(rows) == normal(right)
            wrong += not good
            went = next(standalone.history.newest(), None)
            where = went_to(went) if went is not None else ""
            print(f"  {client.name:<16} {'right' if good else 'WRONG':<6} {where}")
            if trouble:
                print(f"    {trouble}")
        for row in right:
            print("    " + " | ".join(str(value) for value in row))
    return wrong


def went_to(record: QueryRecord) -> str:
    """Where a query went."""
    where = f"group {record.cluster_group}, cluster {record.cluster_name}"
    return f"{where}, {record.execution_duration_ms:.1f} ms"


async def _ask(client: Client, host: str, port: int, sql: str) -> tuple[Rows | None, str]:
    try:
        return await asyncio.to_thread(client.ask, host, port, sql), ""
    except Exception as error:  # the client libraries' own errors have no common root
        return None, f"{type(error).__name__}: {error}"


def normal(rows: Rows) -> list[tuple[str, ...]]:
    """Rows as text, so that decimal(38,2) and numeric compare by value."""
    return [tuple(_normal(value) for value in row) for row in rows]


def _normal(value: Any) -> str:
    text = str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
