"""Messages of a server that are passed on: looked into, or changed in a place or two."""

import struct
from collections.abc import Iterator, Sequence

from queryflux.wire.postgres.constants import Back
from queryflux.wire.postgres.messages import FIELD, expand, message

_SHORT = struct.Struct("!H")
_ROWS = bytes((Back.ROW_DESCRIPTION,))
_ASIDE = frozenset(bytes((kind,)) for kind in (Back.NOTICE, Back.PARAMETER_STATUS, Back.NOTIFICATION))
_FIRST_OF_USERS = 16_384
"""Types from this number on are made by users (FirstNormalObjectId): another server numbers them anew."""


def with_formats(description: bytes, formats: Sequence[int]) -> bytes:
    """A RowDescription message, as a server wrote it, with other format codes (expanded by rule of Bind)."""
    changed = bytearray(description)
    (count,) = _SHORT.unpack_from(changed, 5)
    at = 7
    for code in expand(formats, count):
        at = changed.index(0, at) + 1 + FIELD.size
        _SHORT.pack_into(changed, at - 2, code)
    return bytes(changed)


def described_columns(description: bytes) -> Iterator[tuple[bytes, int]]:
    """Name and type of each column in a RowDescription message; none in NoData."""
    if description[:1] != _ROWS:
        return
    at = 7
    for _ in range(_SHORT.unpack_from(description, 5)[0]):
        end = description.index(0, at)
        yield description[at:end], FIELD.unpack_from(description, end + 1)[2]
        at = end + 1 + FIELD.size


def first_description(frame: bytes) -> bytes:
    """The RowDescription that whole messages begin with, notices aside; empty when there is none."""
    at = 0
    while frame[at : at + 1] in _ASIDE:
        at += 1 + int.from_bytes(frame[at + 1 : at + 5])
    return frame[at : at + 1 + int.from_bytes(frame[at + 1 : at + 5])] if frame[at : at + 1] == _ROWS else b""


def same_columns(one: bytes, other: bytes) -> bool:
    """Whether two RowDescription messages tell of the same names and types, in whatever format and from
    whatever table."""
    return one == other or list(map(_comparable, described_columns(one))) == list(
        map(_comparable, described_columns(other))
    )


def _comparable(column: tuple[bytes, int]) -> tuple[bytes, int]:
    name, oid = column
    return name, min(oid, _FIRST_OF_USERS)


def shift_positions(frame: bytes, offset: int) -> bytes:
    """Whole messages of a server, with the position of every error moved by ``offset`` characters."""
    at, parts = 0, []
    while at < len(frame):
        end = at + 1 + int.from_bytes(frame[at + 1 : at + 5])
        if frame[at] == Back.ERROR:
            fields = frame[at + 5 : end - 1].split(b"\0")
            moved = [
                b"P%d" % (int(f[1:]) + offset) if f[:1] == b"P" and f[1:].isdigit() else f for f in fields
            ]
            parts.append(message(Back.ERROR, b"\0".join(moved) + b"\0"))
        else:
            parts.append(frame[at:end])
        at = end
    return b"".join(parts)


def described_oids(description: bytes) -> tuple[int, ...]:
    """The types in a ParameterDescription message as a server wrote it."""
    (count,) = _SHORT.unpack_from(description, 5)
    return struct.unpack_from(f"!{count}I", description, 7)
