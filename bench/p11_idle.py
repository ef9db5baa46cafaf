"""P11: what an idle process weighs and how fast it starts.

Two doors, one Trino and one PostgreSQL cluster, neither of which answers.
"""

import statistics
import time

from bench.processes import queryflux, resident_mib
from bench.result import Result
from tests.kit.places import free_port

ID = "P11"
TITLE = "idle memory and time to ready: Trino and PostgreSQL doors, one Trino and one PostgreSQL cluster"
RUNS = 5

CONFIG = """
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: {trino}}}
    postgresWire: {{host: 127.0.0.1, port: {postgres}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
clusters:
  lake: {{engine: trino, endpoint: "http://127.0.0.1:9"}}
  shop:
    engine: postgres
    endpoint: "127.0.0.1:9"
    database: shop
    auth: {{type: basic, username: a, password: b}}
clusterGroups:
  lake: {{members: [lake]}}
  shop: {{members: [shop]}}
routingFallback: lake
"""


def run() -> Result:
    """Medians of several starts; memory a second after the start."""
    starts: list[float] = []
    memory: list[float] = []
    for _ in range(RUNS):
        began = time.perf_counter()
        with queryflux(CONFIG, trino=free_port(), postgres=free_port(), admin=free_port()) as process:
            starts.append(time.perf_counter() - began)
            time.sleep(1)
            memory.append(resident_mib(process.pid))
    return Result(
        figures={"idle_rss_mib": statistics.median(memory), "start_to_ready_s": statistics.median(starts)},
        peer="the targets: 70 MiB and 1 s",
        ratio={"memory": statistics.median(memory) / 70, "start": statistics.median(starts) / 1.0},
        notes=f"median of {RUNS} starts",
    )
