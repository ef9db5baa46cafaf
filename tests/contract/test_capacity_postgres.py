"""What only a database can get wrong: counters and triggers, locks, isolation, older writers, upgrades."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import asyncpg
import psycopg
import pytest

from queryflux.admission.port import Lease, Wanted
from queryflux.model.errors import StoreUnavailable
from queryflux.persistence.postgres.pools import Pool
from tests.kit.capacity_stores import PostgresFleet
from tests.kit.databases import DATABASES, Database, database, new_database

__all__ = ["database"]  # a fixture

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('queryflux:capacity:' || $1, 0))"
"""As older versions take it; the key is what they and we have in common."""


@pytest.fixture(params=DATABASES)
def older(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database that an older version has made: without the counter."""
    with new_database(request.param, last=20) as database:
        yield database


@pytest.fixture
async def fleet(database: Database) -> AsyncIterator[PostgresFleet]:
    async with database.pool(16) as pool:
        yield PostgresFleet(database, pool)


async def old_acquire(connection: Any, cluster: str, query_id: str, limit: int) -> bool:
    """A lease as an older version takes it: four round trips."""
    async with connection.transaction():
        await connection.execute(LOCK, cluster)
        out = await connection.fetchval(
            "SELECT count(*) FROM cluster_capacity_leases WHERE cluster_name = $1", cluster
        )
        if out >= limit:
            return False
        await connection.execute(
            "INSERT INTO cluster_capacity_leases (query_id, cluster_name, instance_id)"
            " VALUES ($1, $2, 'old')",
            query_id,
            cluster,
        )
    return True


async def old_release(connection: Any, query_id: str) -> None:
    await connection.execute("DELETE FROM cluster_capacity_leases WHERE query_id = $1", query_id)


# Counters.


def test_counters_follow_every_writer(database: Database) -> None:
    database.rows(
        "INSERT INTO cluster_capacity_leases SELECT 'a' || n, 'c', 'x' FROM generate_series(1, 5) n"
    )
    database.rows("INSERT INTO cluster_capacity_leases VALUES ('b1', 'd', 'x'), ('b2', 'e', 'x')")
    assert database.counters() == {"c": 5, "d": 1, "e": 1}
    database.rows("UPDATE cluster_capacity_leases SET heartbeat_at = now()")
    database.rows("UPDATE cluster_capacity_leases SET cluster_name = 'd' WHERE query_id IN ('a1', 'a2')")
    assert database.counters() == {"c": 3, "d": 3, "e": 1}
    database.rows("DELETE FROM cluster_capacity_leases WHERE query_id IN ('a1', 'a3', 'b2', 'zz')")
    assert database.counters() == {"c": 2, "d": 2} == database.leases()
    database.rows(
        "INSERT INTO cluster_capacity_leases VALUES ('a4', 'c', 'x') ON CONFLICT (query_id) DO NOTHING"
    )
    assert database.counters() == {"c": 2, "d": 2}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO cluster_capacity_leases VALUES ('n', 'c', 'x')",
        "DELETE FROM cluster_capacity_leases WHERE query_id = 'a1'",
        "UPDATE cluster_capacity_leases SET cluster_name = 'c' WHERE query_id = 'b'",
        "SELECT queryflux_capacity_try_acquire('c', 'x', 'n', 9)",
        "SELECT queryflux_capacity_try_acquire_many('c', 'x', '{n,m}', '{9,9}', '{a2}')",
        "SELECT queryflux_capacity_publish_running('c', 7)",
        "SELECT queryflux_capacity_recount('c')",
        "SELECT queryflux_capacity_settle('c')",
    ],
)
def test_a_missing_counter_is_made_by_counting(database: Database, statement: str) -> None:
    database.rows(
        "INSERT INTO cluster_capacity_leases VALUES ('a1', 'c', 'x'), ('a2', 'c', 'x'), ('b', 'd', 'x')"
    )
    database.rows("DELETE FROM cluster_capacity_counters WHERE cluster_name = 'c'")
    database.rows(statement)
    assert database.counters() == database.leases()


