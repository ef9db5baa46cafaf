"""Who connects: the greeting, the client's answer, and the messages of authentication.

Sources: MySQL internals manual, "Connection Phase" (Protocol::HandshakeV10, HandshakeResponse41, SSLRequest,
AuthSwitchRequest, AuthMoreData, COM_CHANGE_USER), and "caching_sha2_password information".
"""

import secrets
from dataclasses import dataclass, field
from enum import IntEnum

from queryflux.wire.mysql.constants import (
    NONCE_BYTES,
    OFFERED,
    PROTOCOL_VERSION,
    SERVER_VERSION,
    UTF8MB4,
    Capability,
    ServerStatus,
)
from queryflux.wire.mysql.lenenc import Cursor

CACHING_SHA2 = "caching_sha2_password"
NATIVE_PASSWORD = "mysql_native_password"  # noqa: S105
CLEAR_PASSWORD = "mysql_clear_password"  # noqa: S105 (the plugin's name)
_FILLER = 23
_MOST_ATTRIBUTES = 256


class Sha2Step(IntEnum):
    """The single bytes that caching_sha2_password sends."""

    REQUEST_PUBLIC_KEY = 2
    FAST_SUCCESS = 3
    FULL_AUTHENTICATION = 4


@dataclass(frozen=True, slots=True)
class SslRequest:
    """The client goes on under TLS and then sends its response."""

    capabilities: Capability


@dataclass(frozen=True, slots=True)
class Login:
    """Who the client says it is: a HandshakeResponse41 or a COM_CHANGE_USER. ``proof`` is what its plugin
    made of the password and our nonce; ``plugin`` is empty when it named none."""

    capabilities: Capability
    collation: int
    user: str
    proof: bytes = field(repr=False)
    database: str = ""
    plugin: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


def new_nonce() -> bytes:
    """Twenty random bytes that are neither NUL, which ends a string, nor beyond ASCII."""
    return bytes(secrets.randbelow(127) + 1 for _ in range(NONCE_BYTES))


def greeting(connection_id: int, nonce: bytes, *, tls: bool) -> bytes:
    """HandshakeV10. ``tls``: whether the client may ask for TLS."""
    capabilities = OFFERED | Capability.SSL if tls else OFFERED
    return b"".join(
        (
            bytes((PROTOCOL_VERSION,)),
            SERVER_VERSION.encode() + b"\0",
            connection_id.to_bytes(4, "little"),
            nonce[:8] + b"\0",
            (capabilities & 0xFFFF).to_bytes(2, "little"),
            bytes((UTF8MB4,)),
            ServerStatus.AUTOCOMMIT.to_bytes(2, "little"),
            (capabilities >> 16).to_bytes(2, "little"),
            bytes((NONCE_BYTES + 1,)) + bytes(10),
            nonce[8:] + b"\0",
            CACHING_SHA2.encode() + b"\0",
        )
    )


def auth_switch(plugin: str, nonce: bytes) -> bytes:
    """AuthSwitchRequest: begin again with another plugin."""
    return b"\xfe" + plugin.encode() + b"\0" + nonce + b"\0"


def auth_more(data: bytes) -> bytes:
    """AuthMoreData: a plugin's own message."""
    return b"\x01" + data


def read_response(payload: bytes, *, tls: bool) -> SslRequest | Login:
    """The client's answer to the greeting. ``tls``: TLS is offered and not on yet.

    Raises ProtocolViolation, also for a client older than MySQL 4.1.
    """
    cursor = Cursor(payload, "handshake response")
    low = cursor.fixed(2)
    if not low & Capability.PROTOCOL_41:
        raise cursor.broken("the client speaks a protocol older than MySQL 4.1")
    offered = OFFERED | Capability.SSL if tls else OFFERED
    capabilities = Capability((low | cursor.fixed(2) << 16) & offered)
    cursor.take(4)
    collation = cursor.fixed(1)
    cursor.take(_FILLER)
    if capabilities & Capability.SSL and not cursor.left:
        return SslRequest(capabilities)
    user = cursor.text(cursor.until_nul(), "user name")
    proof = _proof(cursor, capabilities)
    database, plugin = "", ""
    if capabilities & Capability.CONNECT_WITH_DB and cursor.left:
        database = cursor.text(cursor.until_nul(), "database name")
    if capabilities & Capability.PLUGIN_AUTH and cursor.left:
        plugin = cursor.text(cursor.until_nul(), "plugin name")
    return Login(capabilities, collation, user, proof, database, plugin, _attributes(cursor, capabilities))


def read_change_user(payload: bytes, capabilities: Capability) -> Login:
    """COM_CHANGE_USER, its command byte included, from a client of ``capabilities``. Raises
    ProtocolViolation."""
    cursor = Cursor(payload, "change of user", 1)
    user = cursor.text(cursor.until_nul(), "user name")
    proof = cursor.take(cursor.fixed(1))
    database = cursor.text(cursor.until_nul(), "database name")
    collation = cursor.fixed(2) if cursor.left else UTF8MB4
    plugin = ""
    if capabilities & Capability.PLUGIN_AUTH and cursor.left:
        plugin = cursor.text(cursor.until_nul(), "plugin name")
    return Login(capabilities, collation, user, proof, database, plugin, _attributes(cursor, capabilities))


def _proof(cursor: Cursor, capabilities: Capability) -> bytes:
    if capabilities & Capability.PLUGIN_AUTH_LENENC_DATA:
        return cursor.lenenc()
    if capabilities & Capability.SECURE_CONNECTION:
        return cursor.take(cursor.fixed(1))
    return cursor.until_nul()


def _attributes(cursor: Cursor, capabilities: Capability) -> dict[str, str]:
    """Connection attributes, such as ``program_name``. What is over the limit is passed over."""
    if not capabilities & Capability.CONNECT_ATTRS or not cursor.left:
        return {}
    inner = Cursor(cursor.lenenc(), "list of connection attributes")
    found: dict[str, str] = {}
    while inner.left and len(found) < _MOST_ATTRIBUTES:
        name = inner.text(inner.lenenc(), "attribute name")
        found[name] = inner.text(inner.lenenc(), "attribute value")
    return found


def unmask(data: bytes, nonce: bytes) -> bytes:
    """Undo the XOR with the repeated nonce that a client applies before it encrypts with our key."""
    return bytes(byte ^ nonce[index % len(nonce)] for index, byte in enumerate(data))
