"""P2: ``pgbench -S`` through the PostgreSQL door to PostgreSQL, beside PgBouncer and PostgreSQL itself."""

import re
import shutil
import statistics
import subprocess

from bench.processes import pgbouncer, postgres, queryflux
from bench.result import Result
from tests.kit.places import free_port
from tests.kit.postgres import PostgresServer

ID = "P2"
TITLE = "pgbench -S through the PostgreSQL door, beside PgBouncer"
RUNS = 3
SECONDS = 4
SCALE = 5

CONFIG = """
queryflux:
  frontends:
    trinoHttp: {{enabled: false, port: 0}}
    postgresWire: {{host: 127.0.0.1, port: {door}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
  logging: {{level: warning, format: json}}
clusters:
  pg:
    engine: postgres
    endpoint: "127.0.0.1:{server}"
    database: qf
    auth: {{type: basic, username: trusted, password: ""}}
    poolSize: 20
clusterGroups:
  main: {{members: [pg]}}
routingFallback: main
"""


def pgbench(port: int, mode: str, clients: int) -> tuple[float, float]:
    """Transactions a second, and mean latency in milliseconds."""
    command = ["pgbench", "-n", "-S", "-M", mode, "-c", str(clients), "-j", "1", "-T", str(SECONDS)]
    command += ["-h", "127.0.0.1", "-p", str(port), "-U", "trusted", "qf"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tps = re.search(r"tps = ([\d.]+)", done.stdout)
    latency = re.search(r"latency average = ([\d.]+)", done.stdout)
    assert tps is not None
    assert latency is not None
    return float(tps[1]), float(latency[1])


def run() -> Result:
    """Each row measured in turn, several times; medians are reported."""
    if shutil.which("pgbench") is None:
        return Result(skipped="no pgbench (apt-get install postgresql)")
    with postgres() as server:
        initialise(server)
        door, admin = free_port(), free_port()
        with (
            pgbouncer(server, "transaction") as pooled,
            pgbouncer(server, "session") as sessions,
            queryflux(CONFIG, door=door, admin=admin, server=server.port),
        ):
            bouncers = {"simple": pooled, "prepared": sessions}
            return measure(door, bouncers, server.port)


def initialise(server: PostgresServer) -> None:
    """pgbench's tables."""
    command = ["pgbench", "-i", "-q", "-s", str(SCALE), "-h", "127.0.0.1", "-p", str(server.port)]
    subprocess.run([*command, "-U", "trusted", "qf"], capture_output=True, check=True)


def measure(door: int, bouncers: dict[str, int], direct: int) -> Result:
    """All rows."""
    result = Result(
        peer="PgBouncer in the same run: transaction mode for simple, session mode for prepared",
        notes=f"pgbench scale {SCALE}, {SECONDS} s a run, median of {RUNS}; one process each;"
        " neither logs queries: PgBouncer runs with -q, QueryFlux logs warnings only (its history is kept)",
    )
    for mode in ("simple", "prepared"):
        for clients in (1, 16):
            rows: dict[str, list[tuple[float, float]]] = {"queryflux": [], "pgbouncer": [], "direct": []}
            for _ in range(RUNS):
                for name, port in (("queryflux", door), ("pgbouncer", bouncers[mode]), ("direct", direct)):
                    rows[name].append(pgbench(port, mode, clients))
            key = f"{mode}_{clients}_clients"
            tps = {name: statistics.median(tps for tps, _ in found) for name, found in rows.items()}
            latency = {name: statistics.median(ms for _, ms in found) for name, found in rows.items()}
            for name, value in tps.items():
                result.figures[f"{key}_{name}_tps"] = value
            result.ratio[key] = tps["queryflux"] / tps["pgbouncer"]
            if clients == 1:
                result.figures[f"{key}_added_ms"] = latency["queryflux"] - latency["direct"]
    return result
