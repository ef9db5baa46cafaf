"""SCRAM-SHA-256 (RFC 5802, RFC 7677): verifiers, and the server half of an exchange.

There is no channel binding: a client may say that it has none (``n``) or that it would have liked it (``y``,
RFC 5802 section 6), and one that demands it (``p=``) is refused. A verifier has the form PostgreSQL stores in
pg_authid: ``SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>``.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field

from queryflux.auth.port import ScramExchange
from queryflux.model.errors import AuthenticationFailed
from queryflux.model.identity import VerifiedIdentity

ITERATIONS = 4096
SALT_BYTES = 16
MAX_MESSAGE = 4096
MAX_ITERATIONS = 1_000_000

_PREFIX = "SCRAM-SHA-256$"
_NONCE = re.compile(rb"[\x21-\x2b\x2d-\x7e]{1,512}")
_REFUSED = "user name or password is wrong"


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a password (RFC 5802 section 3)."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def derive(cls, password: str, salt: bytes, iterations: int = ITERATIONS) -> "ScramKeys":
        """The keys of a password: one PBKDF2, 1 to 2 ms at 4096 iterations."""
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        return cls(salt, iterations, hashlib.sha256(client_key).digest(), server_key)

    @classmethod
    def parse(cls, verifier: str) -> "ScramKeys":
        """Read PostgreSQL's text form. Raises ValueError, without showing the verifier."""
        head, _, keys = verifier.removeprefix(_PREFIX).partition("$")
        count, _, salt = head.partition(":")
        stored, _, server = keys.partition(":")
        try:
            parts = [base64.b64decode(part, validate=True) for part in (salt, stored, server)]
        except (binascii.Error, ValueError):
            raise ValueError("a part of the SCRAM verifier is not base64") from None
        if not count.isascii() or not count.isdigit() or not 1 <= int(count[:8]) <= MAX_ITERATIONS:
            raise ValueError(f"the SCRAM verifier's iteration count is not from 1 to {MAX_ITERATIONS}")
        if not parts[0] or len(parts[1]) != 32 or len(parts[2]) != 32:
            raise ValueError("the SCRAM verifier's salt is empty or its keys are not 32 bytes long")
        return cls(parts[0], int(count), parts[1], parts[2])

    def text(self) -> str:
        """PostgreSQL's text form."""
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{_PREFIX}{self.iterations}:{salt}${stored}:{server}"

    def accepts(self, password: str) -> bool:
        """Whether a password that travelled as such is the one: one PBKDF2."""
        derived = ScramKeys.derive(password, self.salt, self.iterations)
        return hmac.compare_digest(derived.stored_key, self.stored_key)


def scram_verifier(password: str, iterations: int = ITERATIONS) -> str:
    """A new verifier for a configuration file, with a random salt."""
    return ScramKeys.derive(password, secrets.token_bytes(SALT_BYTES), iterations).text()


def prepared(password: str) -> bytes:
    """The password as SCRAM hashes it: SASLprep (RFC 4013), or its plain UTF-8 where SASLprep refuses it,
    which is what PostgreSQL's client and server do."""
    if password.isascii():
        return password.encode()
    try:
        return saslprep(password).encode()
    except ValueError:
        return password.encode()


_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str:
    """RFC 4013 for a stored string. Raises ValueError for what it prohibits."""
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if not normal or any(banned(char) for char in normal for banned in _PROHIBITED):
        raise ValueError("the text holds characters that SASLprep prohibits")
    if any(stringprep.in_table_d1(char) for char in normal):
        # Text that runs right to left starts and ends so, and holds nothing that runs the other way.
        ends = stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])
        if not ends or any(stringprep.in_table_d2(char) for char in normal):
            raise ValueError("the text mixes writing directions")
    return normal


class ScramServer(ScramExchange):
    """One exchange. ``find_keys`` is asked only when the proof arrives, since it may cost a PBKDF2."""

    __slots__ = ("_bare", "_find_keys", "_first", "_gs2", "_identity", "_nonce", "_salt", "_step", "_times")

    def __init__(
        self,
        salt: bytes,
        iterations: int,
        find_keys: Callable[[], ScramKeys],
        identity: VerifiedIdentity | None,
    ) -> None:
        """``identity`` None: an unknown user, who fails at the end."""
        self._salt = salt
        self._times = iterations
        self._find_keys = find_keys
        self._identity = identity
        self._step = "first"
        self._bare = self._first = self._gs2 = self._nonce = b""

    def first(self, client_first: bytes) -> bytes:
        """RFC 5802 section 7, client-first-message to server-first-message."""
        self._advance("first", "final", client_first)
        flag, _, rest = client_first.partition(b",")
        authzid, _, bare = rest.partition(b",")
        if flag.startswith(b"p="):
            raise AuthenticationFailed(
                "SCRAM with channel binding is not offered", hint="connect with channel_binding=prefer"
            )
        if flag not in (b"n", b"y") or authzid:
            raise AuthenticationFailed("malformed SCRAM message: unexpected header")
        attributes = bare.split(b",")
        if len(attributes) < 2 or attributes[0][:2] != b"n=" or attributes[1][:2] != b"r=":
            raise AuthenticationFailed("malformed SCRAM message: user name and nonce expected")
        client_nonce = attributes[1][2:]
        if not _NONCE.fullmatch(client_nonce):
            raise AuthenticationFailed("malformed SCRAM message: unusable nonce")
        self._gs2 = flag + b",,"
        self._bare = bare
        self._nonce = client_nonce + secrets.token_urlsafe(24).encode()
        salt = base64.b64encode(self._salt)
        self._first = b"r=%b,s=%b,i=%d" % (self._nonce, salt, self._times)
        return self._first

    def final(self, client_final: bytes) -> tuple[bytes, VerifiedIdentity]:
        """RFC 5802 section 7, client-final-message to server-final-message."""
        self._advance("final", "done", client_final)
        without_proof, _, proof_text = client_final.rpartition(b",p=")
        attributes = without_proof.split(b",")
        if len(attributes) < 2 or attributes[0] != b"c=" + base64.b64encode(self._gs2):
            raise AuthenticationFailed("malformed SCRAM message: channel binding does not match")
        if not hmac.compare_digest(attributes[1], b"r=" + self._nonce):
            raise AuthenticationFailed("malformed SCRAM message: nonce does not match")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except (binascii.Error, ValueError):
            proof = b""
        if len(proof) != 32:
            raise AuthenticationFailed("malformed SCRAM message: unusable proof")
        keys = self._find_keys()
        message = b",".join((self._bare, self._first, without_proof))
        signature = hmac.digest(keys.stored_key, message, "sha256")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        right = hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)
        if not right or self._identity is None:
            raise AuthenticationFailed(_REFUSED)
        return b"v=" + base64.b64encode(hmac.digest(keys.server_key, message, "sha256")), self._identity

    def _advance(self, expected: str, to: str, message: bytes) -> None:
        if self._step != expected or len(message) > MAX_MESSAGE:
            self._step = "done"
            raise AuthenticationFailed("SCRAM message out of place or too long")
        self._step = to
