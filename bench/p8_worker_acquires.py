"""P8: leases of one hot cluster from four workers, through the API of one control plane and PostgreSQL;
beside one request for each acquire and each release, on the same processes in the same run.

64 clients, 16 in each worker's process, wait for places, take them, and give them back at once. A wait lasts
from asking to the grant. The server writes to disk for every grant (fsync, synchronous_commit and
full_page_writes on).
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from typing import NamedTuple

import uvloop

from bench.p7_acquires import percentile
from bench.processes import durable_database, queryflux
from bench.result import Result
from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.port import Lease
from queryflux.admission.slots import Group, Member
from queryflux.model.secret import Secret
from queryflux.runtime.clock import SystemClock
from queryflux.telemetry.prometheus import PrometheusMetrics
from queryflux.worker.client import Caller, HttpControlPlane, address_of
from queryflux.worker.coordination import RemoteCoordinationStore
from tests.kit.databases import Database
from tests.kit.places import free_port

ID = "P8"
TITLE = "leases of one hot cluster from four workers, through their control plane"
WORKERS = 4
WAITERS = 16
"""In each worker."""
CAPS = (10, 100)
SECONDS = 2.0
ROUNDS = 3
LONE = 500
AHEAD = 0.7
"""Seconds that workers have to be up before all begin."""
RETRY = 0.02
"""Where each goes by itself, the pause after a refusal."""
SECRET = "0123456789abcdef-of-workers"

CONTROL_PLANE = """
queryflux:
  role: controlPlane
  frontends: {{trinoHttp: {{host: 127.0.0.1, port: 0}}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
  persistence: {{type: postgres, url: 'URL'}}
  workerApi: {{secret: SECRET}}
  logging: {{level: warning}}
clusters: {{mock: {{engine: trino, endpoint: 'http://127.0.0.1:9'}}}}
clusterGroups: {{main: {{members: [mock]}}}}
routingFallback: main
"""

Take = Callable[[str], Awaitable[Callable[[], Awaitable[None]]]]
"""Waits for a place for a query id; gives what gives it back."""


class Task(NamedTuple):
    """What a worker's process does."""

    way: str
    port: int
    cap: int
    number: int
    begin: float = 0.0
    """By the wall clock, which the processes share."""


@asynccontextmanager
async def store_of(task: Task) -> AsyncIterator[RemoteCoordinationStore]:
    """A worker's store, over its own client."""
    clock, name = SystemClock(), f"worker{task.number}"
    caller = Caller(Secret(SECRET), f"{name}-{task.begin}", name)
    client = HttpControlPlane([address_of(f"http://127.0.0.1:{task.port}", None)], caller, clock)
    yield RemoteCoordinationStore(client, caller.instance, clock)
    client.close()


@asynccontextmanager
async def groups(task: Task) -> AsyncIterator[Take]:
    """As a worker's pipeline does it."""
    clock = SystemClock()
    async with store_of(task) as store:
        leases = Leases(store, clock, PrometheusMetrics())
        admission = LeasedAdmission(clock, leases)
        group = Group("hot", [Member("hot", limit=task.cap)])
        group.members[0].groups.append(group)

        async def take(query_id: str) -> Callable[[], Awaitable[None]]:
            slot = await admission.enter(group, (), query_id).wait()

            async def give_back() -> None:
                slot.release()

            return give_back

        yield take
        await leases.close()


@asynccontextmanager
async def one_request(task: Task) -> AsyncIterator[Take]:
    """A request for each acquire, and one for each release, which is waited for."""
    slots, clock = asyncio.Semaphore(task.cap), SystemClock()
    async with store_of(task) as store:

        async def take(query_id: str) -> Callable[[], Awaitable[None]]:
            await slots.acquire()
            while not await store.try_acquire("hot", query_id, task.cap):
                await clock.sleep(RETRY)

            async def give_back() -> None:
                await store.release_many([Lease("hot", query_id)])
                slots.release()

            return give_back

        yield take
        await store.release_all()


WAYS = {"groups": groups, "one_request": one_request}


def clients(task: Task) -> list[float]:
    """In a worker's process: the waits of its clients, in ms."""
    return uvloop.run(_clients(task))


async def _clients(task: Task) -> list[float]:
    waits: list[float] = []
    async with WAYS[task.way](task) as take:
        await (await take(f"{task.number}-first"))()
        await asyncio.sleep(max(0.0, task.begin - time.time()))
        end = time.perf_counter() + SECONDS

        async def client(number: int) -> None:
            turn = 0
            while (asked := time.perf_counter()) < end:
                turn += 1
                give_back = await take(f"{task.number}-{number}-{turn}")
                waits.append((time.perf_counter() - asked) * 1000)
                await give_back()

        await asyncio.gather(*(client(number) for number in range(WAITERS)))
    return waits


def lone(task: Task) -> list[float]:
    """In a worker's process: waits of one query after another, in ms."""
    return uvloop.run(_lone(task))


async def _lone(task: Task) -> list[float]:
    waits = []
    async with WAYS[task.way](task) as take:
        for number in range(LONE):
            asked = time.perf_counter()
            give_back = await take(f"lone{number}")
            waits.append((time.perf_counter() - asked) * 1000)
            await give_back()
            await asyncio.sleep(0.002)
    return waits[10:]


def measure(port: int, database: Database) -> Result:
    """Both ways in turn, several times; medians."""
    rates: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        for _ in range(ROUNDS):
            for cap in CAPS:
                for way in WAYS:
                    begin = time.time() + (AHEAD if rates else 4 * AHEAD)
                    tasks = [Task(way, port, cap, number, begin) for number in range(WORKERS)]
                    waited = list(pool.map(clients, tasks))
                    rates.setdefault(f"{way}_cap{cap}", []).append(sum(map(len, waited)) / SECONDS)
                    waits.setdefault(f"{way}_cap{cap}", []).extend(wait for one in waited for wait in one)
                    assert not database.leases(), database.leases()
        single = pool.submit(lone, Task("groups", port, 10, 0)).result()
    return report(rates, waits, single)


def report(rates: dict[str, list[float]], waits: dict[str, list[float]], single: list[float]) -> Result:
    """Figures and ratios."""
    result = Result(peer="one request for each acquire and each release, on the same processes")
    for name, values in rates.items():
        result.figures[f"{name}_per_s"] = statistics.median(values)
        result.figures[f"{name}_wait_p50_ms"] = percentile(waits[name], 50)
        result.figures[f"{name}_wait_p99_ms"] = percentile(waits[name], 99)
    result.figures["lone_p50_ms"] = percentile(single, 50)
    result.figures["lone_p99_ms"] = percentile(single, 99)
    for cap in CAPS:
        ours, theirs = (result.figures[f"{way}_cap{cap}_per_s"] for way in WAYS)
        result.ratio[f"groups/one_request_cap{cap}"] = ours / theirs
    result.notes = (
        f"{WORKERS} workers of {WAITERS} clients each, one control plane, hold 0, {ROUNDS} rounds of "
        f"{SECONDS:g} s; fsync, synchronous_commit and full_page_writes on; all on the same processors"
    )
    return result


def run() -> Result:
    """On a PostgreSQL of our own."""
    with durable_database("fleet") as database:
        port = free_port()
        with queryflux(CONTROL_PLANE.replace("URL", database.dsn).replace("SECRET", SECRET), admin=port):
            return measure(port, database)
