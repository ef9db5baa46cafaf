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
        "_loop",
        "_lost",
        "_on_gone",
        "_on_lost",
        "_out",
        "_paused_reading",
        "_plain",
        "_reader",
        "_started",
        "_taker",
        "_transport",
        "_writers",
        "congested",
    )

    def __init__(self, started: "Callable[[ByteStream], object] | None" = None) -> None:
        """``started`` is called with the stream once it is connected."""
        self._started = started
        self._transport: asyncio.Transport | None = None
        self._plain: asyncio.Transport | None = None
        self._out: asyncio.Transport | None = None
        """The transport while the connection is there."""
        self._loop: asyncio.AbstractEventLoop
        """Set with the transport: nobody reads before."""
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._eof = False
        self._lost: Exception | None = None
        self._reader: asyncio.Future[bytes] | None = None
        """Whoever waits for bytes, and is given them; nothing is buffered then."""
        self._taker: Callable[[bytes], object] | None = None
        """The same for who wants to be called (``expect``)."""
        self._writers: list[asyncio.Future[None]] = []
        self._ends: list[asyncio.Future[None]] = []
        self._paused_reading = False
        self.congested = False
        """More was written than the peer takes: ``drain`` waits until it has."""
        self._on_gone: Callable[[], object] | None = None
        self._on_lost: Callable[[], object] | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._out = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        if self._started is not None:
            started, self._started = self._started, None
            started(self)

    def data_received(self, data: bytes) -> None:
        taker = self._taker
        if taker is not None:
            self._taker = None
            taker(data)
            return
        reader = self._reader
        if reader is not None:
            self._reader = None
            if not reader.done():
                reader.set_result(data)
                return
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered > READ_LIMIT and not self._paused_reading and self._transport is not None:
            self._paused_reading = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._eof = True
        self._end_reading()
        self._gone()
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._eof = True
        self._lost = exc or ConnectionResetError("connection closed")
        self._out = None
        self._end_reading()
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
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        for waiter in self._writers:
            if not waiter.done():
                waiter.set_result(None)
        self._writers.clear()

    def _end_reading(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(b"")
        taker, self._taker = self._taker, None
        if taker is not None:
            taker(b"")

    def _gone(self) -> None:
        if self._on_gone is not None:
            callback, self._on_gone = self._on_gone, None
            callback()

    # What we call.

    @property
    def closed(self) -> bool:
        """The peer has closed its side, or the connection is gone."""
        return self._eof

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
        if self._buffer:
            return self.read_now()
        if self._eof:
            return b""
        reader: asyncio.Future[bytes] = self._loop.create_future()
        self._reader = reader
        try:
            return await reader
        except asyncio.CancelledError:
            self._leave_reading(reader)
            raise

    def expect(self, taker: Callable[[bytes], object]) -> bool:
        """Have ``taker`` called with the next bytes, once and in the moment they come; empty at the end of
        the stream. It must not raise. False, and nothing is done: what ``read`` gives is here already."""
        if self._buffer or self._eof:
            return False
        self._taker = taker
        return True

    def expect_no_more(self) -> None:
        """Nobody is to be called any more: what comes is for ``read``."""
        self._taker = None

    def _leave_reading(self, reader: "asyncio.Future[bytes]") -> None:
        """Whoever waited does not any more. What was given to it at the same moment is for the next."""
        if self._reader is reader:
            self._reader = None
        if reader.done() and not reader.cancelled() and (data := reader.result()):
            self._buffer.insert(0, data)
            self._buffered += len(data)

    def read_now(self) -> bytes:
        """What has arrived, without waiting; empty when nothing has, or at the end of the stream."""
        buffer = self._buffer
        if not buffer:
            return b""
        data = buffer[0] if len(buffer) == 1 else b"".join(buffer)
        buffer.clear()
        self._buffered = 0
        if self._paused_reading and self._transport is not None:
            self._paused_reading = False
            self._transport.resume_reading()
        return data

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        """Queue bytes. Bytes for a peer that has gone are dropped; ``drain`` says so."""
        out = self._out
        if out is not None:
            try:
                out.write(data)
            except RuntimeError:
                if not out.is_closing():
                    raise

    def writelines(self, parts: "list[bytes]") -> None:
        """Queue several parts in one go."""
        out = self._out
        if out is not None and not out.is_closing():
            out.writelines(parts)

    async def drain(self) -> None:
        """Return when the peer has taken enough for more to be written.

        Raises ConnectionError if it is gone.
        """
        out = self._out
        if out is None or out.is_closing():
            raise ConnectionResetError("the peer has gone") from self._lost
        if self.congested:
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
        self._out = None if self._lost is not None else transport
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)

    def close(self) -> None:
        """Close after what is queued has been sent."""
        self._out = None
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
        self._out = None
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


async def connect_unix(path: str, *, timeout: float = 10) -> ByteStream:
    """Open a connection to a Unix socket. Raises OSError (also TimeoutError)."""
    async with asyncio.timeout(timeout):
        _, stream = await asyncio.get_running_loop().create_unix_connection(ByteStream, path)
    return stream
