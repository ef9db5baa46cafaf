"""An idle process that fronts Trino and PostgreSQL stays small: what it never needs is never loaded. A worker
opens no database of ours either, and so loads no driver for one."""

import subprocess
import sys

from tests.kit.serving import serving

SECRET = "0123456789abcdef-idle"
CLUSTERS = """
clusters:
  lake: {engine: trino, endpoint: "http://127.0.0.1:9"}
  shop: {engine: postgres, endpoint: "127.0.0.1:9", auth: {type: basic, username: a, password: b}}
clusterGroups:
  lake: {members: [lake]}
  shop: {members: [shop]}
routingFallback: lake
"""
STANDALONE = f"""
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
    postgresWire: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
{CLUSTERS}
"""
CENTRAL = f"""
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  workerApi: {{enabled: true, secret: {SECRET}}}
  logging: {{level: error}}
{CLUSTERS}
"""
WORKER = f"""
queryflux:
  role: worker
  controlPlane: {{url: "URL", secret: {SECRET}}}
  opsListener: {{host: 127.0.0.1, port: 0}}
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
    postgresWire: {{host: 127.0.0.1, port: 0}}
  logging: {{level: error}}
"""
PROGRAM = """
import asyncio, sys
import uvloop
from queryflux.app.MODULE import CLASS
from queryflux.config.loader import load_bytes

async def main():
    loaded = load_bytes(sys.stdin.buffer.read(), {})
    process = CLASS(loaded.config, loaded.snapshot)
    await process.start()
    for _ in range(100):
        await asyncio.sleep(0.1)
        if process.pipeline.active is not None:
            break
    await asyncio.sleep(0.1)
    assert process.generation.clusters.keys() == {"lake", "shop"}
    await process.close()

uvloop.run(main())
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""

HEAVY = {
    "adbc_driver_manager",
    "adbc_driver_postgresql",
    "asyncpg",
    "duckdb",
    "numpy",
    "pyarrow",
    "rich",
    "sqlglot",
    "sqlite3",
    "typer",
}


def loaded_by(module: str, kind: str, config: str) -> set[str]:
    """The packages that a process has loaded when it has its configuration."""
    program = PROGRAM.replace("MODULE", module).replace("CLASS", kind)
    done = subprocess.run(
        [sys.executable, "-c", program], input=config.encode(), capture_output=True, timeout=60, check=True
    )
    return set(done.stdout.decode().split())


def test_heavy_libraries_are_not_loaded() -> None:
    loaded = loaded_by("standalone", "Standalone", STANDALONE)
    assert {"queryflux", "uvloop", "msgspec", "httptools"} <= loaded
    assert loaded & HEAVY == set()


def test_a_worker_loads_neither_those_nor_a_driver_of_our_database() -> None:
    with serving(CENTRAL) as served:
        url = f"http://127.0.0.1:{served.port('adminApi')}"
        loaded = loaded_by("worker", "Worker", WORKER.replace("URL", url))
    assert {"queryflux", "uvloop", "msgspec", "httptools"} <= loaded
    assert loaded & HEAVY == set()
