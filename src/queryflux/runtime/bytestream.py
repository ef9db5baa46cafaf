"""A connection as bytes: what every door and every engine client of ours stands on.

Reading is pull-based and bounded: when READ_LIMIT bytes lie unread the transport is paused, so that a peer
who sends faster than it is read fills its own buffers. Writing is bounded by ``drain``. One task reads at a
time.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

READ_LIMIT = 256 * 1024
WRITE_HIGH_WATER = 256 * 1024


class ByteStream(asyncio.Protocol):
    """One TCP or Unix connection, in clear or under TLS."""

    __slots__ = (
        "_buffer",
        "_buffered",
        "_ends",
        "_eof",
        "_lost",
        "_on_gone",
        "_on_lost",
        "_paused_reading",
        "_paused_writing",
        "_plain",
        "_reader",
        "_started",
        "_transport",
        "_writers",
    )

    def __init__(self, started: "Callable[[ByteStream], object] | None" = None) -> None:
        """``started`` is called with the stream once it is connected."""
        self._started = started
        self._transport: asyncio.Transport | None = None
        self._plain: asyncio.Transport | None = None
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._eof = False
        self._lost: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._ends: list[asyncio.Future[None]] = []
        self._paused_reading = False
        self._paused_writing = False
        self._on_gone: Callable[[], object] | None = None
        self._on_lost: Callable[[], object] | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        if self._started is not None:
            started, self._started = self._started, None
            started(self)

    def data_received(self, data: bytes) -> None:
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered > READ_LIMIT and not self._paused_reading and self._transport is not None:
            self._paused_reading = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self._eof = True
        self._wake_reader()
        self._gone()
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._eof = True
        self._lost = exc or ConnectionResetError("connection closed")
        self._wake_reader()
        for waiter in self._writers:
            if not waiter.done():
                waiter.set_exception(self._lost)
        self._writers.clear()
        for end in self._ends:
            if not end.done():
                end.set_result(None)
        self._ends.clear()
        self._gone()
        if self._on_lost is not None:
            callback, self._on_lost = self._on_lost, None
            callback()

    def pause_writing(self) -> None:
        self._paused_writing = True

    def resume_writing(self) -> None:
        self._paused_writing = False
        for waiter in self._writers:
            if not waiter.done():
                waiter.set_result(None)
        self._writers.clear()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _gone(self) -> None:
        if self._on_gone is not None:
            callback, self._on_gone = self._on_gone, None
            callback()

    # What we call.

    @property
    def closed(self) -> bool:
        """The peer has closed its side, or the connection is gone."""
        return self._eof or self._lost is not None

    @property
    def buffered(self) -> int:
        """Bytes that have arrived and were not read yet."""
        return self._buffered

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the operating system has not taken yet."""
        size = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return size + self._plain.get_write_buffer_size() if self._plain is not None else size

    @property
    def peer(self) -> str:
        """``host:port`` of the peer; empty for a Unix socket."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""

    @property
    def fileno(self) -> int:
        """The socket's file descriptor, to poll whether anything has arrived; -1 when there is none."""
        found = self._transport.get_extra_info("socket") if self._transport else None
        return int(found.fileno()) if found is not None else -1

    @property
    def encrypted(self) -> bool:
        """Whether TLS is on."""
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is not None

    def on_gone(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback`` once, as soon as the peer closes; at once if it has. None takes it back."""
        self._on_gone = callback
        if callback is not None and self.closed:
            self._gone()

    def on_lost(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once, when the connection is no more in either direction; at once if it is."""
        if self._lost is not None:
            callback()
        else:
            self._on_lost = callback

    async def read(self) -> bytes:
        """Whatever has arrived, at least one byte; empty at the end of the stream."""
        while not self._buffer:
            if self._eof:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        self._buffer.clear()
        self._buffered = 0
        if self._paused_reading and self._transport is not None:
            self._paused_reading = False
            self._transport.resume_reading()
        return data

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        """Queue bytes. Bytes for a peer that has gone are dropped; ``drain`` says so."""
        if self._lost is None and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def writelines(self, parts: "list[bytes]") -> None:
        """Queue several parts in one go."""
        if self._lost is None and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(parts)

    async def drain(self) -> None:
        """Return when the peer has taken enough for more to be written.

        Raises ConnectionError if it is gone.
        """
        if self._lost is not None or self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the peer has gone") from self._lost
        if self._paused_writing:
            waiter = asyncio.get_running_loop().create_future()
            self._writers.append(waiter)
            await waiter

    async def start_tls(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        timeout: float = 30,
        received: bytes | None = None,
    ) -> None:
        """Go on under TLS. Bytes that arrived in clear before must have been read: leftovers are an error.

        Where the peer begins its handshake unasked (MySQL), ``received`` is what has been read of it; it and
        all that came since are given to TLS.
        """
        early = b""
        if received is not None:
            early = b"".join((received, *self._buffer))
            self._buffer.clear()
            self._buffered = 0
        if self._buffer:
            raise ConnectionError("data in clear arrived where the TLS handshake was due")
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        plain = self._transport
        if plain.is_closing():
            raise ConnectionResetError("the peer has gone")
        # What arrives before the task has run is TLS's and not ours; the loop's start_tls reads on.
        plain.pause_reading()
        # The task and what it schedules run before the feeding, and no reading comes in between.
        upgrade = loop.create_task(
            loop.start_tls(
                plain,
                self,
                context,
                server_side=server_side,
                server_hostname=server_hostname,
                ssl_handshake_timeout=timeout,
            )
        )
        if early:
            loop.call_soon(loop.call_soon, _feed_tls, plain, early)
        transport = await upgrade
        if transport is None:
            raise ConnectionError("the TLS handshake failed")
        self._transport, self._plain = transport, plain
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)

    def close(self) -> None:
        """Close after what is queued has been sent."""
        if self._transport is not None:
            self._transport.close()

    async def wait_closed(self) -> None:
        """Return when the connection is no more: what was queued before ``close`` has then been sent, or
        cannot be."""
        if self._lost is None:
            end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._ends.append(end)
            await end

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _feed_tls(transport: asyncio.Transport, data: bytes) -> None:
    """Hand bytes to the TLS layer that ``start_tls`` has put on ``transport``."""
    layer = transport.get_protocol()
    if isinstance(layer, ByteStream):
        return  # the upgrade failed at once, and says so itself
    tls = cast(asyncio.BufferedProtocol, layer)
    while data:
        room = memoryview(tls.get_buffer(len(data)))
        count = min(len(room), len(data))
        room[:count] = data[:count]
        tls.buffer_updated(count)
        data = data[count:]


async def connect(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    timeout: float = 10,
) -> ByteStream:
    """Open a connection. Raises OSError (also ssl.SSLError, TimeoutError)."""
    async with asyncio.timeout(timeout):
        _, stream = await asyncio.get_running_loop().create_connection(
            ByteStream, host, port, ssl=tls, server_hostname=(server_hostname or host) if tls else None
        )
    return stream
