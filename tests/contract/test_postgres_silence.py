"""Connections that die without a word, on real servers: capacity goes on as soon as the database answers."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queryflux.config.persistence import PostgresPersistence
from queryflux.model.errors import StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.persistence.postgres import claims
from queryflux.persistence.postgres.capacity import PostgresCapacityStore
from queryflux.persistence.postgres.pools import Pools
from queryflux.persistence.postgres.silence import PATIENCE_SECS, silent
from queryflux.runtime.clock import SystemClock
from tests.kit.claims import shared_query
from tests.kit.databases import Database, database
from tests.kit.link import Link
from tests.kit.metrics import NoMetrics

__all__ = ["database"]


@asynccontextmanager
async def linked(database: Database, **keys: Any) -> AsyncIterator[tuple[Link, Pools]]:
    """Pools that reach the database over a link."""
    async with Link(database.server.host, database.server.port) as link:
        url = database.dsn.replace(f":{database.server.port}/", f":{link.port}/")
        settings = PostgresPersistence(url=Secret(url), **keys)
        pools = Pools.open(settings, clock=SystemClock(), metrics=NoMetrics(), instance="test")
        try:
            yield link, pools
        finally:
            await pools.close()


async def all_in_use(pools: Pools) -> None:
    """Every connection of the coordination pool is open, and then idle."""

    async def use() -> None:
        async with pools.coordination.connection() as connection:
            await connection.fetchval("SELECT pg_sleep(0.1)")

    await asyncio.gather(*(use() for _ in range(8)))


async def test_capacity_goes_on_within_a_second_when_all_its_connections_have_fallen_silent(
    database: Database,
) -> None:
    async with linked(database) as (link, pools):
        store = PostgresCapacityStore(pools.coordination, "one")
        await all_in_use(pools)
        assert link.open == 8
        link.strand()
        since = time.monotonic()
        with pytest.raises(StoreUnavailable, match="broke"):
            await store.try_acquire("c", "a", 1)
        assert time.monotonic() - since < PATIENCE_SECS + 2.5, "only the limit of the statement ended it"
        since = time.monotonic()
        assert await store.try_acquire("c", "a", 1)
        assert time.monotonic() - since < 4 * PATIENCE_SECS, "the others were not tried one after another"


async def test_answers_that_were_lost_are_found_out_when_the_database_can_be_reached_again(
    database: Database,
) -> None:
    """Nothing gets through in between, not even new connections."""
    async with linked(database) as (link, pools):
        store = PostgresCapacityStore(pools.coordination, "one")
        await all_in_use(pools)
        link.strand()
        link.stall()
        asking = asyncio.ensure_future(store.try_acquire("c", "a", 1))
        await asyncio.wait({asking}, timeout=2)
        assert not asking.done(), "it may still be answered"
        link.resume()
        since = time.monotonic()
        with pytest.raises(StoreUnavailable, match="broke"):
            await asking
        assert time.monotonic() - since < 3
        assert await store.try_acquire("c", "a", 1)


async def test_a_statement_that_waits_for_a_lock_is_waited_for(database: Database) -> None:
    async with linked(database) as (_, pools):
        store = PostgresCapacityStore(pools.coordination, "one")
        assert await store.try_acquire("c", "a", 2)
        with database.server.admin(database.name) as other:
            with other.transaction():
                other.execute("SELECT queryflux_capacity_lock('c')")
                asking = asyncio.ensure_future(store.try_acquire("c", "b", 2))
                await asyncio.wait({asking}, timeout=PATIENCE_SECS + 1)
                assert not asking.done()
            assert await asking


async def test_what_a_session_does_is_not_asked_through_a_pooler(database: Database) -> None:
    """Its numbers of sessions are its own: one that is unknown to the database says nothing."""
    async with linked(database) as (_, pools), pools.coordination.connection() as connection:
        nobody = 2**31 - 1
        assert await silent(connection, [nobody], 0) == [nobody]
        pooler = SimpleNamespace(get_server_pid=lambda: nobody - 1, fetch=connection.fetch)
        assert await silent(cast(Any, pooler), [nobody], 0) == []


async def test_the_system_breaks_connections_whose_other_end_confirms_nothing(database: Database) -> None:
    async with linked(database) as (_, pools):
        for pool in (pools.query, pools.coordination, pools.admin):
            async with pool.connection() as connection:
                open_socket = cast(Any, connection)._transport.get_extra_info("socket")
                assert open_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
                assert open_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert open_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15


async def test_what_is_asked_of_claims_has_a_short_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked(database) as (link, pools):
        store = claims.PostgresClaimStore(pools.query, "one", None)
        assert await asyncio.gather(*(store.wait(shared_query(f"q_{number}")) for number in range(6)))
        link.stall()
        monkeypatch.setattr(claims, "ANSWER_SECS", 0.5)
        since = time.monotonic()
        # More than there are connections, and the second time over new ones.
        for _ in range(2):
            asked = await asyncio.gather(*(store.find("q_1") for _ in range(12)), return_exceptions=True)
            assert {isinstance(answer, StoreUnavailable) for answer in asked} == {True}
        assert time.monotonic() - since < 5
        link.resume()
        monkeypatch.undo()
        since = time.monotonic()
        assert await store.find("q_1") is not None
        assert time.monotonic() - since < 1, "no connection is left that waits for an answer"
