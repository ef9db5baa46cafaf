"""A client of the wire protocol that sends what it is told, byte for byte."""

import struct
from collections.abc import Mapping

from queryflux.runtime.bytestream import ByteStream, connect


def front(kind: str, body: bytes = b"") -> bytes:
    """One client message."""
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def query(text: str) -> bytes:
    """Query."""
    return front("Q", text.encode() + b"\0")


def parse(sql: str, name: str = "", oids: tuple[int, ...] = ()) -> bytes:
    """Parse."""
    body = name.encode() + b"\0" + sql.encode() + b"\0"
    return front("P", body + struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def bind(
    *values: bytes | None,
    portal: str = "",
    statement: str = "",
    formats: tuple[int, ...] = (),
    results: tuple[int, ...] = (),
) -> bytes:
    """Bind."""
    body = portal.encode() + b"\0" + statement.encode() + b"\0"
    body += struct.pack(f"!H{len(formats)}H", len(formats), *formats)
    body += struct.pack("!H", len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return front("B", body + struct.pack(f"!H{len(results)}H", len(results), *results))


def describe(kind: str = "P", name: str = "") -> bytes:
    """Describe."""
    return front("D", kind.encode() + name.encode() + b"\0")


def execute(portal: str = "", limit: int = 0) -> bytes:
    """Execute."""
    return front("E", portal.encode() + b"\0" + struct.pack("!I", limit))


def close(kind: str, name: str = "") -> bytes:
    """Close."""
    return front("C", kind.encode() + name.encode() + b"\0")


SYNC = front("S")
FLUSH = front("H")
TERMINATE = front("X")


def startup(version: int = 0x30000, **parameters: str) -> bytes:
    """A start-up packet."""
    pairs: Mapping[str, str] = {"user": "ann", **parameters}
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in pairs.items()) + b"\0"
    return struct.pack("!II", len(body) + 8, version) + body


class RawClient:
    """A connection; ``received`` is what has come and was not looked at."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.received = b""
        self.parameters: dict[str, str] = {}
        self.process = 0
        self.key = b""

    @classmethod
    async def open(cls, port: int) -> "RawClient":
        """A connection that has said nothing yet."""
        return cls(await connect("127.0.0.1", port))

    @classmethod
    async def start(cls, port: int, version: int = 0x30000, **parameters: str) -> "RawClient":
        """A session without authentication."""
        client = await cls.open(port)
        client.send(startup(version, **parameters))
        for kind, body in await client.until("Z"):
            if kind == "S":
                name, value = body[:-1].split(b"\0")
                client.parameters[name.decode()] = value.decode()
            elif kind == "K":
                client.process, client.key = int.from_bytes(body[:4]), body[4:]
        return client

    def send(self, *data: bytes) -> None:
        """Write, in one piece."""
        self.stream.write(b"".join(data))

    async def message(self) -> tuple[str, bytes]:
        """The next message; EOFError when the server has closed."""
        while len(self.received) < 5 or len(self.received) < 1 + int.from_bytes(self.received[1:5]):
            data = await self.stream.read()
            if not data:
                raise EOFError(self.received)
            self.received += data
        end = 1 + int.from_bytes(self.received[1:5])
        kind, body = chr(self.received[0]), self.received[5:end]
        self.received = self.received[end:]
        return kind, body

    async def until(self, last: str) -> list[tuple[str, bytes]]:
        """Every message up to one of a type."""
        found = []
        while True:
            found.append(await self.message())
            if found[-1][0] == last:
                return found

    async def to_the_end(self) -> list[tuple[str, bytes]]:
        """Every message until the server closes."""
        found = []
        while True:
            try:
                found.append(await self.message())
            except EOFError:
                return found

    async def ask(self, *data: bytes) -> list[str]:
        """Send, and what comes up to ReadyForQuery, in short: one word a message (``shown``)."""
        self.send(*data)
        return [shown(kind, body) for kind, body in await self.until("Z")]

    def close(self) -> None:
        """Leave without a word."""
        self.stream.abort()


def fields(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse or NoticeResponse."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def shown(kind: str, body: bytes) -> str:
    """A message in short: ``T x,y``, ``D 1,NULL``, ``C SELECT 1``, ``E 42601``, ``Z I``, ``1`` ..."""
    if kind == "T":
        return "T " + ",".join(name for name, _, _ in described(body))
    if kind == "D":
        return "D " + ",".join("NULL" if value is None else value.decode() for value in values(body))
    if kind in "EN":
        return f"{kind} {fields(body)['C']}"
    if kind in "CZ":
        return f"{kind} {body.rstrip(bytes(1)).decode()}"
    if kind == "S":
        return "S " + "=".join(part.decode() for part in body[:-1].split(b"\0"))
    if kind == "t":
        return "t " + ",".join(map(str, struct.unpack_from(f"!{(len(body) - 2) // 4}I", body, 2)))
    return kind


def described(body: bytes) -> list[tuple[str, int, int]]:
    """Name, OID and format of each column of a RowDescription."""
    columns, at = [], 2
    for _ in range(int.from_bytes(body[:2])):
        end = body.index(0, at)
        oid, code = struct.unpack_from("!6xI6xH", body, end + 1)
        columns.append((body[at:end].decode(), oid, code))
        at = end + 19
    return columns


def values(body: bytes) -> list[bytes | None]:
    """The values of a DataRow."""
    found: list[bytes | None] = []
    at = 2
    for _ in range(int.from_bytes(body[:2])):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        found.append(None if size < 0 else body[at : at + size])
        at += max(size, 0)
    return found
