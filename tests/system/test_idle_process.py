"""An idle process that fronts Trino and PostgreSQL stays small: what it never needs is never loaded."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys
import uvloop
from queryflux.app.standalone import Standalone
from queryflux.config.loader import load_bytes

CONFIG = b'''
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
    postgresWire: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
clusters:
  lake: {engine: trino, endpoint: "http://127.0.0.1:9"}
  shop: {engine: postgres, endpoint: "127.0.0.1:9", auth: {type: basic, username: a, password: b}}
clusterGroups:
  lake: {members: [lake]}
  shop: {members: [shop]}
routingFallback: lake
'''

async def main():
    loaded = load_bytes(CONFIG, {})
    standalone = Standalone(loaded.config, loaded.snapshot)
    await standalone.start()
    await asyncio.sleep(0.2)
    await standalone.close()

uvloop.run(main())
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""

HEAVY = {
    "adbc_driver_manager",
    "adbc_driver_postgresql",
    "duckdb",
    "numpy",
    "pyarrow",
    "rich",
    "sqlglot",
    "typer",
}


def test_heavy_libraries_are_not_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split())
    assert {"queryflux", "uvloop", "msgspec", "httptools"} <= loaded
    assert loaded & HEAVY == set()
