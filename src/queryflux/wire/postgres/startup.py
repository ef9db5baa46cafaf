"""The packets before a session: encryption requests, cancel requests and the start-up message.

They have no type byte; a length and a code come first (manual, "StartupMessage", "CancelRequest").
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from queryflux.model.errors import NotSupported, ProtocolViolation
from queryflux.wire.postgres.constants import (
    CANCEL_REQUEST,
    GSSENC_REQUEST,
    MAX_STARTUP_LENGTH,
    PROTOCOL_3_0,
    PROTOCOL_3_2,
    SSL_REQUEST,
)
from queryflux.wire.postgres.messages import decode

_HEAD = struct.Struct("!II")
MAX_CANCEL_KEY = 256
TLS_CLIENT_HELLO = 0x16


@dataclass(frozen=True, slots=True)
class SslRequest:
    """May I go on under TLS?"""


@dataclass(frozen=True, slots=True)
class GssRequest:
    """May I go on under GSSAPI encryption?"""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Cancel what the session with this process number and key runs."""

    process: int
    key: bytes


@dataclass(frozen=True, slots=True)
class StartupMessage:
    """``version`` is what we speak with this client; ``negotiate`` that it asked for something newer, or for
    ``unknown`` protocol options (``_pq_.*``)."""

    version: int
    parameters: Mapping[str, str]
    negotiate: bool = False
    unknown: tuple[str, ...] = ()


StartupPacket = SslRequest | GssRequest | CancelRequest | StartupMessage


class StartupDecoder:
    """Cuts the packets out of the client's bytes. No packet is longer than MAX_STARTUP_LENGTH."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        """Take bytes as they come."""
        self._data += data

    @property
    def rest(self) -> bytes:
        """Bytes that belong to no packet yet."""
        return self._data

    def next(self) -> StartupPacket | None:
        """The next packet, or None until more has been fed. Raises ProtocolViolation, and NotSupported for a
        protocol that is not 3.x."""
        if self._data[:1] == bytes([TLS_CLIENT_HELLO]):
            raise NotSupported(
                "direct TLS is not supported",
                hint="use sslnegotiation=postgres, the default, which asks for TLS first",
            )
        if len(self._data) < 4:
            return None
        length = int.from_bytes(self._data[:4])
        if not 8 <= length <= MAX_STARTUP_LENGTH:
            raise ProtocolViolation(f"invalid length of startup packet: {length}")
        if len(self._data) < length:
            return None
        packet, self._data = self._data[:length], self._data[length:]
        return _packet(packet)


def _packet(packet: bytes) -> StartupPacket:
    length, code = _HEAD.unpack_from(packet)
    if code == SSL_REQUEST and length == 8:
        return SslRequest()
    if code == GSSENC_REQUEST and length == 8:
        return GssRequest()
    if code == CANCEL_REQUEST:
        if not 12 < length <= 12 + MAX_CANCEL_KEY:
            raise ProtocolViolation(f"invalid length of cancel request packet: {length}")
        return CancelRequest(int.from_bytes(packet[8:12]), packet[12:])
    return _startup(code, packet[8:])


def _startup(version: int, body: bytes) -> StartupMessage:
    major, minor = version >> 16, version & 0xFFFF
    if major != 3:
        raise NotSupported(
            f"unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2",
            hint="is this a PostgreSQL client?",
        )
    pairs = body.split(b"\0")
    # A name, its value, another name ... and an empty name that ends the list.
    if len(pairs) < 2 or pairs[-1] or pairs[-2] or len(pairs) % 2:
        raise ProtocolViolation("invalid startup packet layout: expected terminator as last byte")
    texts = [decode(part) for part in pairs[:-2]]
    parameters: dict[str, str] = {}
    unknown = []
    for name, value in zip(texts[::2], texts[1::2], strict=True):
        if not name:
            raise ProtocolViolation("invalid startup packet layout: a parameter has no name")
        if name.startswith("_pq_."):
            unknown.append(name)
        else:
            parameters[name] = value
    newest = PROTOCOL_3_2 if minor >= 2 else PROTOCOL_3_0
    return StartupMessage(newest, parameters, version != newest or bool(unknown), tuple(unknown))


_OPTION = re.compile(r"(?:-c\s*|--)(?P<name>[A-Za-z_][\w.-]*)=(?P<value>(?:\\.|[^\\\s])*)")


def options(text: str) -> dict[str, str]:
    """The settings in the ``options`` parameter: ``-c name=value --name=value``, a backslash before a space
    that belongs to a value."""
    return {
        match["name"].replace("-", "_"): re.sub(r"\\(.)", r"\1", match["value"])
        for match in _OPTION.finditer(text)
    }
