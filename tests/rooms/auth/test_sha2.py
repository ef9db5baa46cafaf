"""caching_sha2_password against hashes made by others."""

import hashlib
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.auth.sha2 import Sha2Hash, caching_sha2_hash, double_digest, scramble_matches, sha_crypt

# A hash that a MySQL-compatible server stored for "foobar".
FOOBAR = (
    "0x24412430303524031A69251C34295C4B35167C7F1E5A7B63091349503974624D"
    "34504B5A424679354856336868686F52485A736E4A733368786E427575516C73446469496537"
)


def client_scramble(password: bytes, nonce: bytes) -> bytes:
    """What a client computes, from MySQL's description of the plugin."""
    once = hashlib.sha256(password).digest()
    mask = hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


@pytest.mark.parametrize(
    ("password", "salt", "rounds", "digest"),
    [
        ("Hello world!", "saltstring", 5000, "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"),
        ("Hello world!", "saltstringsaltst", 10000, "3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA"),
    ],
)
def test_the_examples_of_the_sha_crypt_description(
    password: str, salt: str, rounds: int, digest: str
) -> None:
    made = sha_crypt(password.encode(), salt.encode(), rounds).decode()
    assert made == digest


def test_a_hash_of_a_real_server() -> None:
    stored = Sha2Hash.parse(FOOBAR)
    assert stored.rounds == 5000
    assert stored.accepts(b"foobar")
    assert not stored.accepts(b"foobaz")


def test_plain_and_hex_forms_are_the_same() -> None:
    plain = caching_sha2_hash("s3cret")
    assert plain.startswith("$A$005$")
    assert len(plain) == 70
    assert Sha2Hash.parse(plain) == Sha2Hash.parse("0x" + plain.encode().hex())
    assert Sha2Hash.parse(plain).accepts(b"s3cret")


@pytest.mark.parametrize(
    "text", ["$A$005$", "$A$000$" + "s" * 20 + "d" * 43, "0x2441zz", "$A$005$" + "s" * 62, "$A$ü\u1234"]
)
def test_a_hash_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="caching_sha2_password"):
        Sha2Hash.parse(text)


@given(st.binary(max_size=80))
def test_the_fast_path(password: bytes) -> None:
    nonce = secrets.token_bytes(20)
    digest = double_digest(password)
    scramble = client_scramble(password, nonce)
    assert scramble_matches(scramble, nonce, digest)
    assert not scramble_matches(scramble, nonce[::-1] + b"x", digest)
    assert not scramble_matches(scramble[:-1], nonce, digest)
    assert not scramble_matches(client_scramble(password + b"x", nonce), nonce, digest)
