"""What ``password`` of a static user may hold, and what each form can prove.

| stored as | cleartext password | SCRAM-SHA-256 | caching_sha2 fast path |
|---|---|---|---|
| plain text | yes | yes | yes |
| bcrypt | yes | no | once a full login has been seen |
| ``SCRAM-SHA-256$`` verifier | yes | yes | once a full login has been seen |
| caching_sha2_password hash | yes | no | once a full login has been seen |
"""

import hmac
import re
import secrets
from abc import ABC, abstractmethod

import bcrypt

from queryflux.auth.port import Methods
from queryflux.auth.scram import ITERATIONS, SALT_BYTES, ScramKeys
from queryflux.auth.sha2 import Sha2Hash, double_digest
from queryflux.model.secret import Secret

MAX_PASSWORD_BYTES = 1024
BCRYPT_BYTES = 72
BCRYPT_ROUNDS = 12

_BCRYPT = re.compile(r"\$2[abxy]\$(\d\d)\$[./0-9A-Za-z]{53}")
_BCRYPT_LIKE = re.compile(r"\$2[abxy]?\$")


class StoredPassword(ABC):
    """One user's stored password."""

    methods: Methods
    slow = True
    """Whether ``accepts`` takes milliseconds and belongs on a thread."""
    salt: bytes = b""
    iterations: int = ITERATIONS
    """What SCRAM tells the client; of no meaning where SCRAM is not offered."""

    @abstractmethod
    def accepts(self, password: bytes) -> bool:
        """Whether this is the password."""

    @abstractmethod
    def decoy(self, salt: bytes) -> "StoredPassword":
        """The same kind, at the same cost, for a user who does not exist: accepts nothing."""

    def keys(self) -> ScramKeys:
        """The SCRAM keys. Raises NotImplementedError where SCRAM is not offered."""
        raise NotImplementedError

    def digest(self) -> bytes | None:
        """The ``double_digest``, where it is known from the start."""
        return None


class PlainPassword(StoredPassword):
    """The password itself; SCRAM keys are derived when first asked for."""

    methods = Methods(scram=True, caching_sha2=True, password=True)
    slow = False

    def __init__(self, password: str, salt: bytes | None = None) -> None:
        self._password = Secret(password)
        self._double: bytes | None = None
        self._keys: ScramKeys | None = None
        self.salt = salt or secrets.token_bytes(SALT_BYTES)

    def accepts(self, password: bytes) -> bool:
        return hmac.compare_digest(self._password.reveal().encode(), password)

    def decoy(self, salt: bytes) -> StoredPassword:
        return PlainPassword(secrets.token_urlsafe(16), salt)

    def keys(self) -> ScramKeys:
        if self._keys is None:
            self._keys = ScramKeys.derive(self._password.reveal(), self.salt)
        return self._keys

    def digest(self) -> bytes | None:
        if self._double is None:
            self._double = double_digest(self._password.reveal().encode())
        return self._double


class BcryptPassword(StoredPassword):
    """A bcrypt hash, which looks at 72 bytes of a password and no further."""

    methods = Methods(caching_sha2=True, password=True)

    def __init__(self, stored: str) -> None:
        self._stored = Secret(stored)

    def accepts(self, password: bytes) -> bool:
        return bcrypt.checkpw(password[:BCRYPT_BYTES], self._stored.reveal().encode())

    def decoy(self, salt: bytes) -> StoredPassword:
        # A well-formed hash of nothing: 53 dots after the same cost.
        head = self._stored.reveal()[:7]
        return BcryptPassword(head + "." * 53)


class ScramPassword(StoredPassword):
    """A PostgreSQL SCRAM-SHA-256 verifier."""

    methods = Methods(scram=True, caching_sha2=True, password=True)

    def __init__(self, keys: ScramKeys) -> None:
        self._keys = keys
        self.salt = keys.salt
        self.iterations = keys.iterations

    def accepts(self, password: bytes) -> bool:
        return self._keys.accepts(password.decode(errors="surrogateescape"))

    def decoy(self, salt: bytes) -> StoredPassword:
        nothing = secrets.token_bytes(32)
        return ScramPassword(ScramKeys(salt[: len(self.salt)], self.iterations, nothing, nothing))

    def keys(self) -> ScramKeys:
        return self._keys


class Sha2Password(StoredPassword):
    """A MySQL caching_sha2_password hash."""

    methods = Methods(caching_sha2=True, password=True)

    def __init__(self, stored: Sha2Hash) -> None:
        self._stored = stored

    def accepts(self, password: bytes) -> bool:
        return self._stored.accepts(password)

    def decoy(self, salt: bytes) -> StoredPassword:
        return Sha2Password(Sha2Hash(self._stored.rounds, salt[:20].ljust(20, b"."), b"-" * 43))


def parse_password(stored: str) -> StoredPassword:
    """Tell the form from its first characters. Raises ValueError saying what is wrong, never the value."""
    if not stored:
        raise ValueError("the password is empty")
    if stored.startswith("SCRAM-SHA-256$"):
        return ScramPassword(ScramKeys.parse(stored))
    if stored.startswith("$A$") or stored[:6].lower() == "0x2441":
        return Sha2Password(Sha2Hash.parse(stored))
    if _BCRYPT_LIKE.match(stored):
        match = _BCRYPT.fullmatch(stored)
        if match is None or not 4 <= int(match[1]) <= 31:
            raise ValueError("a bcrypt hash is $2b$, a cost of two digits (04 to 31), $, and 53 characters")
        return BcryptPassword(stored)
    if len(stored.encode()) > MAX_PASSWORD_BYTES:
        raise ValueError(f"the password is longer than {MAX_PASSWORD_BYTES} bytes")
    return PlainPassword(stored)


def bcrypt_hash(password: str, rounds: int = BCRYPT_ROUNDS) -> str:
    """A new bcrypt hash for a configuration file. Raises ValueError when it is over 72 bytes."""
    raw = password.encode()
    if len(raw) > BCRYPT_BYTES:
        raise ValueError(
            f"bcrypt looks at {BCRYPT_BYTES} bytes and this password has {len(raw)}: use another form"
        )
    return bcrypt.hashpw(raw, bcrypt.gensalt(rounds)).decode()
