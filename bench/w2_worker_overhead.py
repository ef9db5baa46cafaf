"""W2: what a worker adds to a Trino query, beside a process without a control plane, and beside one acquire.

As P1, through three doors in one run: ``standalone``, ``worker`` (its configuration, its leases and its
history come from and go to a control plane over PostgreSQL that writes to disk) and ``limited``, the same
worker asked for a cluster with a limit, where each query needs a lease of the control plane. ``acquire`` is
one such round trip alone (that of a limited query carries the release of the one before, too). For the first
two the processors are kept awake, as in P1's rows ``awake_``; for the others the disk is waited for anyway.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext

from bench.p1_trino_overhead import CONFIG, awake, measure, mock
from bench.p7_acquires import percentile
from bench.p8_worker_acquires import SECRET, Task, lone
from bench.processes import durable_database, queryflux
from bench.result import Result
from tests.kit.places import free_port

ID = "W2"
TITLE = "What a worker adds to a Trino query"
LIMITED = "X-Team: limited\r\n"

CONTROL_PLANE = """
queryflux:
  role: controlPlane
  adminApi: {{host: 127.0.0.1, port: {admin}}}
  frontends: {{trinoHttp: {{enabled: false}}}}
  persistence: {{type: postgres, url: "DSN"}}
  workerApi: {{secret: SECRET}}
  logging: {{level: warning}}
clusters:
  mock: {{engine: trino, endpoint: "http://127.0.0.1:{mock}"}}
  small: {{engine: trino, endpoint: "http://127.0.0.1:{mock}", maxRunningQueries: 100}}
clusterGroups:
  main: {{members: [mock]}}
  other: {{members: [small]}}
routers:
  - {{type: header, headerName: x-team, headerValueToGroup: {{limited: other}}}}
  - {{type: queryRegex, rules: [{{regex: "(?i)^\\\\s*insert", targetGroup: other}}]}}
routingFallback: main
"""

WORKER = """
queryflux:
  role: worker
  controlPlane: {{url: "http://127.0.0.1:{central}", secret: SECRET}}
  frontends: {{trinoHttp: {{host: 127.0.0.1, port: {port}}}}}
  opsListener: {{host: 127.0.0.1, port: {admin}}}
  logging: {{level: info, format: json}}
"""


@contextmanager
def fleet(mock_port: int) -> Iterator[tuple[int, int]]:
    """A control plane and a worker: the former's operator port, and the latter's Trino door."""
    central, port = free_port(), free_port()
    with durable_database("fleet") as database:
        served = CONTROL_PLANE.replace("DSN", database.dsn).replace("SECRET", SECRET)
        working = WORKER.replace("SECRET", SECRET)
        with (
            queryflux(served, admin=central, mock=mock_port),
            queryflux(working, admin=free_port(), port=port, central=central),
        ):
            yield central, port


def run() -> Result:
    """Measure all three."""
    port, admin = free_port(), free_port()
    figures: dict[str, float] = {}
    try:
        with (
            mock() as mock_port,
            queryflux(CONFIG, port=port, admin=admin, mock=mock_port),
            fleet(mock_port) as (central, worker),
        ):
            doors = {"standalone": (port, ""), "worker": (worker, ""), "limited": (worker, LIMITED)}
            for name, (door, headers) in doors.items():
                with nullcontext() if headers else awake():
                    measured = measure(mock_port, door, headers)
                figures |= {f"{name}_{label}": value for label, value in measured.items()}
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                acquires = pool.submit(lone, Task("groups", central, 100, 0)).result()
    except RuntimeError as error:
        return Result(skipped=str(error))
    for share in (50, 95, 99):
        figures[f"acquire_p{share}_ms"] = percentile(acquires, share)
    return Result(
        figures,
        peer="the mock coordinator asked directly; the process without a control plane",
        ratio={
            "worker/standalone_p50": figures["worker_added_p50_ms"] / figures["standalone_added_p50_ms"],
            "limited/worker_and_acquire_p50": figures["limited_added_p50_ms"]
            / (figures["worker_added_p50_ms"] + figures["acquire_p50_ms"]),
        },
        notes="as P1, without a lease on processors kept awake; an acquire goes by the control plane into"
        " PostgreSQL with fsync on",
    )
