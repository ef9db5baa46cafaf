"""Byte streams over real sockets: bounded reading, back pressure, TLS, and peers that go away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from queryflux.runtime.bytestream import READ_LIMIT, ByteStream, connect


async def write_on(stream: ByteStream) -> None:
    """Write until it fails."""
    for _ in range(1000):
        stream.write(b"x" * 65536)
        await stream.drain()
        await asyncio.sleep(0.001)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[ByteStream, ByteStream]]:
    """A client's stream and the server's."""
    accepted: asyncio.Queue[ByteStream] = asyncio.Queue()
    server = await asyncio.get_running_loop().create_server(
        lambda: ByteStream(accepted.put_nowait), "127.0.0.1", 0
    )
    client = await connect("127.0.0.1", server.sockets[0].getsockname()[1])
    served = await accepted.get()
    try:
        yield client, served
    finally:
        client.abort()
        served.abort()
        server.close()
        await server.wait_closed()


async def test_bytes_arrive_in_order_and_the_end_is_empty() -> None:
    async with pair() as (client, served):
        client.write(b"one ")
        client.writelines([b"two ", b"three"])
        got = b""
        while len(got) < 13:
            got += await served.read()
        assert got == b"one two three"
        client.close()
        assert await served.read() == b""
        assert served.closed


async def test_unread_bytes_are_bounded() -> None:
    async with pair() as (client, served):
        blob = b"x" * (READ_LIMIT * 64)
        client.write(blob)
        writing = asyncio.create_task(client.drain())
        for _ in range(1000):
            await asyncio.sleep(0.001 if served.buffered <= READ_LIMIT else 0)
        assert served.buffered < READ_LIMIT * 8, "the sender is held back"
        assert not writing.done()
        total = 0
        while total < len(blob):
            total += len(await served.read())
        await writing


async def test_a_peer_that_goes_is_noticed_without_reading() -> None:
    async with pair() as (client, served):
        gone = asyncio.Event()
        served.on_gone(gone.set)
        client.abort()
        await asyncio.wait_for(gone.wait(), 5)
        with pytest.raises(ConnectionError):
            await write_on(served)


async def test_taking_back_the_watch_keeps_it_quiet() -> None:
    async with pair() as (client, served):
        calls: list[int] = []
        served.on_gone(lambda: calls.append(1))
        served.on_gone(None)
        client.abort()
        assert await served.read() == b""
        assert calls == []


async def test_a_waiting_writer_hears_that_the_peer_has_gone() -> None:
    async with pair() as (client, served):
        served.write(b"x" * (READ_LIMIT * 64))
        writing = asyncio.create_task(served.drain())
        await asyncio.sleep(0)
        client.abort()
        with pytest.raises(ConnectionError):
            await writing
