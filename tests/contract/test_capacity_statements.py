"""What the capacity document says of the database's part, a sentence at a time (docs/mission.md names them):
who moves the counter, what an acquire and a release are on the wire, and in which order rows are locked.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from queryflux.admission.port import Lease, Wanted
from queryflux.app.stores import build_stores
from queryflux.config.process import ProcessConfig
from queryflux.persistence.postgres.capacity import PostgresCapacityStore
from queryflux.runtime.clock import SystemClock
from tests.kit.capacity_stores import PostgresFleet
from tests.kit.databases import Database, database
from tests.kit.metrics import NoMetrics

__all__ = ["database"]  # a fixture

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('queryflux:capacity:' || %s, 0))"
WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s"
OLD_INSERT = (
    "INSERT INTO cluster_capacity_leases (query_id, cluster_name, instance_id) VALUES ('n', 'd', 'x')"
)


@pytest.fixture
async def fleet(database: Database) -> AsyncIterator[PostgresFleet]:
    async with database.pool(4) as pool:
        yield PostgresFleet(database, pool)


async def until_waiting(database: Database, task: "asyncio.Future[Any]") -> None:
    """Return when somebody waits for a cluster's lock."""
    async with asyncio.timeout(10):
        while not database.rows(WAITS, "advisory")[0][0]:
            assert not task.done()
            await asyncio.wait([task], timeout=0.01)


def until_stuck(database: Database, thread: threading.Thread, kind: str) -> None:
    """Return when the thread's statement waits for such a lock."""
    deadline = time.monotonic() + 10
    while not database.rows(WAITS, kind)[0][0]:
        assert thread.is_alive()
        assert time.monotonic() < deadline


# Every writer moves the counter.

Writer = Callable[[PostgresFleet], Awaitable[object]]


async def acquire(fleet: PostgresFleet) -> None:
    assert await fleet.store("one").try_acquire("d", "n", 9)


async def acquire_many(fleet: PostgresFleet) -> None:
    wanted = [Wanted("n", 9), Wanted("m", 9)]
    assert await fleet.store("one").try_acquire_many("d", wanted, ["d1"]) == [True, True]


async def release(fleet: PostgresFleet) -> None:
    await fleet.store("one").release_many([Lease("c", "c1"), Lease("d", "d1")])


async def shut_down(fleet: PostgresFleet) -> None:
    assert await fleet.store("one").release_all() == 3


async def expire(fleet: PostgresFleet) -> None:
    await fleet.wait(301)
    await fleet.store("one").renew([Lease("c", "c2")])
    assert await fleet.sweeps.expire(300) == 3


async def older_acquire(fleet: PostgresFleet) -> None:
    fleet.database.rows(OLD_INSERT)


async def older_release(fleet: PostgresFleet) -> None:
    fleet.database.rows("DELETE FROM cluster_capacity_leases WHERE query_id = 'c1'")


