"""KILL and SHOW PROCESSLIST over two doors behind the same port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from queryflux.frontends.mysql.numbers import is_from
from queryflux.runtime.siblings import Siblings
from tests.kit.scripted import Step
from tests.kit.siblings import siblings
from tests.rooms.frontends_mysql.fake import House, house
from tests.rooms.frontends_mysql.raw import RawClient, error_number
from tests.rooms.frontends_mysql.test_statements import until, waiting
from tests.rooms.wire_mysql.reading import text_cells


@asynccontextmanager
async def two(gate: asyncio.Event) -> AsyncIterator[tuple[House, House, list[Siblings]]]:
    """The door of the connections, and another one; ``slow`` waits for ``gate``."""
    async with (
        siblings("owner", "other") as made,
        house(script=waiting(gate), siblings=made[0]) as owner,
        house(script=lambda request: Step(), siblings=made[1]) as other,
    ):
        yield owner, other, made


async def test_kill_reaches_a_connection_of_a_sibling() -> None:
    gate = asyncio.Event()
    async with (
        two(gate) as (owner, other, _),
        RawClient(owner.port) as victim,
        RawClient(owner.port) as idle,
        RawClient(other.port) as killer,
        RawClient(other.port) as eve,
    ):
        for client in (victim, idle, killer):
            await client.log_in("bob")
        await eve.log_in("eve")
        assert is_from("owner", victim.number)
        assert is_from("other", killer.number)
        task = asyncio.create_task(victim.query("slow"))
        await until(lambda: owner.engine.running == 1)
        assert error_number((await eve.query(f"KILL QUERY {victim.number}"))[0]) == 1095
        assert error_number((await killer.query(f"KILL QUERY {victim.number + 99}"))[0]) == 1094
        assert (await killer.query(f"KILL QUERY {victim.number}"))[0][0] == 0
        assert error_number((await task)[0]) == 1317
        assert (await killer.command(b"\x0c" + idle.number.to_bytes(4, "little")))[0] == 0
        assert await idle.at_end()
        assert (await victim.query("SELECT 1"))[0] == b"\x01"
        gate.set()


async def test_a_user_sees_its_connections_everywhere_and_nobody_elses() -> None:
    async with (
        two(asyncio.Event()) as (owner, other, _),
        RawClient(owner.port) as first,
        RawClient(owner.port) as eve,
        RawClient(other.port) as second,
    ):
        await first.log_in("bob")
        await eve.log_in("eve")
        await second.log_in("bob")
        packets = await second.query("SHOW PROCESSLIST")
        numbers = {int(text_cells(row)[0] or b"") for row in packets[9:-1]}
        assert numbers == {first.number, second.number}


async def test_a_connection_of_a_process_that_has_gone_is_unknown_at_once() -> None:
    async with (
        two(asyncio.Event()) as (owner, other, made),
        RawClient(owner.port) as victim,
        RawClient(other.port) as killer,
    ):
        await victim.log_in("bob")
        await killer.log_in("bob")
        await made[0].close()
        async with asyncio.timeout(2):
            assert error_number((await killer.query(f"KILL {victim.number}"))[0]) == 1094
            assert len(await killer.query("SHOW PROCESSLIST")) == 11
