"""P11: what an idle process weighs and how fast it starts; a worker too, whose control plane answers.

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

SECRET = "0123456789abcdef-of-the-bench"
CLUSTERS = """
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
STANDALONE = (
    """
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: {trino}}}
    postgresWire: {{host: 127.0.0.1, port: {postgres}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
"""
    + CLUSTERS
)
CENTRAL = STANDALONE.replace(
    "  adminApi", f"  workerApi: {{{{enabled: true, secret: {SECRET}}}}}\n  adminApi"
)
WORKER = f"""
queryflux:
  role: worker
  controlPlane: {{{{url: "http://127.0.0.1:{{control}}", secret: {SECRET}}}}}
  frontends:
    trinoHttp: {{{{host: 127.0.0.1, port: {{trino}}}}}}
    postgresWire: {{{{host: 127.0.0.1, port: {{postgres}}}}}}
  opsListener: {{{{host: 127.0.0.1, port: {{admin}}}}}}
"""


def measured(config: str, **ports: int) -> tuple[float, float]:
    """Medians of several starts: seconds to ready, and MiB a second after the start."""
    starts: list[float] = []
    memory: list[float] = []
    for _ in range(RUNS):
        began = time.perf_counter()
        own = {"trino": free_port(), "postgres": free_port(), "admin": free_port()}
        with queryflux(config, **own, **ports) as process:
            starts.append(time.perf_counter() - began)
            time.sleep(1)
            memory.append(resident_mib(process.pid))
    return statistics.median(starts), statistics.median(memory)


def run() -> Result:
    """The standalone, and a worker."""
    start, memory = measured(STANDALONE)
    control = free_port()
    with queryflux(CENTRAL, trino=free_port(), postgres=free_port(), admin=control):
        worker_start, worker_memory = measured(WORKER, control=control)
    return Result(
        figures={
            "idle_rss_mib": memory,
            "start_to_ready_s": start,
            "worker_idle_rss_mib": worker_memory,
            "worker_start_to_ready_s": worker_start,
        },
        peer="the targets: 70 MiB and 1 s",
        ratio={
            "memory": memory / 70,
            "start": start / 1.0,
            "worker memory": worker_memory / 70,
            "worker start": worker_start / 1.0,
        },
        notes=f"median of {RUNS} starts; a worker's control plane answers from the beginning",
    )
