"""Capacity between workers and control planes: leases, counts, and the lock of a sweep.

Messages grow by fields with defaults and never change the meaning of one; what a reader does not know it
passes over. The worker says who it is in a header, so no message names an instance.
"""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from queryflux.model.errors import InvalidRequest

MOST_LEASES = 5_000
"""Most leases in one message; who has more sends several."""
MAX_BODY_BYTES = 4 * 1024 * 1024
FIVE_MINUTES = 300.0
"""A sweep lock that is never given back is free after this time; no sweep rests longer at a worker's word."""

Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*\Z")]
"""Without NUL characters, which PostgreSQL does not store."""
Limit = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Ids = Annotated[tuple[Name, ...], Meta(max_length=MOST_LEASES)]


class Acquire(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """POST acquire: one lease."""

    cluster: Name
    query_id: Name
    limit: Limit


class Granted(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The answer to Acquire."""

    granted: bool


class WantedLease(Struct, frozen=True, rename="camel", gc=False):
    """One of a group."""

    query_id: Name
    limit: Limit


class AcquireBatch(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """POST acquire-batch: release ``released`` on ``cluster``, then take leases in order."""

    cluster: Name
    wanted: Annotated[tuple[WantedLease, ...], Meta(min_length=1, max_length=MOST_LEASES)]
    released: Ids = ()


class GrantedBatch(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The answer to AcquireBatch: one for each of ``wanted``."""

    granted: tuple[bool, ...]


class HeldLease(Struct, frozen=True, rename="camel", gc=False):
    """A query's place on a cluster."""

    cluster: Name
    query_id: Name


class Leases(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """POST renew, and POST release-batch."""

    leases: Annotated[tuple[HeldLease, ...], Meta(max_length=MOST_LEASES)]


class Held(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The answer to a renewal: query ids of those that are still held."""

    held: tuple[str, ...]


class Released(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The answer to POST release-all: how many there were."""

    released: int


class Counts(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The answer to GET counts, by cluster: leases out, and queries that the engine says it runs."""

    leases: Mapping[str, int] = {}
    running: Mapping[str, int] = {}


class Running(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """POST running: what the engine of a cluster says it runs."""

    cluster: Name
    running: Limit


class SweepLock(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """POST sweep-lock/acquire."""

    name: Name
    hold_secs: Annotated[float, Meta(gt=0)] = FIVE_MINUTES


class SweepToken(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The answer to it; no token while somebody has the sweep, or while it is not due."""

    token: str | None = None


class SweepUnlock(Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """POST sweep-lock/release."""

    name: Name
    token: Name
    rest_secs: Annotated[float, Meta(ge=0)] = 0.0


Message = TypeVar("Message", bound=Struct)
_DECODERS: dict[type[Struct], "msgspec.json.Decoder[Struct]"] = {}
encode = msgspec.json.Encoder().encode


def decode(kind: type[Message], body: bytes) -> Message:
    """Read a message. Raises InvalidRequest."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        message = decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"this is no {kind.__name__} message: {error}") from error
    assert isinstance(message, kind)
    return message
