import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from queryflux.config.listeners import ListenerConfig, ListenerTls
from queryflux.frontends.listener import Handle, Listener, server_context
from queryflux.model.errors import ConfigError
from queryflux.runtime.bytestream import ByteStream, connect
from tests.kit.metrics import NoMetrics
from tests.kit.pki import Authority
from tests.rooms.frontends_postgres.conftest import until


async def echo(stream: ByteStream) -> None:
    while data := await stream.read():
        stream.write(data)


async def refuse(stream: ByteStream) -> None:
    stream.write(b"full")


@asynccontextmanager
async def listening(
    handle: Handle = echo,
    limit: int | None = None,
    seconds: float = 30,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Listener]:
    listener = Listener(
        "Test",
        ListenerConfig(host="127.0.0.1", max_connections=limit),
        handle,
        refuse=refuse,
        metrics=NoMetrics(),
        handshake_seconds=seconds,
        tls=tls,
        implicit_tls=True,
    )
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()


async def test_a_connection_is_handled_and_closed_when_its_handler_returns() -> None:
    async def once(stream: ByteStream) -> None:
        stream.write(await stream.read())

    async with listening(once) as listener:
        stream = await connect("127.0.0.1", listener.port)
        stream.write(b"x")
        assert await stream.read() == b"x"
        assert await stream.read() == b""
        stream.close()


async def test_a_connection_over_the_limit_is_told_so_and_does_not_disturb_the_others() -> None:
    async with listening(limit=1) as listener:
        first = await connect("127.0.0.1", listener.port)
        first.write(b"1")
        assert await first.read() == b"1"
        second = await connect("127.0.0.1", listener.port)
        assert await second.read() == b"full"
        assert await second.read() == b""
        first.write(b"2")
        assert await first.read() == b"2"
        first.close()
        second.close()


async def encrypted(port: int, authority: Authority) -> ByteStream:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    return await connect("127.0.0.1", port, tls=context)


async def test_connections_in_their_tls_hand_shake_count_and_are_cut_in_time(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with listening(limit=1, seconds=0.5, tls=authority.server().context()) as listener:
        silent = await connect("127.0.0.1", listener.port)
        await until(lambda: listener.connections == 1)
        refused = await encrypted(listener.port, authority)
        assert await refused.read() == b"full"
        assert await silent.read() == b""
        await until(lambda: not listener.connections)
        stream = await encrypted(listener.port, authority)
        stream.write(b"x")
        assert await stream.read() == b"x"
        for each in (silent, refused, stream):
            each.abort()


async def test_nothing_is_left_of_a_connection_that_has_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(seconds: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        timers.append(call_later(seconds, callback, *arguments))
        return timers[-1]

    async with listening() as listener:
        stream = await connect("127.0.0.1", listener.port)
        stream.write(b"x")
        await stream.read()
        monkeypatch.setattr(loop, "call_later", noted)
        stream.close()
        await until(lambda: timers)
        await until(lambda: all(timer.cancelled() for timer in timers))


async def test_a_client_that_sends_a_byte_now_and_then_is_cut() -> None:
    async def patient(stream: ByteStream) -> None:
        async with listener.handshake():
            while await stream.read():
                pass

    async with listening(patient, seconds=0.05) as listener:
        stream = await connect("127.0.0.1", listener.port)
        stream.write(b"x")
        assert await stream.read() == b""
        stream.close()


async def test_close_cuts_what_does_not_end_by_itself() -> None:
    async with listening() as listener:
        stream = await connect("127.0.0.1", listener.port)
        stream.write(b"1")
        await stream.read()
        assert listener.connections == 1
        await listener.close()
        assert listener.connections == 0
        assert await stream.read() == b""
        stream.close()


async def test_after_stop_accepting_open_connections_go_on_and_new_ones_fail() -> None:
    async with listening() as listener:
        stream = await connect("127.0.0.1", listener.port)
        stream.write(b"1")
        await stream.read()
        listener.stop_accepting()
        with pytest.raises(OSError):
            await connect("127.0.0.1", listener.port)
        stream.write(b"2")
        assert await stream.read() == b"2"
        stream.close()
        await listener.close(grace=5)


async def test_a_fault_in_a_handler_ends_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(stream: ByteStream) -> None:
        raise ValueError(await stream.read())

    async with listening(broken) as listener:
        for _ in range(2):
            stream = await connect("127.0.0.1", listener.port)
            stream.write(b"x")
            assert await stream.read() == b""
            stream.close()
    assert "failed" in caplog.text


async def test_a_taken_port_is_a_clear_error() -> None:
    async with listening() as taken:
        other = Listener(
            "Test",
            ListenerConfig(host="127.0.0.1", port=taken.port),
            echo,
            refuse=refuse,
            metrics=NoMetrics(),
        )
        with pytest.raises(
            ConfigError, match=f"cannot bind 127.0.0.1:{taken.port}: Address already in use"
        ) as caught:
            await other.start()
    assert "queryflux.frontends.test.port" in caught.value.hint


def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    with pytest.raises(ConfigError, match=r"cert\.pem does not exist"):
        server_context(ListenerTls(cert_file=str(cert), key_file=str(key)))
    cert.write_text("no certificate")
    key.write_text("no key")
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        server_context(ListenerTls(cert_file=str(cert), key_file=str(key)))
    assert isinstance(caught.value.__cause__, ssl.SSLError | OSError)
