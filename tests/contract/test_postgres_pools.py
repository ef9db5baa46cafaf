"""Pools on real servers: what is stuck stays where it is, what broke is told and mended."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from queryflux.config.persistence import PostgresPersistence
from queryflux.model.errors import StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.persistence.postgres.pools import NoneFree, Pool, Pools
from queryflux.runtime.clock import Clock, SystemClock
from tests.kit.clock import ManualClock
from tests.kit.databases import DATABASES, Database, database, new_database, own_server
from tests.kit.link import Link
from tests.kit.metrics import NoMetrics
from tests.kit.postgres import PASSWORD, PostgresServer

__all__ = ["database"]


@asynccontextmanager
async def opened(settings: PostgresPersistence, clock: Clock | None = None) -> AsyncIterator[Pools]:
    pools = Pools.open(settings, clock=clock or SystemClock(), metrics=NoMetrics(), instance="qf-test")
    try:
        yield pools
    finally:
        await pools.close()


async def ask(pool: Pool, sql: str = "SELECT 1") -> object:
    async with pool.connection() as connection:
        return await connection.fetchval(sql)


def sessions(database: Database, what: str = "true") -> int:
    """Sessions of ours on the database."""
    ours = "datname = current_database() AND application_name LIKE 'queryflux%'"
    count: int = database.rows(f"SELECT count(*) FROM pg_stat_activity WHERE {ours} AND {what}")[0][0]
    return count


async def until(database: Database, count: int, what: str = "true") -> None:
    """Return when so many sessions are like that; TimeoutError after ten seconds."""
    async with asyncio.timeout(10):
        while await asyncio.to_thread(sessions, database, what) != count:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)


async def test_a_pool_whose_connections_are_all_stuck_keeps_nobody_else_waiting(database: Database) -> None:
    clock = ManualClock()  # the wait for a connection ends when we say so
    async with opened(database.settings(acquire_timeout_secs=30), clock) as pools:
        stuck = [asyncio.ensure_future(ask(pools.query, "SELECT pg_sleep(60)")) for _ in range(6)]
        await until(database, 6, "query LIKE '%pg_sleep%' AND state = 'active'")
        late = asyncio.ensure_future(ask(pools.query))
        async with asyncio.timeout(20):
            for _ in range(50):
                assert await ask(pools.coordination) == 1
                assert await ask(pools.admin) == 1
            async with pools.listen() as listener:
                assert await listener.fetchval("SELECT 1") == 1
        assert not late.done()
        await clock.advance(30)
        with pytest.raises(StoreUnavailable, match=r"no connection .* free within 30 s"):
            await late
        assert not any(task.done() for task in stuck)
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        await until(database, 0, "query LIKE '%pg_sleep%' AND state = 'active'")
        assert await ask(pools.query) == 1


async def test_a_short_limit_leaves_time_for_the_statement(database: Database) -> None:
    """Or a pool whose connections are all in use would look like a database that does not answer."""
    clock = ManualClock()
    async with opened(database.settings(), clock) as pools:
        enough = asyncio.Event()

        async def hold() -> None:
            async with pools.query.connection():
                await enough.wait()

        async def limited() -> None:
            async with pools.query.connection(within=15) as connection:
                await connection.fetchval("SELECT pg_sleep(0.4)")

        held = [asyncio.ensure_future(hold()) for _ in range(6)]
        late = asyncio.ensure_future(limited())
        await clock.advance(9.9)
        assert not late.done()
        await clock.advance(0.2)
        with pytest.raises(NoneFree, match=r"free within 10 s"):
            await late
        enough.set()
        await asyncio.gather(*held)
        await limited()


async def test_connections_are_opened_on_demand_and_all_closed_at_the_end(database: Database) -> None:
    async with database.pools() as pools:
        assert sessions(database) == 0
        await ask(pools.query)
        await ask(pools.query)
        assert sessions(database) == 1
        assert sessions(database, "application_name = 'queryflux query test'") == 1
        await asyncio.gather(*(ask(pools.coordination, "SELECT pg_sleep(0.05)") for _ in range(40)))
        assert sessions(database) == 1 + 8
    await until(database, 0)


async def test_a_statement_ends_at_its_time_limit_and_the_connection_stays(database: Database) -> None:
    async with database.pools(statement_timeout_secs=1) as pools:
        with pytest.raises(StoreUnavailable, match="took too long"):
            await ask(pools.admin, "SELECT pg_sleep(30)")
        assert sessions(database) == 1
        assert await ask(pools.admin, "SHOW statement_timeout") == "1s"


@pytest.mark.parametrize(
    ("secs", "admin", "coordination"), [(60, "1min", "5s"), (0, "0", "5s"), (3, "3s", "3s")]
)
async def test_capacity_waits_less_than_others(
    database: Database, secs: int, admin: str, coordination: str
) -> None:
    async with database.pools(statement_timeout_secs=secs) as pools:
        assert await ask(pools.admin, "SHOW statement_timeout") == admin
        assert await ask(pools.coordination, "SHOW statement_timeout") == coordination


async def test_a_server_that_falls_silent_is_left_in_time(database: Database) -> None:
    async with Link(database.server.host, database.server.port) as link:
        url = database.dsn.replace(f":{database.server.port}/", f":{link.port}/")
        async with opened(PostgresPersistence(url=Secret(url), statement_timeout_secs=1)) as pools:
            assert await ask(pools.coordination) == 1
            link.stall()
            with pytest.raises(StoreUnavailable, match="did not answer in time"):
                await ask(pools.coordination)
            link.resume()
            async with asyncio.timeout(1):
                assert await ask(pools.coordination) == 1


async def test_cut_connections_are_replaced(database: Database) -> None:
    async with Link(database.server.host, database.server.port) as link:
        url = database.dsn.replace(f":{database.server.port}/", f":{link.port}/")
        async with opened(PostgresPersistence(url=Secret(url))) as pools:
            sleeping = asyncio.ensure_future(ask(pools.query, "SELECT pg_sleep(30)"))
            await until(database, 1, "query LIKE '%pg_sleep%' AND state = 'active'")
            link.cut()
            with pytest.raises(StoreUnavailable, match="broke"):
                await sleeping
            assert await ask(pools.query) == 1


async def test_a_server_that_takes_no_writes_is_told_and_its_connections_left(database: Database) -> None:
    """As a primary that has become a standby: whoever connects again finds the new one."""
    insert = "INSERT INTO proxy_settings (key, value) VALUES ('k', '1') RETURNING key"
    async with database.pools() as pools:
        async with pools.query.connection() as one, pools.query.connection() as other:
            for connection in (one, other):
                await connection.execute("SET default_transaction_read_only = on")
        with pytest.raises(StoreUnavailable, match="is read-only"):
            await ask(pools.query, insert)
        assert await ask(pools.query, insert) == "k"


async def test_counting_under_a_lock_is_safe_whatever_the_database_prefers(database: Database) -> None:
    database.rows(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'repeatable read'")
    async with database.pools() as pools:
        assert await ask(pools.coordination, "SHOW transaction_isolation") == "read committed"


async def test_keys_lead_to_the_database_as_a_url_does(database: Database) -> None:
    server = database.server
    settings = PostgresPersistence(
        host=server.host, port=server.port, user="scram", password=Secret(PASSWORD), database=database.name
    )
    async with opened(settings) as pools:
        assert await ask(pools.admin, "SELECT current_user || '@' || current_database()") == (
            f"scram@{database.name}"
        )


async def test_a_wrong_password_is_told_without_showing_it(database: Database) -> None:
    url = database.dsn.replace("trusted@", "scram:a-wrong-one@")
    async with opened(PostgresPersistence(url=Secret(url))) as pools:
        with pytest.raises(StoreUnavailable, match="refuses the connection") as caught:
            await ask(pools.admin)
        assert "password authentication failed" in caught.value.hint
        assert "a-wrong-one" not in f"{caught.value.message} {caught.value.hint} {pools!r} {vars(pools)!r}"


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql://h:x/d", "postgresql://h/d?sslmode=never"])
async def test_a_url_that_is_none_is_told(url: str) -> None:
    async with opened(PostgresPersistence(url=Secret(url))) as pools:
        with pytest.raises(StoreUnavailable, match=r"refuses the connection|cannot be reached") as caught:
            await ask(pools.admin)
        assert caught.value.hint


async def test_tls_as_the_url_says(database: Database) -> None:
    database.server.needs_tls()
    base = database.dsn.partition("?")[0].replace("127.0.0.1", "localhost")
    tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    trusting = f"{base}?sslmode=verify-full&sslrootcert={database.server.ca_file}"
    for url, expected in (
        (f"{base}?sslmode=require", True),
        (f"{base}?sslmode=disable", False),
        (trusting, True),
    ):
        async with opened(PostgresPersistence(url=Secret(url))) as pools:
            assert await ask(pools.admin, tls) is expected
    async with opened(PostgresPersistence(url=Secret(f"{base}?sslmode=verify-full"))) as pools:
        with pytest.raises(StoreUnavailable):
            await ask(pools.admin)


async def test_a_listener_hears_of_each_change_of_configuration(database: Database) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    async with database.pools() as pools, pools.listen() as listener:
        await listener.add_listener("config_revision_changed", lambda *notice: heard.put_nowait(notice[-1]))
        await ask(pools.admin, "UPDATE config_revision SET revision = revision + 1 RETURNING 1")
        async with asyncio.timeout(5):
            assert await heard.get() == "1"


async def test_closing_ends_what_is_under_way(database: Database) -> None:
    async with database.pools() as pools:
        sleeping = asyncio.ensure_future(ask(pools.query, "SELECT pg_sleep(30)"))
        await until(database, 1, "query LIKE '%pg_sleep%' AND state = 'active'")
        async with pools.listen() as listener:
            await pools.close()
            assert listener.is_closed()
        with pytest.raises(StoreUnavailable):
            await sleeping
        with pytest.raises(StoreUnavailable):
            async with pools.listen():
                pass


@pytest.fixture(params=DATABASES)
def own(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    server = own_server(request.param, max_connections="6", superuser_reserved_connections="0")
    yield server
    server.remove()


async def test_a_server_that_restarts_is_used_again_within_a_second(own: PostgresServer) -> None:
    database = Database(own, "qf")
    async with database.pools() as pools:
        assert await ask(pools.coordination) == 1
        await asyncio.to_thread(own.stop)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=r"cannot be reached|broke|shutting down"):
                await ask(pools.coordination)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            async with pools.listen():
                pass
        own.start()
        async with asyncio.timeout(1):
            assert await ask(pools.coordination) == 1


async def test_a_server_without_connections_to_spare_is_told(own: PostgresServer) -> None:
    database = Database(own, "qf")
    async with database.pools() as pools:

        async def hold() -> None:
            async with pools.coordination.connection() as connection:
                await connection.execute("SELECT pg_sleep(30)")

        held = [asyncio.ensure_future(hold()) for _ in range(8)]
        with pytest.raises(StoreUnavailable, match="takes no more connections"):
            await asyncio.gather(*held)
        for task in held:
            task.cancel()
        await asyncio.wait(held)


def test_databases_of_tests_are_apart() -> None:
    with new_database("postgres18") as one, new_database("postgres18") as other:
        one.rows("INSERT INTO proxy_settings (key, value) VALUES ('k', '1')")
        assert other.rows("SELECT count(*) FROM proxy_settings") == [(0,)]
