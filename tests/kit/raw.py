"""Bare bytes to a door, for what no driver sends."""

import contextlib
import socket
import struct
from collections.abc import Iterator

from tests.kit.doors import HOST

MYSQL_SHA2 = "caching_sha2_password"
MYSQL_CLEAR_PASSWORD = "mysql_clear_password"
_MYSQL_CAPABILITIES = 0x00000200 | 0x00008000 | 0x00080000 | 0x00200000 | 0x01000000
"""PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, PLUGIN_AUTH_LENENC_CLIENT_DATA, DEPRECATE_EOF."""


class RawConnection:
    """A blocking connection; whatever takes over ``seconds`` fails."""

    def __init__(self, port: int, seconds: float = 20) -> None:
        self.socket = socket.create_connection((HOST, port), seconds)

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes; a peer that has closed already is no fault of the test's."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def trickle(self, data: bytes) -> None:
        """Send bytes one by one, each in a segment of its own."""
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(data)):
            self.send(data[at : at + 1])

    def finish(self) -> None:
        """Say that nothing more will come."""
        with contextlib.suppress(OSError):  # the server has closed already
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Vanish with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read(self, count: int) -> bytes:
        """Exactly so many bytes. Raises ConnectionError at the end of the stream."""
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the server has closed")
            data += part
        return data

    def rest(self) -> bytes:
        """Everything until the server closes."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while part := self.socket.recv(65536):
                data += part
        return data

    def packet(self) -> tuple[int, bytes]:
        """A MySQL packet: its sequence number and payload."""
        head = self.read(4)
        return head[3], self.read(int.from_bytes(head[:3], "little"))

    def message(self) -> tuple[bytes, bytes]:
        """A PostgreSQL message: its type and body."""
        head = self.read(5)
        return head[:1], self.read(int.from_bytes(head[1:]) - 4)

    def until(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """PostgreSQL messages up to the first of a type."""
        found = [self.message()]
        while found[-1][0] != kind:
            found.append(self.message())
        return found


def postgres_startup(user: str, **parameters: str) -> bytes:
    """A StartupMessage of protocol 3.0."""
    pairs = {"user": user, **parameters} if user else parameters
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in pairs.items()) + b"\0"
    return struct.pack("!II", len(body) + 8, 196608) + body


def postgres_message(kind: bytes, body: bytes = b"") -> bytes:
    """A message of a session, or a credential."""
    return kind + struct.pack("!I", len(body) + 4) + body


def postgres_messages(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The messages in what a server sent."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5])
        yield data[at : at + 1], data[at + 5 : at + 1 + size]
        at += 1 + size


def postgres_errors(data: bytes) -> list[str]:
    """The SQLSTATEs of the ErrorResponses in what a server sent."""
    return [sqlstate(body) for kind, body in postgres_messages(data) if kind == b"E"]


def sqlstate(body: bytes) -> str:
    """The code of an ErrorResponse."""
    fields = {field[:1]: field[1:] for field in body.split(b"\0") if field}
    return fields[b"C"].decode()


def mysql_login(user: str, proof: bytes, plugin: str) -> bytes:
    """A HandshakeResponse41, packet number 1."""
    payload = _MYSQL_CAPABILITIES.to_bytes(4, "little") + b"\0\0\0\1\x2d" + bytes(23)
    payload += user.encode() + b"\0" + bytes([len(proof)]) + proof + plugin.encode() + b"\0"
    return mysql_packet(payload, 1)


def mysql_packet(payload: bytes, sequence: int) -> bytes:
    """One packet."""
    return len(payload).to_bytes(3, "little") + bytes([sequence]) + payload


def mysql_command(payload: bytes) -> bytes:
    """A command."""
    return mysql_packet(payload, 0)


def http(method: str, path: str, body: bytes, *headers: str) -> bytes:
    """A request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
