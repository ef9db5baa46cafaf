"""P10: records of finished queries from the buffers of four workers, through a control plane into PostgreSQL,
while half of the acknowledgements never arrive.

Workers are processes with the buffer and the uplink of ``role: worker``; the control plane is ``queryflux
serve``. A worker drops the answer of every second call, by chance: it knows nothing then, and sends the batch
again. Every text is another one (its values differ), 200 shapes, so digests are counted too. The server
writes to disk for every batch. In the end each record must be there once, and each digest count be right.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import uvloop

from bench.h1_history_rate import records
from bench.processes import durable_database, queryflux
from bench.result import Result
from queryflux.app.history import ProcessHistory
from queryflux.app.uplink import Uplink
from queryflux.config.fleet import HistoryUplinkConfig
from queryflux.config.process import ProcessConfig
from queryflux.history.redaction import Redaction
from queryflux.model.errors import StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.runtime.clock import SystemClock
from queryflux.telemetry.prometheus import PrometheusMetrics
from queryflux.worker.client import Caller, HttpControlPlane, address_of
from queryflux.worker.port import NO_HEADERS, ControlPlane, Reply
from tests.kit.databases import Database
from tests.kit.places import free_port

ID = "P10"
TITLE = "history: records a second from four workers, with every second acknowledgement lost"
WORKERS = 4
RECORDS = 25_000
"""Of each worker."""
MOST_WAITING = 5_000
TICK = 0.01
TURNS = 3
SECRET = "known-to-workers"
LOST = 0.5

CONFIG = """
queryflux:
  role: controlPlane
  adminApi: {{host: 127.0.0.1, port: {admin}, password: bench-bench}}
  frontends: {{trinoHttp: {{enabled: false}}}}
  workerApi: {{secret: "SECRET"}}
  persistence: {{type: postgres, url: "DSN"}}
  logging: {{level: warning}}
clusters:
  lake: {{engine: trino, endpoint: "http://127.0.0.1:1"}}
clusterGroups:
  bi: {{members: [lake]}}
routingFallback: bi
"""


class Losing:
    """A control plane of whose answers some never arrive."""

    def __init__(self, control_plane: ControlPlane, share: float, chance: random.Random) -> None:
        self._control_plane = control_plane
        self._share = share
        self._chance = chance
        self.calls = self.lost = 0

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        """As ControlPlane."""
        self.calls += 1
        reply = await self._control_plane.call(method, path, body, headers=headers, seconds=seconds)
        if self._chance.random() < self._share:
            self.lost += 1
            raise StoreUnavailable("the acknowledgement was lost")
        return reply


async def work(port: int, number: int, share: float, seed: int) -> dict[str, Any]:
    """One worker: what became of its records, and what it took."""
    clock = SystemClock()
    url = f"http://127.0.0.1:{port}"
    caller = Caller(Secret(SECRET), f"qf-{number}", f"worker-{number}")
    client = HttpControlPlane([address_of(url, None)], caller, clock)
    losing = Losing(client, share, random.Random(seed))
    history = ProcessHistory(ProcessConfig(role="worker"), f"qf-{number}", clock, PrometheusMetrics())
    history.keep_to(Redaction.NONE)
    uplink = Uplink(HistoryUplinkConfig(), losing, [url], caller, clock)
    uplink.start(history)
    buffer = history.buffer
    assert buffer is not None
    coming = list(islice(records(f"w{number}-{seed}"), RECORDS))
    print("ready", flush=True)
    sys.stdin.readline()
    queue = iter(coming)
    began, cpu = time.monotonic(), time.process_time()
    while buffer.stored < RECORDS:
        for one in islice(queue, min(1000, MOST_WAITING - buffer.waiting)):
            history.add(one)
        await asyncio.sleep(TICK)
    ended = time.monotonic()
    used = time.process_time() - cpu
    await history.close(5)
    client.close()
    assert buffer.delivery == (RECORDS, 0, 0, 0, ""), buffer.delivery
    return {"began": began, "ended": ended, "cpu": used, "calls": losing.calls, "lost": losing.lost}


def turn(port: int, pid: int, database: Database, share: float, seed: int) -> dict[str, float]:
    """All workers at the same time, into an empty history."""
    database.rows("TRUNCATE query_records, query_digest_stats")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "bench.p10_uplink",
                        *map(str, (port, number, share, seed + number)),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(WORKERS)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        before = cpu_seconds(pid)
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        said = [json.loads(worker.stdout.read()) for worker in workers if worker.stdout is not None]
    total = WORKERS * RECORDS
    used = cpu_seconds(pid) - before
    kept = database.rows("SELECT count(*), count(DISTINCT proxy_query_id) FROM query_records")
    assert kept == [(total, total)], kept
    assert database.rows("SELECT sum(call_count) FROM query_digest_stats") == [(total,)]
    names = database.rows("SELECT count(*) FROM query_records WHERE worker = 'worker-1'")
    assert names == [(RECORDS,)], names
    seconds = max(one["ended"] for one in said) - min(one["began"] for one in said)
    return {
        "records_per_s": total / seconds,
        "worker_cpu_us_per_record": sum(one["cpu"] for one in said) / total * 1e6,
        "control_plane_cpu_us_per_record": used / total * 1e6,
        "acknowledgements_lost": sum(one["lost"] for one in said) / sum(one["calls"] for one in said),
    }


def cpu_seconds(pid: int) -> float:
    """That a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port: int, pid: int, database: Database) -> Result:
    """Medians of the turns; beside them, with no acknowledgement lost."""
    turns = [turn(port, pid, database, LOST, WORKERS * number) for number in range(TURNS)]
    figures = {name: statistics.median(one[name] for one in turns) for name in turns[0]}
    whole = statistics.median(turn(port, pid, database, 0.0, 0)["records_per_s"] for _ in range(TURNS))
    return Result(
        figures=figures | {"without_loss_records_per_s": whole},
        peer="the same with every acknowledgement arriving",
        ratio={"of_without_loss": figures["records_per_s"] / whole},
        notes=f"{WORKERS} workers, {RECORDS} records each, median of {TURNS} turns; none lost, none twice; "
        "fsync on",
    )


def run() -> Result:
    """On a PostgreSQL of its own that writes to disk."""
    try:
        with durable_database("history") as database:
            port = free_port()
            config = CONFIG.replace("DSN", database.dsn).replace("SECRET", SECRET)
            with queryflux(config, admin=port) as control_plane:
                return measure(port, control_plane.pid, database)
    except RuntimeError as error:
        return Result(skipped=str(error))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(work(*map(int, sys.argv[1:3]), float(sys.argv[3]), int(sys.argv[4])))))
