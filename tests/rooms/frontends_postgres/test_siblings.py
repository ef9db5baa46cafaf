"""A cancel request that reaches another door behind the same port."""

import asyncio
import struct

import pytest

from queryflux.frontends.postgres.keys import is_from
from queryflux.wire.postgres.constants import CANCEL_REQUEST
from tests.kit.scripted import ScriptedEngine, Step
from tests.kit.siblings import siblings
from tests.rooms.frontends_postgres.conftest import OpenRoom, Room, until
from tests.rooms.frontends_postgres.raw_client import query, shown


async def cancel(room: Room, process: int, key: bytes) -> None:
    other = await room.connect()
    other.send(struct.pack("!III", 12 + len(key), CANCEL_REQUEST, process) + key)
    assert await other.stream.read() == b""


@pytest.mark.parametrize("version", [0x30000, 0x30002])
async def test_it_is_passed_on_and_counts_only_with_the_right_key(open_room: OpenRoom, version: int) -> None:
    gate = asyncio.Event()
    async with siblings("owner", "other") as (mine, theirs):
        engine = ScriptedEngine(script=lambda _: Step(gate=gate), dialect="postgres")
        owner = await open_room(engine, door={"siblings": mine})
        other = await open_room(door={"siblings": theirs})
        client = await owner.client(version=version)
        assert is_from("owner", client.process)
        assert not is_from("other", client.process)
        client.send(query("select 1"))
        await until(lambda: owner.engine.running)
        await cancel(other, client.process, bytes(len(client.key)))
        await cancel(other, client.process + 1, client.key)
        assert owner.engine.cancels == 0
        await cancel(other, client.process, client.key)
        assert owner.engine.cancels == 1  # it has been done when the connection closes
        assert [shown(*message) for message in await client.until("Z")] == ["E 57014", "Z I"]
        gate.set()


async def test_one_for_a_process_that_has_gone_is_over_at_once(open_room: OpenRoom) -> None:
    async with siblings("owner", "other") as (mine, theirs):
        owner = await open_room(door={"siblings": mine})
        other = await open_room(door={"siblings": theirs})
        client = await owner.client()
        await mine.close()
        async with asyncio.timeout(2):
            await cancel(other, client.process, client.key)