def test_two_deletes_meet_a_missing_counter(database: Database) -> None:
    database.rows(
        "INSERT INTO cluster_capacity_leases SELECT 'a' || n, 'c', 'x' FROM generate_series(1, 9) n"
    )
    database.rows("DELETE FROM cluster_capacity_counters")
    with database.server.admin(database.name) as one, database.server.admin(database.name) as two:
        with one.transaction():
            one.execute("DELETE FROM cluster_capacity_leases WHERE query_id IN ('a1', 'a2')")
            second = threading.Thread(
                target=lambda: two.execute("DELETE FROM cluster_capacity_leases WHERE query_id = 'a3'")
            )
            second.start()
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted"
            while not database.rows(waits):
                assert second.is_alive()
        second.join()
    assert database.counters() == {"c": 6} == database.leases()


async def test_a_full_cluster_without_a_counter_is_still_full(fleet: PostgresFleet) -> None:
    store = fleet.store("one")
    assert await store.try_acquire("c", "a", 1)
    fleet.database.rows("DELETE FROM cluster_capacity_counters")
    assert not await store.try_acquire("c", "b", 1)
    assert await store.try_acquire_many("c", [Wanted("b", 1)]) == [False]


# Isolation, durability.


ISOLATIONS = ("repeatable read", "serializable")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_another_isolation_is_refused(database: Database, isolation: str) -> None:
    for call in (
        "try_acquire('c', 'x', 'a', 9)",
        "try_acquire_many('c', 'x', '{a}', '{9}', '{}')",
        "recount('c')",
        "settle('c')",
    ):
        with database.server.admin(database.name) as admin:
            admin.execute(f"SET default_transaction_isolation = '{isolation}'".encode())
            with pytest.raises(psycopg.Error, match="READ COMMITTED only"):
                admin.execute(f"SELECT queryflux_capacity_{call}".encode())
    assert database.leases() == {}


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_the_default_of_the_database_does_not_matter(database: Database, isolation: str) -> None:
    database.rows(
        f"ALTER ROLE trusted IN DATABASE {database.name} SET default_transaction_isolation = '{isolation}'"
    )
    async with database.pool(2) as pool:
        assert await PostgresFleet(database, pool).store("one").try_acquire("c", "a", 1)


async def test_what_the_server_complains_about_is_no_decision(fleet: PostgresFleet) -> None:
    fleet.database.rows("ALTER TABLE cluster_capacity_leases ADD CHECK (query_id <> 'odd')")
    store = fleet.store("one")
    with pytest.raises(StoreUnavailable, match="could not answer") as refused:
        await store.try_acquire("c", "odd", 1)
    assert "violates check constraint" in refused.value.hint
    assert await store.try_acquire("c", "even", 1)


