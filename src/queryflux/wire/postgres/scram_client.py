"""The client's half of SCRAM-SHA-256 as PostgreSQL uses it (RFC 5802 and 7677; manual, "SASL").

Without channel binding; the user name is the one of the start-up packet, so it stays empty here.
"""

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from collections.abc import MutableMapping

from queryflux.model.errors import AuthenticationFailed, ProtocolViolation
from queryflux.model.secret import Secret

MAX_ITERATIONS = 1_000_000
"""Iterations we are ready to compute for a server: the work is ours, the number is the server's."""
MAX_MESSAGE = 4096
"""Longest server-first or server-final message, in bytes."""
_HEADER = b"n,,"

SaltedKeys = MutableMapping[tuple[bytes, int], bytes]
"""Salted passwords by salt and iterations, kept between connections: they take milliseconds to compute."""


def prepared(password: str) -> bytes:
    """SASLprep (RFC 4013); as in PostgreSQL a password that it refuses is used as it is."""
    if password.isascii():
        return password.encode()
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in password
        if not stringprep.in_table_b1(char)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if not normal or any(_prohibited(char) for char in normal) or not _bidi_ok(normal):
        return password.encode()
    return normal.encode()


def _prohibited(char: str) -> bool:
    return (
        stringprep.in_table_a1(char)
        or stringprep.in_table_c12(char)
        or stringprep.in_table_c21_c22(char)
        or stringprep.in_table_c3(char)
        or stringprep.in_table_c4(char)
        or stringprep.in_table_c5(char)
        or stringprep.in_table_c6(char)
        or stringprep.in_table_c7(char)
        or stringprep.in_table_c8(char)
        or stringprep.in_table_c9(char)
    )


def _bidi_ok(text: str) -> bool:
    if not any(stringprep.in_table_d1(char) for char in text):
        return True
    ends = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    return ends and not any(stringprep.in_table_d2(char) for char in text)


def _attributes(message: bytes) -> dict[str, str]:
    if len(message) > MAX_MESSAGE:
        raise ProtocolViolation("the server's SCRAM message is too long")
    try:
        parts = message.decode("ascii").split(",")
    except UnicodeDecodeError:
        raise ProtocolViolation("the server's SCRAM message is not ASCII") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolViolation("the server's SCRAM message holds broken base64") from None


class ScramClient:
    """One exchange: ``first``, then ``final``, then ``verify``."""

    def __init__(self, password: Secret, nonce: str, keys: SaltedKeys | None = None) -> None:
        """``nonce`` is random, printable ASCII without a comma."""
        self._password = password
        self._nonce = nonce
        self._keys: SaltedKeys = {} if keys is None else keys
        self._bare = f"n=,r={nonce}".encode()
        self._signature = b""

    def first(self) -> bytes:
        """The client-first message."""
        return _HEADER + self._bare

    def final(self, server_first: bytes) -> bytes:
        """The client-final message. Raises ProtocolViolation, AuthenticationFailed."""
        fields = _attributes(server_first)
        nonce, salt_text, count = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if "m" in fields or not salt_text or not (count.isdecimal() and len(count) < 10):
            raise ProtocolViolation("the server's first SCRAM message is not what RFC 5802 says")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the server's SCRAM nonce does not continue ours")
        iterations = int(count)
        if not 1 <= iterations <= MAX_ITERATIONS:
            raise ProtocolViolation(f"the server asks for {iterations} SCRAM iterations")
        salted = self._salted(_base64(salt_text), iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = b"c=" + base64.b64encode(_HEADER) + b",r=" + nonce.encode()
        message = b",".join((self._bare, server_first, without_proof))
        stored = hashlib.sha256(client_key).digest()
        signature = hmac.digest(stored, message, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), message, "sha256")
        return without_proof + b",p=" + base64.b64encode(proof)

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password too. Raises AuthenticationFailed."""
        fields = _attributes(server_final)
        if "e" in fields:
            raise AuthenticationFailed("the server refused the SCRAM exchange")
        if not self._signature or not hmac.compare_digest(_base64(fields.get("v", "")), self._signature):
            raise AuthenticationFailed("the server could not prove that it knows the password")

    def _salted(self, salt: bytes, iterations: int) -> bytes:
        found = self._keys.get((salt, iterations))
        if found is None:
            password = prepared(self._password.reveal())
            found = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
            self._keys[salt, iterations] = found
        return found
