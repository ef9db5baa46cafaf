"""MySQL's caching_sha2_password: the stored hash and the scramble of the fast path.

The stored form is ``$A$<thousands of rounds, three hex digits>$<20 bytes of salt><43 characters>``; behind it
is SHA-crypt with SHA-256 (Drepper, "Unix crypt using SHA-256 and SHA-512"), with a salt of 20 bytes where
crypt(3) stops at 16. The salt is binary, so that a hash is often written as hex: ``0x2441...``.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

ROUNDS = 5000
NONCE_BYTES = 20
SCRAMBLE_BYTES = 32

_PREFIX = b"$A$"
_STORED = re.compile(rb"\$A\$([0-9A-Fa-f]{3})\$([\x01-\xff]{20})([./0-9A-Za-z]{43})", re.DOTALL)
_ALPHABET = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SALT_ALPHABET = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# The order in which SHA-crypt takes the 32 digest bytes, three at a time.
_ORDER = [
    (0, 10, 20),
    (21, 1, 11),
    (12, 22, 2),
    (3, 13, 23),
    (24, 4, 14),
    (15, 25, 5),
    (6, 16, 26),
    (27, 7, 17),
    (18, 28, 8),
    (9, 19, 29),
]


@dataclass(frozen=True, slots=True)
class Sha2Hash:
    """A stored caching_sha2_password hash."""

    rounds: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def parse(cls, stored: str) -> "Sha2Hash":
        """Read the plain or the hex form. Raises ValueError, without showing the hash."""
        try:
            raw = bytes.fromhex(stored[2:]) if stored[:2].lower() == "0x" else stored.encode("latin-1")
        except ValueError:
            raise ValueError("the caching_sha2_password hash is neither plain nor hex") from None
        match = _STORED.fullmatch(raw)
        if match is None or int(match[1], 16) == 0:
            raise ValueError(
                "a caching_sha2_password hash is $A$, three hex digits, $, 20 bytes of salt and 43 characters"
            )
        return cls(int(match[1], 16) * 1000, match[2], match[3])

    def accepts(self, password: bytes) -> bool:
        """Whether a password that travelled as such is the one: 5 ms or so at 5000 rounds."""
        return hmac.compare_digest(sha_crypt(password, self.salt, self.rounds), self.digest)


def caching_sha2_hash(password: str) -> str:
    """A new hash for a configuration file, with a random printable salt."""
    salt = bytes(secrets.choice(_SALT_ALPHABET) for _ in range(NONCE_BYTES))
    digest = sha_crypt(password.encode(), salt, ROUNDS)
    return (b"%b%03X$%b%b" % (_PREFIX, ROUNDS // 1000, salt, digest)).decode()


def double_digest(password: bytes) -> bytes:
    """SHA256(SHA256(password)): what a server caches for the fast path."""
    return hashlib.sha256(hashlib.sha256(password).digest()).digest()


def scramble_matches(scramble: bytes, nonce: bytes, digest: bytes) -> bool:
    """Check a client's SHA256(pw) XOR SHA256(SHA256(SHA256(pw)) || nonce) against the ``double_digest``."""
    if len(scramble) != SCRAMBLE_BYTES:
        return False
    mask = hashlib.sha256(digest + nonce).digest()
    once = bytes(a ^ b for a, b in zip(scramble, mask, strict=True))
    return hmac.compare_digest(hashlib.sha256(once).digest(), digest)


def sha_crypt(password: bytes, salt: bytes, rounds: int) -> bytes:
    """The 43 characters of SHA-crypt with SHA-256, steps 1 to 22 of its description."""
    sha256 = hashlib.sha256
    length = len(password)
    alternate = sha256(password + salt + password).digest()
    start = password + salt + _repeat(alternate, length)
    bits = length
    while bits:
        start += alternate if bits & 1 else password
        bits >>= 1
    state = sha256(start).digest()
    word = _repeat(sha256(password * length).digest(), length)
    grain = _repeat(sha256(salt * (16 + state[0])).digest(), len(salt))
    for index in range(rounds):
        odd = index & 1
        middle = (grain if index % 3 else b"") + (word if index % 7 else b"")
        state = sha256((word if odd else state) + middle + (state if odd else word)).digest()
    return _encode(state)


def _repeat(block: bytes, length: int) -> bytes:
    return (block * (length // len(block) + 1))[:length]


def _encode(digest: bytes) -> bytes:
    out = bytearray()
    for high, middle, low in _ORDER:
        value = digest[high] << 16 | digest[middle] << 8 | digest[low]
        for _ in range(4):
            out.append(_ALPHABET[value & 63])
            value >>= 6
    value = digest[31] << 8 | digest[30]
    for _ in range(3):
        out.append(_ALPHABET[value & 63])
        value >>= 6
    return bytes(out)
