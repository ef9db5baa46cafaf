"""MOVE over a client's own portal."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from queryflux.frontends.postgres.client import Client
from queryflux.frontends.postgres.moving import PIECE_ROWS, Skipped, move_of
from queryflux.frontends.postgres.outbox import Bytes, Outbox
from queryflux.frontends.postgres.portals import Portals
from queryflux.frontends.postgres.prepared import Portal, Prepared
from queryflux.runtime.bytestream import connect
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.rows import RowEncoder
from tests.rooms.frontends_postgres.conftest import OpenRoom
from tests.rooms.frontends_postgres.raw_client import SYNC, bind, execute, parse, query
from tests.rooms.frontends_postgres.test_extended import engine
from tests.rooms.frontends_postgres.test_native import DONE, ROW


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MOVE FORWARD 10 __asyncpg_portal_1__", ("__asyncpg_portal_1__", 10)),
        ("move 3 from P;", ("p", 3)),
        ('move all in "a""B"', ('a"B', 0)),
        ("move forward all p", ("p", 0)),
        ("move 0 p", None),
        ("move backward 1 p", None),
        ("move next p", None),
        ("select 1", None),
    ],
)
def test_what_is_one(text: str, found: object) -> None:
    assert move_of(text) == found


async def test_rows_are_skipped_and_counted(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    await client.ask(query("begin"))
    assert await client.ask(parse("select five"), bind(portal="p"), SYNC) == ["1", "2", "Z T"]
    assert await client.ask(query("move forward 2 p")) == ["C MOVE 2", "Z T"]
    assert await client.ask(execute("p", 1), SYNC) == ["D 2", "s", "Z T"]
    assert await client.ask(query("move all p")) == ["C MOVE 2", "Z T"]
    assert await client.ask(query("move 1 p")) == ["C MOVE 0", "Z T"]
    assert room.engine.statements.count("select five") == 1
    client.close()
    await room.idle()


async def test_one_that_fails(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    await client.ask(query("begin"))
    await client.ask(parse("select oops"), bind(portal="p"), SYNC)
    assert (await client.ask(query("move 1 p")))[0][0] == "E"
    assert (await client.ask(query("rollback")))[-1] == "Z I"
    client.close()
    await room.idle()


async def test_rows_that_nobody_gets_are_not_encoded(
    open_room: OpenRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room(engine())
    client = await room.client()
    await client.ask(query("select 1"))
    monkeypatch.delattr(RowEncoder, "encode")
    await client.ask(query("begin"))
    await client.ask(parse("select five"), bind(portal="p"), SYNC)
    assert await client.ask(query("move 3 p")) == ["C MOVE 3", "Z T"]
    assert await client.ask(query("move all p")) == ["C MOVE 2", "Z T"]
    client.close()


@pytest.fixture
async def outbox(open_room: OpenRoom) -> AsyncIterator[Outbox]:
    room = await open_room()
    stream = await connect("127.0.0.1", room.door.port)
    yield Outbox(stream)
    stream.abort()


async def test_others_have_their_turn(outbox: Outbox) -> None:
    turns: list[int] = []
    skipped = Skipped(outbox)
    full = []
    for rows in (PIECE_ROWS - 1, 1):
        skipped.add(ROW * rows)
        full.append(skipped.full)
    assert full == [False, True]
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await skipped.room()
    assert (turns, skipped.rows, skipped.full) == ([1], PIECE_ROWS, False)


class Watched(Skipped):
    """Keeps how much came at a time."""

    def __init__(self, inner: Outbox) -> None:
        super().__init__(inner)
        self.pieces: list[int] = []

    def add(self, data: Bytes) -> None:
        self.pieces.append(len(data))
        super().add(data)


async def test_rows_in_memory_are_skipped_in_pieces(outbox: Outbox) -> None:
    watched = Watched(outbox)
    portals = Portals(cast(Client, SimpleNamespace(outbox=watched)))
    bound = messages.Bind("p", "", (), (), ())
    portal = Portal(Prepared("select many", (), None), bound, held=ROW * (3 * PIECE_ROWS) + DONE)
    await portals.from_memory(portal, PIECE_ROWS + 1)
    assert (watched.rows, portal.finished) == (PIECE_ROWS + 1, False)
    await portals.from_memory(portal, 0)
    assert (watched.rows, portal.finished) == (3 * PIECE_ROWS, True)
    assert max(watched.pieces) < (PIECE_ROWS + 10) * len(ROW)
