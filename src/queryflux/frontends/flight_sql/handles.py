"""Opaque handles for what clients come back to: tickets, prepared statements, transactions.

A handle is 128 random bits and the tag of the process that made it. It belongs to one user and is forgotten
when it has not been used for a while; how many live, and how many bytes they hold, is bounded.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from queryflux.model.errors import AccessDenied, ProtocolViolation, QueryNotFound, Unavailable
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.ids import process_tag_of
from queryflux.runtime.clock import Clock

MAX_HANDLE_BYTES = 128

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """``most`` entries that hold ``most_bytes`` together, each forgotten after ``idle_secs`` without use."""

    most: int
    most_bytes: int
    idle_secs: float


@dataclass(slots=True)
class _Entry(Generic[T]):
    value: T
    owner: str
    size: int
    ends: float


class Handles(Generic[T]):
    """The live handles of one kind, the longest unused first."""

    def __init__(self, what: str, limits: Limits, clock: Clock, process_tag: str) -> None:
        """``what`` names them in messages."""
        self._what = what
        self._limits = limits
        self._clock = clock
        self._tag = process_tag
        self._live: OrderedDict[bytes, _Entry[T]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._live)

    def add(self, owner: VerifiedIdentity, value: T, size: int = 0) -> bytes:
        """A new handle. Raises Unavailable when there is no room for it."""
        limits = self._limits
        if len(self._live) >= limits.most or self._bytes + size > limits.most_bytes:
            raise self._full()
        handle = f"{secrets.token_urlsafe(16)}_{self._tag}".encode()
        self._live[handle] = _Entry(value, owner.user, size, self._clock.monotonic() + limits.idle_secs)
        self._bytes += size
        return handle

    def get(self, handle: bytes, owner: VerifiedIdentity) -> T:
        """What it stands for, and it lives on. Raises ProtocolViolation, QueryNotFound, AccessDenied."""
        entry = self._find(handle, owner)
        entry.ends = self._clock.monotonic() + self._limits.idle_secs
        self._live.move_to_end(handle)
        return entry.value

    def owned(self, owner: VerifiedIdentity) -> list[tuple[bytes, T]]:
        """The handles of one user, and what they stand for."""
        return [(handle, entry.value) for handle, entry in self._live.items() if entry.owner == owner.user]

    def grow(self, handle: bytes, owner: VerifiedIdentity, extra: int) -> None:
        """It holds ``extra`` more bytes from now on, or fewer. Raises as ``get``, and Unavailable when there
        is no room for them."""
        entry = self._find(handle, owner)
        if self._bytes + extra > self._limits.most_bytes and extra > 0:
            raise self._full()
        entry.size += extra
        self._bytes += extra

    def take(self, handle: bytes, owner: VerifiedIdentity) -> T:
        """What it stood for: it is used up. Raises as ``get``."""
        entry = self._find(handle, owner)
        self._drop(handle)
        return entry.value

    def expired(self, busy: Callable[[T], bool] = lambda _: False) -> list[T]:
        """Forget what has been idle too long, and say what it was. What is ``busy`` is not idle."""
        now = self._clock.monotonic()
        gone: list[T] = []
        while self._live:
            handle, entry = next(iter(self._live.items()))
            if entry.ends > now:
                break
            if busy(entry.value):
                entry.ends = now + self._limits.idle_secs
                self._live.move_to_end(handle)
                continue
            self._drop(handle)
            gone.append(entry.value)
        return gone

    def clear(self) -> list[T]:
        """Forget everything, and say what it was."""
        values = [entry.value for entry in self._live.values()]
        self._live.clear()
        self._bytes = 0
        return values

    def _drop(self, handle: bytes) -> None:
        self._bytes -= self._live.pop(handle).size

    def _find(self, handle: bytes, owner: VerifiedIdentity) -> _Entry[T]:
        entry = self._live.get(handle)
        if entry is None or entry.ends <= self._clock.monotonic():
            raise self._missing(handle)
        if entry.owner != owner.user:
            raise AccessDenied(f"the {self._what} belongs to another user")
        return entry

    def _full(self) -> Exception:
        return Unavailable(f"too many {self._what}s are open in this server", hint="use or close some")

    def _missing(self, handle: bytes) -> Exception:
        text = handle[:MAX_HANDLE_BYTES].decode(errors="replace")
        tag = process_tag_of(text)
        if len(handle) > MAX_HANDLE_BYTES or not tag:
            return ProtocolViolation(f"this is no {self._what} of ours")
        if tag != self._tag:
            return QueryNotFound(
                f"the {self._what} was made by another process",
                hint="send it where it came from, or begin again",
            )
        return QueryNotFound(
            f"the {self._what} is unknown, used or older than {self._limits.idle_secs:g} s",
            hint="begin again",
        )
