"""Payloads over a byte stream, with a deadline on whatever the client is slow at.

One attribute, ``deadline``, is set before each wait and cleared after it; the door looks at all of them once
a second and cuts those that have passed. That costs a waiting connection no timer and a statement no task.
"""

from queryflux.frontends.mysql.variables import SessionVariables
from queryflux.model.errors import QueryFluxError
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.clock import Clock
from queryflux.wire.mysql import replies
from queryflux.wire.mysql.errors import MySqlError, to_mysql
from queryflux.wire.mysql.packets import PacketCodec

HELD_BYTES = 16 * 1024
"""Rows are written when so many bytes have gathered, as MySQL's net_buffer_length has it."""
HANDSHAKE_LIMIT = 64 * 1024
"""The longest payload of a client that has not logged in."""
_SLOWEST = 64 * 1024
"""Bytes a second that a statement must come with, over its first net_read_timeout seconds."""


class Exchange:
    """One connection's packets in both directions."""

    def __init__(self, stream: ByteStream, clock: Clock, variables: SessionVariables) -> None:
        self.stream = stream
        self.codec = PacketCodec(HANDSHAKE_LIMIT)
        self.deadline: float | None = None
        self.waiting_for = ""
        """What the deadline is about, for the log."""
        self._clock = clock
        self._variables = variables
        self._out = bytearray()
        self._written = False
        self._begun = 0.0
        self._taken = 0

    @property
    def encrypted(self) -> bool:
        """Whether TLS is on."""
        return self.stream.encrypted

    async def receive(self) -> bytes:
        """The client's next payload. Raises ConnectionError at the end of the stream, ProtocolViolation,
        StatementTooLarge."""
        while True:
            payload = self.codec.receive()
            if payload is not None:
                self._begun = 0.0
                return payload
            self._limit_reading()
            try:
                data = await self.stream.read()
            finally:
                self.deadline = None
            if not data:
                raise ConnectionResetError("the client has gone")
            self._taken += len(data)
            self.codec.feed(data)

    def _limit_reading(self) -> None:
        now = self._clock.monotonic()
        if not self.codec.pending:
            self._begun = 0.0
            self.waiting_for = "a command"
            self.deadline = now + self._variables.number("wait_timeout")
            return
        if not self._begun:
            self._begun, self._taken = now, 0
        self.waiting_for = "the rest of a packet"
        allowed = self._variables.number("net_read_timeout") + self._taken / _SLOWEST
        self.deadline = self._begun + allowed

    def add(self, *payloads: bytes) -> None:
        """Queue payloads for ``flush``."""
        self._out += self.codec.pack(*payloads)

    def add_packets(self, data: "bytes | memoryview", sequence: int) -> None:
        """Queue packets that are ready, after which ``sequence`` is due."""
        self.codec.sequence = sequence
        if len(data) < HELD_BYTES:
            self._out += data
            return
        self._write()
        self.stream.write(data)  # not copied once more
        self._written = True

    @property
    def full(self) -> bool:
        """Enough is queued to be worth a write."""
        return self._written or len(self._out) >= HELD_BYTES

    async def flush(self) -> None:
        """Write what is queued and return when the client has taken enough of what was written before.
        Raises ConnectionError when it is gone, or was cut for taking nothing."""
        self._write()
        self._written = False
        self.waiting_for = "the client to read"
        self.deadline = self._clock.monotonic() + self._variables.number("net_write_timeout")
        try:
            await self.stream.drain()
        finally:
            self.deadline = None

    def _write(self) -> None:
        if self._out:
            out, self._out = self._out, bytearray()
            self.stream.write(out)

    def tell(self, payload: bytes) -> None:
        """Queue one payload."""
        self.add(payload)

    async def ask(self, payload: bytes) -> bytes:
        """Send a payload and return the client's answer. Raises as ``receive``."""
        self.add(payload)
        await self.flush()
        return await self.receive()

    def add_error(self, error: QueryFluxError, *, with_state: bool = True) -> MySqlError:
        """Queue an ERR packet; before the client's capabilities are known it has no SQLSTATE."""
        mapped = to_mysql(error)
        self.add(replies.error(mapped.number, mapped.sqlstate if with_state else "", mapped.message))
        return mapped

    def cut_if_late(self, now: float) -> bool:
        """Abort the connection if its deadline has passed."""
        if self.deadline is None or now < self.deadline:
            return False
        self.deadline = None
        self.stream.abort()
        return True