@pytest.mark.parametrize(
    ("writer", "left"),
    [
        (acquire, {"c": 2, "d": 3}),
        (acquire_many, {"c": 2, "d": 3}),
        (release, {"c": 1, "d": 1}),
        (shut_down, {"d": 1}),
        (expire, {"c": 1}),
        (older_acquire, {"c": 2, "d": 3}),
        (older_release, {"c": 1, "d": 2}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_each_writer_moves_the_counter(
    fleet: PostgresFleet, writer: Writer, left: dict[str, int]
) -> None:
    for cluster, query_id in (("c", "c1"), ("c", "c2"), ("d", "d1")):
        assert await fleet.store("one").try_acquire(cluster, query_id, 9)
    assert await fleet.store("two").try_acquire("d", "d2", 9)
    assert fleet.database.counters() == {"c": 2, "d": 2}
    await writer(fleet)
    assert fleet.database.counters() == left == fleet.database.leases()


# An acquire: the lock, the counter, the row.


@pytest.mark.parametrize("many", [False, True])
async def test_an_acquire_waits_for_its_clusters_lock_and_keeps_it_for_the_call(
    fleet: PostgresFleet, many: bool
) -> None:
    store, database = fleet.store("one"), fleet.database

    async def acquire(cluster: str, query_id: str) -> bool:
        if many:
            return (await store.try_acquire_many(cluster, [Wanted(query_id, 9)]))[0]
        return await store.try_acquire(cluster, query_id, 9)

    with database.server.admin(database.name) as other:
        with other.transaction():
            other.execute(LOCK, ("c",))
            waiting = asyncio.ensure_future(acquire("c", "a"))
            await until_waiting(database, waiting)
            assert await acquire("d", "b"), "another cluster has a lock of its own"
            assert database.leases() == {"d": 1}
        assert await waiting
    assert database.rows("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert database.leases() == {"c": 1, "d": 1}


async def test_an_acquire_compares_the_counter_and_the_trigger_moves_it(fleet: PostgresFleet) -> None:
    store, database = fleet.store("one"), fleet.database
    assert await store.try_acquire("c", "a", 5)
    database.rows("UPDATE cluster_capacity_counters SET leased = 5")
    assert not await store.try_acquire("c", "b", 5), "whatever the rows say"
    database.rows("UPDATE cluster_capacity_counters SET leased = 1")
    database.rows("ALTER TABLE cluster_capacity_leases DISABLE TRIGGER cluster_capacity_leases_inserted")
    assert await store.try_acquire("c", "b", 5)
    assert database.leases() == {"c": 2}
    assert database.counters() == {"c": 1}, "nobody else counts"


async def test_a_recount_takes_the_clusters_lock(fleet: PostgresFleet) -> None:
    database = fleet.database
    assert await fleet.store("one").try_acquire("c", "a", 5)
    database.rows("UPDATE cluster_capacity_counters SET leased = 0")
    with database.server.admin(database.name) as other:
        with other.transaction():
            other.execute(LOCK, ("c",))
            sweep = asyncio.ensure_future(fleet.sweeps.settle())
            await until_waiting(database, sweep)
            assert database.counters() == {}
        assert await sweep == [("c", 0, 1)]
    assert database.counters() == {"c": 1}


# On the wire.


class Tap:
    """Forwards to a server and keeps what the first connection sends, apart from how it begins. Another is of
    who looks after statements that take long."""

    def __init__(self, database: Database) -> None:
        self._target = (database.server.host, database.server.port)
        self.sent: list[tuple[str, bytes]] = []
        """Messages: their letter and their body."""
        self._connections = 0
        self.times = 0
        """How often a client sent something and then waited: each Sync or simple Query is one."""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        kept = self._connections == 1
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(self._up(reader, up_writer, kept), self._down(up_reader, writer))
        finally:
            writer.close()
            up_writer.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bool) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            length = await reader.readexactly(4)
            writer.write(length + await reader.readexactly(int.from_bytes(length, "big") - 4))
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                if kept:
                    self.sent.append((chr(head[0]), body))
                    self.times += head[:1] in (b"S", b"Q")
                writer.write(head + body)
        writer.write_eof()

    @staticmethod
    async def _down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    def forget(self) -> None:
        """What was sent until now."""
        self.sent.clear()
        self.times = 0

    def statements(self) -> list[bytes]:
        """The SQL that was prepared or sent as it is."""
        return [body for letter, body in self.sent if letter in "PQ"]


@contextlib.asynccontextmanager
async def tapped(database: Database) -> AsyncIterator[tuple[PostgresCapacityStore, Tap]]:
    """A store with one connection, and what goes over it."""
    tap = Tap(database)
    server = await asyncio.start_server(tap.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    through = Database(database.server, database.name)
    through.dsn = database.dsn.replace(f":{database.server.port}/", f":{port}/")
    try:
        async with through.pool(1) as pool:
            yield PostgresCapacityStore(pool, "one"), tap
    finally:
        server.close()


async def test_a_lone_acquire_is_one_call_and_one_round_trip(database: Database) -> None:
    async with tapped(database) as (store, tap):
        assert await store.try_acquire("c", "first", 9)  # prepares the statement
        [sql] = tap.statements()
        assert b"SELECT queryflux_capacity_try_acquire($1, $2, $3, $4)\0" in sql
        tap.forget()
        for number in range(3):
            assert await store.try_acquire("c", f"q{number}", 9)
        assert [letter for letter, _ in tap.sent] == ["B", "E", "S"] * 3
        assert tap.times == 3
        assert all(part in tap.sent[0][1] for part in (b"c", b"one", b"q0", (9).to_bytes(8, "big"))), (
            "cluster, instance, query id, limit"
        )
        assert tap.statements() == [], "no BEGIN and no COMMIT"


async def test_a_group_of_acquires_is_one_round_trip(database: Database) -> None:
    async with tapped(database) as (store, tap):
        await store.try_acquire_many("c", [Wanted("first", 9)])
        tap.forget()
        wanted = [Wanted(f"q{number}", 50) for number in range(100)]
        assert (await store.try_acquire_many("c", wanted, ["first"])).count(True) == 50
        assert tap.times == 1
        assert tap.statements() == []


async def test_releases_are_one_delete_whatever_their_clusters(database: Database) -> None:
    async with tapped(database) as (store, tap):
        leases = [Lease(f"c{number % 7}", f"q{number}") for number in range(100)]
        for cluster, query_id in leases:
            assert await store.try_acquire(cluster, query_id, 99)
        await store.release_many([Lease("c", "none")])
        sql = tap.statements()[-1]
        assert b"DELETE FROM cluster_capacity_leases\nWHERE query_id = ANY ($1)" in sql
        tap.forget()
        await store.release_many(leases)
        assert tap.times == 1
        assert tap.statements() == []
    assert database.leases() == database.counters() == {}


async def test_capacity_calls_use_the_coordination_pool(database: Database) -> None:
    process = ProcessConfig(persistence=database.settings(coordination_pool_size=2))
    stores = build_stores(process, "one", SystemClock(), NoMetrics())
    assert stores.shared is not None
    leases = stores.shared.leases
    busy = "SELECT application_name FROM pg_stat_activity WHERE wait_event = 'advisory'"
    try:
        with database.server.admin(database.name) as other, other.transaction():
            other.execute(LOCK, ("c",))
            calls = [asyncio.ensure_future(leases.try_acquire("c", name, 9)) for name in "abc"]
            async with asyncio.timeout(10):
                while len(seen := database.rows(busy)) < 2:
                    await asyncio.wait(calls, timeout=0.01)
            assert seen == [("queryflux coordination one",)] * 2, "the third waits for one of them"
        assert await asyncio.gather(*calls) == [True] * 3
        sessions = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'queryflux%'"
        async with asyncio.timeout(10):
            # One that looked after slow statements may still be there, and soon goes.
            while database.rows(sessions) != seen:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        await stores.close()


# The order of locks.

SEVERAL = [
    "DELETE FROM cluster_capacity_leases",
    "DELETE FROM cluster_capacity_leases WHERE query_id = ANY ('{q-c,q-b,q-a}')",
    "SELECT queryflux_capacity_expire('1 second')",
    "DELETE FROM cluster_capacity_leases WHERE instance_id = 'x'",
    "INSERT INTO cluster_capacity_leases SELECT 'n-' || c, c, 'x' FROM unnest('{c,b,a}'::text[]) AS c",
    "UPDATE cluster_capacity_leases SET cluster_name = chr(ascii(cluster_name) + 3)",
]


@pytest.mark.parametrize("statement", SEVERAL)
@pytest.mark.parametrize("blocked", ["a", "b", "c"])
def test_counters_of_several_clusters_are_locked_in_order_of_their_names(
    database: Database, statement: str, blocked: str
) -> None:
    names = [name for name in "abcdef" if name <= "c" or statement.startswith("UPDATE")]
    for name in reversed(names):
        database.rows("INSERT INTO cluster_capacity_counters (cluster_name) VALUES (%s)", name)
    for name in "cab":
        database.rows(
            "INSERT INTO cluster_capacity_leases VALUES (%s, %s, 'x', now(), now() - interval '9 s')",
            f"q-{name}",
            name,
        )
    free = "SELECT cluster_name FROM cluster_capacity_counters ORDER BY 1 FOR UPDATE SKIP LOCKED"
    with database.server.admin(database.name) as holder, database.server.admin(database.name) as writer:
        writing = threading.Thread(target=lambda: writer.execute(statement.encode()))
        with holder.transaction():
            holder.execute(
                "SELECT 1 FROM cluster_capacity_counters WHERE cluster_name = %s FOR UPDATE", (blocked,)
            )
            writing.start()
            until_stuck(database, writing, "transactionid")
            unlocked = [name for (name,) in database.rows(free)]
            assert unlocked == [name for name in names if name > blocked]
        writing.join()
    assert database.counters() == database.leases()


def test_the_function_counts_in_a_statement_after_the_lock(database: Database) -> None:
    """So it sees a lease that was committed while it waited; one SQL statement for both would not."""
    acquire = "SELECT queryflux_capacity_try_acquire('c', 'x', 'second', 1)"
    answers: list[object] = []
    with database.server.admin(database.name) as one, database.server.admin(database.name) as two:

        def ask() -> None:
            answers.append(two.execute(acquire.encode()).fetchone())

        asking = threading.Thread(target=ask)
        with one.transaction():
            one.execute("SELECT queryflux_capacity_try_acquire('c', 'x', 'first', 1)")
            asking.start()
            until_stuck(database, asking, "advisory")
        asking.join()
    assert answers == [(False,)]
    language = "SELECT l.lanname, p.provolatile FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang"
    name = f"{language} WHERE proname = 'queryflux_capacity_try_acquire'"
    assert [tuple(map(str, row)) for row in database.rows(name)] == [("plpgsql", "v")]
