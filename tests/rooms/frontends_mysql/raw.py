"""A client of bare packets, for what real drivers never do."""

import asyncio
import hashlib
from types import TracebackType

from queryflux.wire.mysql.constants import Capability
from queryflux.wire.mysql.lenenc import lenenc_bytes

DEFAULT = (
    Capability.PROTOCOL_41
    | Capability.SECURE_CONNECTION
    | Capability.PLUGIN_AUTH
    | Capability.PLUGIN_AUTH_LENENC_DATA
    | Capability.CONNECT_WITH_DB
    | Capability.DEPRECATE_EOF
)
SHA2 = "caching_sha2_password"


class RawClient:
    """One connection; ``sequence`` is the number of the next packet in either direction."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sequence = 0
        self.nonce = b""
        self.number = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "RawClient":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def abort(self) -> None:
        """Vanish."""
        assert self._writer is not None
        self._writer.transport.abort()

    def send_bytes(self, data: bytes) -> None:
        """Send what need not be packets."""
        assert self._writer is not None
        self._writer.write(data)

    def send(self, payload: bytes, sequence: int | None = None) -> None:
        """Send one packet."""
        number = self.sequence if sequence is None else sequence
        self.send_bytes(len(payload).to_bytes(3, "little") + bytes((number & 0xFF,)) + payload)
        self.sequence = (number + 1) & 0xFF

    async def receive(self) -> bytes:
        """One packet's payload. Raises IncompleteReadError at the end."""
        assert self._reader is not None
        async with asyncio.timeout(10):
            header = await self._reader.readexactly(4)
            assert header[3] == self.sequence, "the server's packets are out of order"
            self.sequence = (self.sequence + 1) & 0xFF
            return await self._reader.readexactly(int.from_bytes(header[:3], "little"))

    async def at_end(self) -> bool:
        """Whether the server closes without saying more."""
        assert self._reader is not None
        async with asyncio.timeout(10):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    async def greeting(self) -> bytes:
        """Read the greeting; remembers its nonce and connection id."""
        payload = await self.receive()
        if payload[0] == 10:
            rest = payload.partition(b"\0")[2]
            self.number = int.from_bytes(rest[:4], "little")
            self.nonce = rest[4:12] + rest[31:43]
        return payload

    def respond(
        self,
        user: str = "bob",
        proof: bytes = b"",
        *,
        plugin: str = SHA2,
        database: str = "",
        capabilities: int = DEFAULT,
    ) -> None:
        """Send a handshake response."""
        head = capabilities.to_bytes(4, "little") + b"\0\0\0\1\x2d" + bytes(23)
        tail = (
            user.encode() + b"\0" + lenenc_bytes(proof) + database.encode() + b"\0" + plugin.encode() + b"\0"
        )
        self.send(head + tail)

    async def log_in(self, user: str = "bob", password: str = "", **more: int) -> bytes:
        """Log in; returns the server's last word, OK or ERR."""
        await self.greeting()
        self.respond(user, scramble(password, self.nonce) if password else b"", **more)  # type: ignore[arg-type]
        payload = await self.receive()
        if payload == b"\x01\x03":
            payload = await self.receive()
        return payload

    async def command(self, payload: bytes) -> bytes:
        """Send a command and return the first packet of its answer."""
        self.sequence = 0
        self.send(payload)
        return await self.receive()

    async def query(self, text: str | bytes) -> list[bytes]:
        """Send COM_QUERY and return the packets of its whole answer."""
        raw = text.encode() if isinstance(text, str) else text
        packets = [await self.command(b"\x03" + raw)]
        if packets[0][0] in (0x00, 0xFF):
            return packets
        while packets[-1][0] not in (0xFE, 0xFF):
            packets.append(await self.receive())
        return packets


def scramble(password: str, nonce: bytes) -> bytes:
    """caching_sha2_password's fast path."""
    once = hashlib.sha256(password.encode()).digest()
    mask = hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def error_number(payload: bytes) -> int:
    """The number in an ERR packet."""
    assert payload[0] == 0xFF, payload
    return int.from_bytes(payload[1:3], "little")
