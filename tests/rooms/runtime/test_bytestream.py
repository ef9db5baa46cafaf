"""Byte streams over real sockets: bounded reading, back pressure, TLS, and peers that go away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from queryflux.runtime.bytestream import READ_LIMIT, ByteStream, connect
from tests.kit.pki import Authority


async def write_on(stream: ByteStream) -> None:
    """Write until it fails."""
    for _ in range(1000):
        stream.write(b"x" * 65536)
        await stream.drain()
        await asyncio.sleep(0.001)


class Unlimited(asyncio.Transport):
    """A transport that the test itself feeds from."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


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


async def test_what_is_here_can_be_taken_without_waiting() -> None:
    stream = ByteStream()
    stream.connection_made(Unlimited())
    assert stream.read_now() == b""
    stream.data_received(b"here")
    stream.data_received(b" too")
    assert stream.read_now() == b"here too"
    assert (stream.read_now(), stream.buffered) == (b"", 0)


async def test_bytes_given_to_a_reader_that_is_cancelled_are_for_the_next_one() -> None:
    stream = ByteStream()
    stream.connection_made(Unlimited())
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    stream.data_received(b"first ")
    reading.cancel()
    stream.data_received(b"second")
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert stream.buffered == len(b"first second")
    assert await stream.read() == b"first second"


async def test_a_reader_that_left_before_anything_came_misses_nothing() -> None:
    stream = ByteStream()
    stream.connection_made(Unlimited())
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    reading.cancel()
    stream.data_received(b"late")
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await stream.read() == b"late"
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    stream.eof_received()
    assert await reading == b""


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


async def test_a_hand_shake_that_begins_while_tls_is_being_put_on(tmp_path: Path) -> None:
    """The peer's first bytes arrive after ``start_tls`` was called and before the loop has done its part."""
    authority = Authority(tmp_path)
    async with pair() as (client, served):
        upgrade = asyncio.ensure_future(served.start_tls(authority.server().context(), server_side=True))
        await asyncio.sleep(0)  # it has been called; the loop's own part comes next
        assert served._transport is not None
        assert not served._transport.is_reading()
        own = client.start_tls(authority.client_context(), server_side=False, server_hostname="localhost")
        async with asyncio.timeout(10):
            await asyncio.gather(upgrade, own)
        client.write(b"hello")
        assert await served.read() == b"hello"
        assert served.encrypted


async def test_writing_to_a_connection_that_is_closed() -> None:
    async with pair() as (_, served):
        served.abort()
        await asyncio.sleep(0.01)
        served.write(b"dropped")
        served.writelines([b"dropped"])
        with pytest.raises(ConnectionError):
            await served.drain()


class Taker:
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.called = asyncio.Event()

    def __call__(self, data: bytes) -> None:
        self.taken.append(data)
        self.called.set()


async def test_who_expects_bytes_is_called_with_them_once() -> None:
    async with pair() as (client, served), asyncio.timeout(5):
        taker = Taker()
        assert served.expect(taker)
        client.write(b"one")
        await taker.called.wait()
        client.write(b"two")
        assert await served.read() == b"two"
        served._buffer.append(b"three")
        assert not served.expect(taker), "there is something for read"
        assert await served.read() == b"three"
        assert served.expect(taker)
        served.expect_no_more()
        client.write(b"four")
        assert await served.read() == b"four"
        assert taker.taken == [b"one"]


async def test_who_expects_bytes_is_told_of_the_end() -> None:
    async with pair() as (client, served), asyncio.timeout(5):
        taker = Taker()
        assert served.expect(taker)
        client.close()
        await taker.called.wait()
        assert taker.taken == [b""]
        assert not served.expect(taker)
        assert await served.read() == b""
        assert taker.taken == [b""]
