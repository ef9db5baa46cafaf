"""P9: one edit reaches 500 workers that wait for news; 2,000 come back after their control plane was killed.

Workers are connections of another process, each with a wait of its own, as a worker's is. An edit's time is
from the operator's request to the last byte of each worker's snapshot, of 200 clusters. Those that come back
lost their connection to a kill -9; each tries again every half second or so until it is told that it has the
newest, and waits again.
"""

import asyncio
import base64
import json
import os
import random
import re
import signal
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import uvloop

from bench.p7_acquires import percentile
from bench.processes import postgres, queryflux
from bench.result import Result
from tests.kit.databases import Database
from tests.kit.places import free_port

ID = "P9"
TITLE = "an edit reaches 500 waiting workers; 2,000 come back after a restart"
WAITERS = 500
EDITS = 10
RETURNING = 2000
RETRY_SECS = (0.25, 0.75)
SECRET = "0123456789abcdef-of-workers"
CLUSTERS = 200
CONFIG = """
queryflux:
  role: controlPlane
  frontends: {{trinoHttp: {{host: 127.0.0.1, port: 0}}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
  persistence: {{type: postgres, url: 'URL'}}
  workerApi: {{secret: SECRET}}
  logging: {{level: warning}}
clusters: {{CLUSTERS}}
clusterGroups: {{main: {{members: [c0]}}}}
routingFallback: main
"""
_STATUS = re.compile(rb"HTTP/1.1 (\d+)")
_LENGTH = re.compile(rb"content-length: (\d+)", re.I)
_HEADER = re.compile(rb"\r\n(etag|x-queryflux-config-epoch|x-queryflux-config-sequence): ([^\r]*)", re.I)


class Worker:
    """One connection that asks for news; what it has is (revision, epoch, sequence)."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.has = ("", "", "-1")
        self.got = 0.0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, **headers: str) -> int:
        """One request; gives the status. Raises OSError, EOFError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nAccept-Encoding: gzip\r\n"
        )
        try:
            writer.write(f"{head}{more}\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(answer)
            await reader.readexactly(int(length[1]) if length else 0)
        except (OSError, EOFError):
            writer.close()
            self._streams = None
            raise
        found = {name.lower(): value.decode() for name, value in _HEADER.findall(answer)}
        status = _STATUS.match(answer)
        assert status is not None
        if status[1] in (b"200", b"304"):
            names = (b"etag", b"x-queryflux-config-epoch", b"x-queryflux-config-sequence")
            revision, epoch, sequence = (found[name] for name in names)
            self.has = (revision.strip('"'), epoch, sequence)
        return int(status[1])

    async def wait(self) -> int:
        """Wait for news, for as long as a worker does."""
        revision, epoch, sequence = self.has
        asked = f"revision={revision}&epoch={epoch}&sequence={sequence}&timeoutSecs=60"
        status = await self.ask(f"/worker/config/wait?{asked}")
        self.got = time.monotonic()
        return status

    async def come_back(self) -> float:
        """Ask until there is an answer; gives when."""
        while True:
            try:
                if await self.ask("/worker/config", If_None_Match=f'"{self.has[0]}"') in (200, 304):
                    return time.monotonic()
            except (OSError, EOFError):
                pass  # it is not up yet
            await asyncio.sleep(random.uniform(*RETRY_SECS))


def put_group(port: int, limit: int) -> None:
    """An operator's edit."""
    import urllib.request

    body = json.dumps({"members": ["c0"], "maxRunningQueries": limit}).encode()
    credentials = base64.b64encode(b"admin:admin").decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/admin/config/groups/main",
        body,
        {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=30):
        pass


def edits(port: int) -> dict[str, float]:
    """Every worker waits, an edit is made, and again. Runs in a process of its own."""

    async def run() -> dict[str, float]:
        workers = [Worker(port) for _ in range(WAITERS)]
        for worker in workers:
            assert await worker.ask("/worker/config") == 200
        took: list[float] = []
        for limit in range(1, EDITS + 1):
            waits = [asyncio.ensure_future(worker.wait()) for worker in workers]
            await asyncio.sleep(1)
            began = time.monotonic()
            await asyncio.to_thread(put_group, port, limit)
            assert await asyncio.gather(*waits) == [200] * WAITERS
            took += [(worker.got - began) * 1000 for worker in workers]
        return {
            "edit, p50 (ms)": statistics.median(took),
            "edit, p99 (ms)": percentile(took, 99),
            "edit, longest (ms)": max(took),
        }

    return uvloop.run(run())


def returns(port: int, ready: str) -> dict[str, float]:
    """All are there, their control plane goes, and they come back. ``ready`` is written when all are there.
    Runs in a process of its own."""

    async def run() -> dict[str, float]:
        workers = [Worker(port) for _ in range(RETURNING)]
        for worker in workers:
            assert await worker.ask("/worker/config") == 200
        waits = [asyncio.ensure_future(worker.wait()) for worker in workers]
        await asyncio.sleep(1)
        touch(ready)
        await asyncio.wait(waits)
        lost = time.monotonic()
        for wait in waits:
            wait.exception()
        back = await asyncio.gather(*(worker.come_back() for worker in workers))
        first = min(back)
        again = [asyncio.ensure_future(worker.wait()) for worker in workers]
        await asyncio.sleep(3)
        waiting = sum(not wait.done() for wait in again)
        touch(f"{ready}-again")
        await asyncio.sleep(1)
        for wait in again:
            wait.cancel()
        return {
            "restart, from the first answer to the last worker (s)": max(back) - first,
            "restart, from the kill to the last worker (s)": max(back) - lost,
            "restart, workers that wait again": waiting,
        }

    return uvloop.run(run())


def most_resident_mib(pid: int) -> float:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def run() -> Result:
    """Both."""
    admin = free_port()
    cluster = "engine: trino, endpoint: 'http://127.0.0.1:9', auth: {{type: bearer, token: t}}"
    clusters = ", ".join(f"c{number}: {{{{{cluster}}}}}" for number in range(CLUSTERS))
    figures: dict[str, float] = {}
    with postgres() as server, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as clients:
        dsn = Database(server, "postgres").dsn
        config = CONFIG.replace("{{CLUSTERS}}", "{{" + clusters + "}}").replace("SECRET", SECRET)
        config = config.replace("URL", dsn)
        with queryflux(config, admin=admin) as process:
            figures |= clients.submit(edits, admin).result()
            figures["edit, resident (MiB)"] = most_resident_mib(process.pid)
            ready = f"/tmp/p9-{os.getpid()}"
            coming = clients.submit(returns, admin, ready)
            until(ready)
            process.send_signal(signal.SIGKILL)
            process.wait()
        with queryflux(config, admin=admin) as process:
            until(f"{ready}-again")
            figures["restart, resident (MiB)"] = most_resident_mib(process.pid)
            figures |= coming.result()
    return Result(
        figures=figures,
        notes=f"{WAITERS} waiting workers, {EDITS} edits; {RETURNING} workers come back; {CLUSTERS} clusters",
    )


def touch(path: str) -> None:
    """Say that something has come."""
    Path(path).touch()


def until(path: str) -> None:
    """Return when a file is there, and take it away."""
    while not Path(path).exists():
        time.sleep(0.02)
    Path(path).unlink()
