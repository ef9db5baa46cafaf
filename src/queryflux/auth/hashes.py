"""Stored passwords from the outside: making one, and telling whether one can be used."""

from collections.abc import Callable

from queryflux.auth.passwords import bcrypt_hash, parse_password
from queryflux.auth.scram import scram_verifier
from queryflux.auth.sha2 import caching_sha2_hash

HASHES: dict[str, Callable[[str], str]] = {
    "scram": scram_verifier,
    "sha2": caching_sha2_hash,
    "bcrypt": bcrypt_hash,
}
"""What ``queryflux hash-password --kind`` makes. Each raises ValueError for a password it cannot take."""


def check_password(stored: str) -> str | None:
    """What is wrong with a stored password, never showing it; None when nothing is."""
    try:
        parse_password(stored)
    except ValueError as error:
        return str(error)
    return None