@pytest.mark.parametrize(
    "call",
    [
        "SELECT queryflux_capacity_try_acquire('c', 'x', 'a', 9)",
        "SELECT queryflux_capacity_try_acquire_many('c', 'x', '{a}', '{9}', '{}')",
    ],
)
@pytest.mark.parametrize(
    ("default", "then"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")],
)
def test_a_grant_waits_for_the_disk_whatever_the_default_is(
    database: Database, call: str, default: str, then: str
) -> None:
    with database.server.admin(database.name) as admin, admin.transaction():
        admin.execute(f"SET LOCAL synchronous_commit = {default}".encode())
        admin.execute(call.encode())
        assert admin.execute("SHOW synchronous_commit").fetchone() == (then,)


# Older writers.


def test_the_lock_has_the_key_that_older_versions_take(database: Database) -> None:
    with database.server.admin(database.name) as admin, admin.transaction():
        admin.execute("SELECT queryflux_capacity_lock('lake')")
        key = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory'"
        expected = "SELECT hashtextextended('queryflux:capacity:lake', 0)"
        assert admin.execute(key).fetchone() == admin.execute(expected).fetchone()


class Watch:
    """Counts what runs at a time."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.grants = {"old": 0, "new": 0}

    def begin(self, who: str) -> None:
        self.running += 1
        self.grants[who] += 1
        self.most = max(self.most, self.running)


async def old_process(pool: Pool, watch: Watch, limit: int, number: int, done: asyncio.Event) -> None:
    turn = 0
    while not done.is_set():
        turn += 1
        query_id = f"old-{number}-{turn}"
        async with pool.connection() as connection:
            if not await old_acquire(connection, "c", query_id, limit):
                continue
        watch.begin("old")
        await asyncio.sleep(0)
        watch.running -= 1
        async with pool.connection() as connection:
            await old_release(connection, query_id)


async def new_process(
    fleet: PostgresFleet, watch: Watch, limit: int, number: int, done: asyncio.Event
) -> None:
    store, turn = fleet.store(f"new-{number}"), 0
    while not done.is_set():
        turn += 1
        ids = [f"new-{number}-{turn}-{part}" for part in range(1 + turn % 3)]
        granted = await store.try_acquire_many("c", [Wanted(query_id, limit) for query_id in ids])
        held = [Lease("c", query_id) for query_id, fits in zip(ids, granted, strict=True) if fits]
        for _ in held:
            watch.begin("new")
        await asyncio.sleep(0)
        watch.running -= len(held)
        await store.release_many(held)


@pytest.mark.parametrize("limit", [1, 7])
async def test_old_and_new_processes_together_never_pass_the_cap(fleet: PostgresFleet, limit: int) -> None:
    watch, done = Watch(), asyncio.Event()
    workers = [
        *(old_process(fleet.pool, watch, limit, number, done) for number in range(8)),
        *(new_process(fleet, watch, limit, number, done) for number in range(8)),
    ]
    tasks = [asyncio.ensure_future(worker) for worker in workers]
    while min(watch.grants.values()) < 40:
        await asyncio.wait(tasks, timeout=0.05)
        assert not any(task.done() for task in tasks)
    done.set()
    await asyncio.gather(*tasks)
    assert watch.most <= limit
    assert fleet.database.leases() == fleet.database.counters() == {}


async def test_the_counter_arrives_while_older_processes_work(older: Database) -> None:
    older.rows(
        "INSERT INTO cluster_capacity_leases SELECT 'held' || n, 'd', 'x' FROM generate_series(1, 3) n"
    )
    watch, done = Watch(), asyncio.Event()
    async with older.pool(16) as pool:
        fleet = PostgresFleet(older, pool)
        tasks = [asyncio.ensure_future(old_process(pool, watch, 3, number, done)) for number in range(8)]
        while watch.grants["old"] < 30:
            await asyncio.wait(tasks, timeout=0.05)
        await asyncio.to_thread(older.migrate)
        assert older.counters()["d"] == 3
        tasks += [asyncio.ensure_future(new_process(fleet, watch, 3, number, done)) for number in range(4)]
        before = watch.grants["old"]
        while watch.grants["new"] < 30 or watch.grants["old"] < before + 30:
            await asyncio.wait(tasks, timeout=0.05)
            assert not any(task.done() for task in tasks)
        done.set()
        await asyncio.gather(*tasks)
    assert watch.most <= 3
    assert older.leases() == older.counters() == {"d": 3}


@pytest.mark.parametrize("kind", DATABASES)
async def test_limits_of_waiters_arrive_while_processes_take_turns(kind: str) -> None:
    """Nobody is told that the store failed, and the cap holds."""
    with new_database(kind, last=24) as former:
        watch, done = Watch(), asyncio.Event()
        async with former.pool(8) as pool:
            fleet = PostgresFleet(former, pool)
            tasks = [asyncio.ensure_future(new_process(fleet, watch, 2, number, done)) for number in range(6)]
            while watch.grants["new"] < 100:
                await asyncio.wait(tasks, timeout=0.05)
            assert former.rows("SELECT 1 FROM cluster_capacity_waiters")
            await asyncio.to_thread(former.migrate)
            before = watch.grants["new"]
            while watch.grants["new"] < before + 100:
                await asyncio.wait(tasks, timeout=0.05)
                assert not any(task.done() for task in tasks)
            done.set()
            await asyncio.gather(*tasks)
        assert watch.most <= 2
        assert former.leases() == former.counters() == {}


# Counters of clusters that are gone.


def counted(database: Database) -> set[str]:
    return {name for (name,) in database.rows("SELECT cluster_name FROM cluster_capacity_counters")}


async def test_counters_of_clusters_that_are_not_configured_go_when_nothing_is_leased_there(
    fleet: PostgresFleet,
) -> None:
    database, store = fleet.database, fleet.store("one")
    database.rows("INSERT INTO cluster_configs (name, engine_key) VALUES ('kept', 'duckDb')")
    varied = """[{"name": "small"}, {"name": "large"}]"""
    database.rows(
        "INSERT INTO cluster_configs (name, engine_key, variants) VALUES ('v', 'trino', %s)", varied
    )
    names = ["kept", "gone", "busy", "v::small", "v::former", "v"]
    for name in names:
        assert await store.try_acquire(name, name, 1)
    await store.publish_running("gone", 3)
    await fleet.sweeps.expire(300)
    assert counted(database) == set(names), "they are in use"
    await store.release_many([Lease(name, name) for name in names if name != "busy"])
    await fleet.sweeps.expire(300)
    assert counted(database) == {"kept", "busy", "v::small"}
    assert await store.try_acquire("gone", "again", 1)
    assert not await store.try_acquire("gone", "more", 1), "one that comes back is counted anew"
    await fleet.wait(301)
    assert await fleet.sweeps.expire(300) == 2
    assert counted(database) == {"kept", "v::small"}
    assert database.leases() == {}


async def test_a_counter_that_has_drifted_is_left_to_the_recount(fleet: PostgresFleet) -> None:
    await fleet.store("one").try_acquire("c", "a", 1)
    fleet.database.rows("TRUNCATE cluster_capacity_leases")
    await fleet.sweeps.settle()
    await fleet.sweeps.expire(300)
    assert counted(fleet.database) == {"c"}
    await fleet.sweeps.settle()
    await fleet.sweeps.expire(300)
    assert counted(fleet.database) == set()


async def test_counters_that_go_while_leases_come_never_let_too_many_in(fleet: PostgresFleet) -> None:
    watch, done = Watch(), asyncio.Event()

    async def sweeper() -> None:
        while not done.is_set():
            await fleet.sweeps.expire(300)

    tasks = [
        asyncio.ensure_future(sweeper()),
        *(asyncio.ensure_future(new_process(fleet, watch, 2, number, done)) for number in range(3)),
        *(asyncio.ensure_future(old_process(fleet.pool, watch, 2, number, done)) for number in range(3)),
    ]
    while min(watch.grants.values()) < 100:
        await asyncio.wait(tasks, timeout=0.05)
        assert not any(task.done() for task in tasks)
    done.set()
    await asyncio.gather(*tasks)
    assert watch.most <= 2
    assert fleet.database.leases() == fleet.database.counters() == {}


# Deadlocks.


async def test_statements_that_delete_leases_of_several_clusters_do_not_deadlock(
    fleet: PostgresFleet,
) -> None:
    chance, clusters = Random(3), [f"c{number}" for number in range(6)]

    async def worker(number: int) -> None:
        store = fleet.store(f"i{number}")
        for turn in range(15):
            leases = [Lease(cluster, f"{number}-{turn}-{cluster}") for cluster in clusters]
            chance.shuffle(leases)
            for cluster, query_id in leases:
                assert await store.try_acquire(cluster, query_id, 1000)
            chance.shuffle(leases)
            if turn % 5 == 4:
                await store.release_all()
            else:
                await store.release_many(leases)

    async def sweeper(done: asyncio.Event) -> None:
        while not done.is_set():
            await fleet.sweeps.expire(0)
            await fleet.sweeps.settle()
            await asyncio.sleep(0.01)

    done = asyncio.Event()
    sweeping = asyncio.ensure_future(sweeper(done))
    await asyncio.gather(*(worker(number) for number in range(8)))
    done.set()
    await sweeping
    assert fleet.database.counters() == fleet.database.leases()


async def test_renewal_waits_for_a_locked_row_and_holds_no_other_meanwhile(fleet: PostgresFleet) -> None:
    store = fleet.store("one")
    await store.try_acquire_many("c", [Wanted("a", 9), Wanted("b", 9), Wanted("z", 9)])
    connection = await asyncpg.connect(fleet.database.dsn)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("DELETE FROM cluster_capacity_leases WHERE query_id = 'b'")
    renewing = asyncio.ensure_future(store.renew([Lease("c", name) for name in "abz"]))
    while not fleet.database.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
        await asyncio.wait([renewing], timeout=0.01)
    await connection.execute("DELETE FROM cluster_capacity_leases WHERE query_id IN ('a')")
    await transaction.commit()
    await connection.close()
    assert await renewing == {"a", "z"}, "a was renewed before it was deleted"
    assert fleet.database.leases() == {"c": 1} == fleet.database.counters()


# Drift.


async def test_a_truncated_table_is_recounted_by_the_second_sweep_that_sees_the_same(
    fleet: PostgresFleet,
) -> None:
    store = fleet.store("one")
    for number in range(5):
        await store.try_acquire("c", f"q{number}", 5)
    fleet.database.rows("TRUNCATE cluster_capacity_leases")
    assert fleet.database.counters() == {"c": 5}
    assert not await store.try_acquire("c", "new", 5), "on the safe side until it is known for sure"
    assert await fleet.sweeps.settle() == [("c", 5, 5)]
    assert await store.try_acquire_many("c", [Wanted("q0", 2**63 - 1)]) == [True]  # one is taken again
    assert await fleet.sweeps.settle() == [("c", 6, 1)]
    assert fleet.database.counters() == {"c": 1}
    assert await fleet.sweeps.settle() == []


async def test_a_drift_that_changes_between_sweeps_is_looked_at_again(fleet: PostgresFleet) -> None:
    store = fleet.store("one")
    for number in range(5):
        await store.try_acquire("c", f"q{number}", 5)
    database = fleet.database
    database.rows("ALTER TABLE cluster_capacity_leases DISABLE TRIGGER cluster_capacity_leases_deleted")
    database.rows("DELETE FROM cluster_capacity_leases WHERE query_id = 'q0'")
    assert await fleet.sweeps.settle() == [("c", 5, 5)]
    database.rows("DELETE FROM cluster_capacity_leases WHERE query_id = 'q1'")
    database.rows("ALTER TABLE cluster_capacity_leases ENABLE TRIGGER cluster_capacity_leases_deleted")
    assert await fleet.sweeps.settle() == [("c", 5, 5)]
    assert await fleet.sweeps.settle() == [("c", 5, 3)]
    assert database.counters() == {"c": 3} == database.leases()


async def test_a_counter_that_is_too_low_is_raised_at_once(fleet: PostgresFleet) -> None:
    store = fleet.store("one")
    for number in range(3):
        await store.try_acquire("c", f"q{number}", 5)
    fleet.database.rows("UPDATE cluster_capacity_counters SET leased = 1")
    assert await fleet.sweeps.settle() == [("c", 1, 3)]
    assert fleet.database.counters() == {"c": 3}


async def test_a_drift_that_went_away_is_forgotten(fleet: PostgresFleet) -> None:
    database = fleet.database
    await fleet.store("one").try_acquire("c", "a", 5)
    database.rows("UPDATE cluster_capacity_counters SET leased = 3")
    await fleet.sweeps.settle()
    database.rows("UPDATE cluster_capacity_counters SET leased = 1")
    assert await fleet.sweeps.settle() == [("c", 1, 1)]
    database.rows("UPDATE cluster_capacity_counters SET leased = 3")
    assert await fleet.sweeps.settle() == [("c", 3, 3)], "seen once, not twice in a row"


def test_a_recount_beside_an_uncommitted_delete_is_right(database: Database) -> None:
    database.rows(
        "INSERT INTO cluster_capacity_leases SELECT 'a' || n, 'c', 'x' FROM generate_series(1, 5) n"
    )
    with database.server.admin(database.name) as one, database.server.admin(database.name) as two:
        with one.transaction():
            one.execute("DELETE FROM cluster_capacity_leases WHERE query_id = 'a1'")
            recount = threading.Thread(target=lambda: two.execute("SELECT queryflux_capacity_recount('c')"))
            recount.start()
            while not database.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
                assert recount.is_alive()
        recount.join()
    assert database.counters() == {"c": 4} == database.leases()
