"""One listening socket and several processes that accept on it: connections spread, and none is lost."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from queryflux.config.listeners import ListenerConfig
from queryflux.frontends import listener
from queryflux.frontends.listener import Listener, bind
from queryflux.model.errors import ConfigError
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.turns import RELUCTANT_SECONDS, Shared, Tally, make_tally
from tests.kit.metrics import NoMetrics

ANYWHERE = ListenerConfig(host="127.0.0.1", port=0)


class Side:
    """One process's part: it says its name to every client and keeps the connection."""

    def __init__(self, name: str, shared: Shared, limit: int) -> None:
        self.name = name
        config = ListenerConfig(host="127.0.0.1", port=0, max_connections=limit)
        self.listener = Listener(
            "test", config, self._serve, refuse=self._refuse, metrics=NoMetrics(), shared=shared
        )

    async def _serve(self, stream: ByteStream) -> None:
        stream.write(self.name.encode())
        while await stream.read():
            pass

    async def _refuse(self, stream: ByteStream) -> None:
        stream.write(b"full")


@asynccontextmanager
async def sides(folder: Path, limit: int = 0) -> AsyncIterator[tuple[list[Side], int]]:
    """Two of them, and their port."""
    bound = bind("test", ANYWHERE)
    path = folder / "tally"
    make_tally(path, 1, 2)
    made = []
    for number in range(2):
        mine = tuple(socket.socket(fileno=one.dup().detach()) for one in bound)
        for one in mine:
            one.setblocking(False)
        made.append(Side("ab"[number], Shared(mine, Tally(path, 0, 2, number)), limit))
    for side in made:
        await side.listener.start()
    try:
        yield made, bound[0].getsockname()[1]
    finally:
        for side in made:
            await side.listener.close()
        for one in bound:
            one.close()


async def connect(port: int) -> tuple[bytes, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    return await reader.read(10), writer


async def test_connections_that_stay_are_spread(tmp_path: Path) -> None:
    async with sides(tmp_path) as (made, port):
        assert [side.listener.port for side in made] == [port, port]
        came = [await connect(port) for _ in range(8)]
        came += await asyncio.gather(*(connect(port) for _ in range(8)))
        said = [name for name, _ in came]
        assert 6 <= said.count(b"a") <= 10  # a busy machine may be too late for a turn
        assert said.count(b"a") + said.count(b"b") == 16
        for _, writer in came:
            writer.close()


async def test_who_has_many_leaves_it_to_the_others_until_they_have_as_many(tmp_path: Path) -> None:
    async with sides(tmp_path) as (made, port):
        came = [await connect(port) for _ in range(8)]
        for name, writer in came:
            if name == b"a":
                writer.close()
        async with asyncio.timeout(5):
            await made[0].listener._tasks.wait()
        came += [await connect(port) for _ in range(4)]
        assert [name for name, _ in came[8:]].count(b"a") >= 3
        for _, writer in came:
            writer.close()


async def test_one_that_does_not_come_to_it_holds_up_nobody(tmp_path: Path) -> None:
    async with sides(tmp_path) as (made, port):
        for acceptor in made[0].listener._acceptors:
            acceptor._loop.remove_reader(acceptor._socket.fileno())  # as busy as one can be
        came = [await asyncio.wait_for(connect(port), 5) for _ in range(4)]
        assert [name for name, _ in came] == [b"b"] * 4
        for _, writer in came:
            writer.close()


async def test_who_has_nothing_to_offer_yet_leaves_it_to_the_others(tmp_path: Path) -> None:
    async with sides(tmp_path) as (made, port):
        tally = made[0].listener._shared.tally if made[0].listener._shared is not None else None
        assert tally is not None
        tally.reluctant = True
        came = [await connect(port) for _ in range(6)]
        assert {name for name, _ in came} == {b"b"}
        tally.reluctant = False
        await asyncio.sleep(RELUCTANT_SECONDS)  # it may have stepped aside just now
        came += [await connect(port) for _ in range(4)]
        assert [name for name, _ in came[6:]].count(b"a") >= 3
        for _, writer in came:
            writer.close()


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_max_connections_is_for_all_together(tmp_path: Path, limit: int) -> None:
    async with sides(tmp_path, limit=limit) as (_, port):
        came = [await connect(port) for _ in range(limit + 2)]
        assert [name == b"full" for name, _ in came] == [False] * limit + [True] * 2
        for _, writer in came:
            writer.close()


async def test_who_was_turned_away_takes_no_place(tmp_path: Path) -> None:
    async with sides(tmp_path, limit=2) as (made, port):
        came = [await connect(port) for _ in range(8)]
        assert [name for name, _ in came].count(b"full") == 6
        for _, writer in came:
            writer.close()
        async with asyncio.timeout(5):
            for side in made:
                await side.listener._tasks.wait()
        again = [await connect(port) for _ in range(2)]
        assert b"full" not in [name for name, _ in again]
        for _, writer in again:
            writer.close()


async def test_one_that_stops_accepting_is_not_counted(tmp_path: Path) -> None:
    async with sides(tmp_path) as (made, port):
        made[0].listener.stop_accepting()
        came = [await connect(port) for _ in range(4)]
        assert {name for name, _ in came} == {b"b"}
        for _, writer in came:
            writer.close()


def test_a_port_that_is_taken_is_named() -> None:
    (held,) = bind("test", ANYWHERE)
    taken = ListenerConfig(host="127.0.0.1", port=held.getsockname()[1])
    with pytest.raises(ConfigError, match=f"cannot bind 127.0.0.1:{taken.port}"):
        bind("postgresWire", taken)
    held.close()


def test_an_address_that_the_machine_lacks_is_left_out_unless_it_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = (socket.SOCK_STREAM, 6, "")
    lacking = (socket.AF_INET, *stream, ("203.0.113.1", 0))
    unknown = (99, *stream, ("::1", 0, 0, 0))
    places = [lacking, unknown, (socket.AF_INET, *stream, ("127.0.0.1", 0))]
    monkeypatch.setattr(listener, "_places", lambda *_: places)
    (bound,) = bind("test", ANYWHERE)
    assert bound.getsockname()[0] == "127.0.0.1"
    bound.close()
    places.pop()
    with pytest.raises(ConfigError, match="cannot bind"):
        bind("test", ANYWHERE)


def test_every_address_of_a_host_gets_the_same_port() -> None:
    made = bind("test", ListenerConfig(host="", port=0))
    assert len({one.getsockname()[1] for one in made}) == 1
    for one in made:
        one.close()
