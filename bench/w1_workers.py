"""W1: ``serve --workers N`` beside N = 1 and beside one process without workers.

``pgbench -S`` with 16 clients through the PostgreSQL door to PostgreSQL, and 16 clients on kept-alive
connections through the Trino door to a coordinator that answers at once. What asks, and what is asked, run on
the same processors: with two of them, two workers share these with the rest of the bench, and cannot be
twice as fast. Each row is measured in turn, several times; medians are reported.
"""

import multiprocessing
import shutil
import statistics
import time

from bench.p1_trino_overhead import Client, mock
from bench.p2_pgbench import initialise, pgbench
from bench.processes import postgres, queryflux
from bench.result import Result
from tests.kit.places import free_port

ID = "W1"
TITLE = "Several workers behind one address"
RUNS = 3
SECONDS = 4
CLIENTS = 16
ROWS = {"alone": 0, "one_worker": 1, "two_workers": 2}

CONFIG = """
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: {trino}}}
    postgresWire: {{host: 127.0.0.1, port: {door}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
  logging: {{level: warning, format: json}}
clusters:
  mock: {{engine: trino, endpoint: "http://127.0.0.1:{mock}"}}
  pg:
    engine: postgres
    endpoint: "127.0.0.1:{server}"
    database: qf
    auth: {{type: basic, username: trusted, password: ""}}
    poolSize: 20
clusterGroups:
  main: {{members: [pg]}}
  mocked: {{members: [mock]}}
routers:
  - {{type: protocolBased, trinoHttp: mocked}}
routingFallback: main
"""


def ask_trino(port: int, clients: int, seconds: float) -> int:
    """How many queries so many clients of one process get answered, each asking when it has its answer."""
    open_ = [Client(port) for _ in range(clients)]
    done = 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for client in open_:
            client.ask()
        for client in open_:
            head, body = client.answer()
            assert head.startswith(b"HTTP/1.1 200")
            assert b'"data":[[1]]' in body
        done += clients
    for client in open_:
        client.close()
    return done


def trino_rate(port: int) -> float:
    """Queries a second, asked for by two processes."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        asked = [pool.apply_async(ask_trino, (port, CLIENTS // 2, SECONDS)) for _ in range(2)]
        return sum(one.get() for one in asked) / SECONDS


def run() -> Result:
    """All rows."""
    if shutil.which("pgbench") is None:
        return Result(skipped="no pgbench (apt-get install postgresql)")
    result = Result(
        peer="the same door of one worker (and, rows alone, of a process without workers)",
        notes=f"{CLIENTS} clients, {SECONDS} s a run, medians of {RUNS}; PostgreSQL, the coordinator and the"
        " clients run on the same processors",
    )
    found: dict[str, list[float]] = {}
    with postgres() as server, mock() as coordinator:
        initialise(server)
        for _ in range(RUNS):
            for name, workers in ROWS.items():
                ports = {"trino": free_port(), "door": free_port(), "admin": free_port()}
                options = ("--workers", str(workers)) if workers else ()
                with queryflux(CONFIG, *options, mock=coordinator, server=server.port, **ports):
                    for mode in ("simple", "prepared"):
                        tps = pgbench(ports["door"], mode, CLIENTS)[0]
                        found.setdefault(f"postgres_{mode}_{name}_tps", []).append(tps)
                    rate = trino_rate(ports["trino"])
                    found.setdefault(f"trino_{name}_per_s", []).append(rate)
    result.figures = {name: round(statistics.median(values), 1) for name, values in found.items()}
    for what, unit in (("postgres_simple", "tps"), ("postgres_prepared", "tps"), ("trino", "per_s")):
        one, two = (result.figures[f"{what}_{name}_{unit}"] for name in ("one_worker", "two_workers"))
        result.ratio[what] = round(two / one, 3)
    return result
