"""P7: leases of one hot cluster in PostgreSQL: groups, beside one call each and four round trips, in turn on
the same server.

64 clients of one process wait for places, take them, and give them back at once. A wait lasts from asking to
the grant. The server writes to disk for every grant (fsync, synchronous_commit and full_page_writes on).
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from bench.processes import durable_database
from bench.result import Result
from queryflux.admission.batched import BatchedReleaseStore
from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.port import Lease
from queryflux.admission.slots import Group, Member
from queryflux.persistence.postgres.capacity import PostgresCapacityStore
from queryflux.persistence.postgres.pools import Pool
from queryflux.runtime.clock import SystemClock
from queryflux.runtime.tasks import TaskGroup
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.databases import Database

ID = "P7"
TITLE = "leases of one hot cluster: groups, beside one call each and four round trips"
WAITERS = 64
CAPS = (10, 100)
SECONDS = 2.0
ROUNDS = 3
CONNECTIONS = 8
LONE = 500

Take = Callable[[str], Awaitable[Callable[[], Awaitable[None]]]]
"""Waits for a place for a query id; gives what gives it back."""


async def clients(take: Take, count: int = WAITERS) -> tuple[float, list[float]]:
    """Grants a second, and waits in ms."""
    waits: list[float] = []
    end = time.perf_counter() + SECONDS

    async def client(number: int) -> None:
        turn = 0
        while (asked := time.perf_counter()) < end:
            turn += 1
            give_back = await take(f"{number}-{turn}")
            waits.append((time.perf_counter() - asked) * 1000)
            await give_back()

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(count)))
    return len(waits) / (time.perf_counter() - began), waits


@asynccontextmanager
async def four_round_trips(pool: Pool, cap: int) -> AsyncIterator[Take]:
    """BEGIN, lock, count and insert, COMMIT; a release is waited for."""
    slots = asyncio.Semaphore(cap)

    async def take(query_id: str) -> Callable[[], Awaitable[None]]:
        await slots.acquire()
        async with pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT queryflux_capacity_lock('hot')")
            row = await connection.fetchval(
                "INSERT INTO cluster_capacity_leases SELECT $1, 'hot', 'bench' WHERE $2 >"
                " (SELECT count(*) FROM cluster_capacity_leases WHERE cluster_name = 'hot') RETURNING true",
                query_id,
                cap,
            )
            assert row

        async def give_back() -> None:
            async with pool.connection() as connection:
                await connection.execute("DELETE FROM cluster_capacity_leases WHERE query_id = $1", query_id)
            slots.release()

        return give_back

    yield take


@asynccontextmanager
async def one_call(pool: Pool, cap: int) -> AsyncIterator[Take]:
    """A call of queryflux_capacity_try_acquire each; releases in batches; refused waiters ask again when a
    release is confirmed."""
    slots = asyncio.Semaphore(cap)
    tasks = TaskGroup("one call")
    store = PostgresCapacityStore(pool, "bench")
    batched = BatchedReleaseStore(store, SystemClock(), tasks, PrometheusMetrics())
    confirmed = asyncio.Condition()

    def tell(leases: object) -> None:
        tasks.spawn("tell", wake())

    async def wake() -> None:
        async with confirmed:
            confirmed.notify_all()

    batched.on_confirmed = tell

    async def take(query_id: str) -> Callable[[], Awaitable[None]]:
        await slots.acquire()
        while not await store.try_acquire("hot", query_id, cap):
            async with confirmed:
                await confirmed.wait()

        async def give_back() -> None:
            await batched.release_many([Lease("hot", query_id)])
            slots.release()

        return give_back

    yield take
    await batched.release_all()
    await tasks.close()


@asynccontextmanager
async def groups(pool: Pool, cap: int, clusters: int = 1) -> AsyncIterator[Take]:
    """As the pipeline does it."""
    clock = SystemClock()
    leases = Leases(PostgresCapacityStore(pool, "bench"), clock, PrometheusMetrics())
    admission = LeasedAdmission(clock, leases)
    made = []
    for number in range(clusters):
        member = Member(f"hot{number}" if clusters > 1 else "hot", limit=cap)
        made.append(Group(member.name, [member]))
        member.groups.append(made[-1])

    async def take(query_id: str) -> Callable[[], Awaitable[None]]:
        group = made[int(query_id.partition("-")[0]) % clusters]
        slot = await admission.enter(group, (), query_id).wait()

        async def give_back() -> None:
            slot.release()

        return give_back

    yield take
    await leases.close()


async def lone(take: Take) -> list[float]:
    """One query after another; its waits in ms."""
    waits = []
    for number in range(LONE):
        asked = time.perf_counter()
        give_back = await take(f"0-lone{number}")
        waits.append((time.perf_counter() - asked) * 1000)
        await give_back()
        await asyncio.sleep(0.002)
    return waits


def percentile(values: list[float], part: float) -> float:
    """The value below which so many percent lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part / 100))]


async def measure(database: Database) -> Result:
    """All ways in turn, several times; medians."""
    rates: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    ways: dict[str, Any] = {"four_round_trips": four_round_trips, "one_call": one_call, "groups": groups}
    async with database.pool(CONNECTIONS) as pool:
        for _ in range(ROUNDS):
            for cap in CAPS:
                for name, way in ways.items():
                    async with way(pool, cap) as take:
                        rate, waited = await clients(take)
                    rates.setdefault(f"{name}_cap{cap}", []).append(rate)
                    waits.setdefault(f"{name}_cap{cap}", []).extend(waited)
                    assert not database.leases() or await emptied(database)
            async with groups(pool, 10, 16) as take:
                rate, _ = await clients(take)
            rates.setdefault("groups_16_clusters_cap10", []).append(rate)
        async with groups(pool, 10) as take:
            single = await lone(take)
    return report(rates, waits, single)


async def emptied(database: Database) -> bool:
    """Whether no lease is left once queued releases are through."""
    for _ in range(50):
        if not database.leases():
            return True
        await asyncio.sleep(0.02)
    return False


def report(rates: dict[str, list[float]], waits: dict[str, list[float]], single: list[float]) -> Result:
    """Figures and ratios."""
    rate = {name: statistics.median(values) for name, values in rates.items()}
    result = Result(peer="one call each, and four round trips, on the same server in the same run")
    for name, value in rate.items():
        result.figures[f"{name}_per_s"] = value
        if name in waits:
            result.figures[f"{name}_wait_p50_ms"] = percentile(waits[name], 50)
            result.figures[f"{name}_wait_p99_ms"] = percentile(waits[name], 99)
    result.figures["lone_p50_ms"] = percentile(single, 50)
    result.figures["lone_p99_ms"] = percentile(single, 99)
    for cap in CAPS:
        for peer in ("one_call", "four_round_trips"):
            result.ratio[f"groups/{peer}_cap{cap}"] = rate[f"groups_cap{cap}"] / rate[f"{peer}_cap{cap}"]
    result.notes = (
        f"{WAITERS} clients of one process, hold 0, {CONNECTIONS} connections, "
        f"{ROUNDS} rounds of {SECONDS:g} s; fsync, synchronous_commit and full_page_writes on"
    )
    return result


def run() -> Result:
    """On a PostgreSQL of our own."""
    with durable_database("capacity") as database:
        work: Coroutine[Any, Any, Result] = measure(database)
        return uvloop.run(work)
