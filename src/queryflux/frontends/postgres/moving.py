"""MOVE over a client's own portal: the server, which knows it by another name if at all, cannot be asked."""

import asyncio
import re

from queryflux.frontends.postgres.outbox import Bytes, Outbox
from queryflux.wire.postgres.constants import Back

_MOVE = re.compile(
    r"\s*move\s+(?:forward\s+)?(?P<count>[1-9][0-9]{0,8}|(?:forward\s+)?all)\s+(?:(?:from|in)\s+)?"
    r'(?P<name>"(?:[^"]|"")+"|[a-z_][\w$]*)\s*;?\s*',
    re.IGNORECASE,
)
PIECE_ROWS = 2_000
"""Rows that are counted one by one before others have their turn: less than a millisecond."""
_PASSED = frozenset((Back.ERROR, Back.NOTICE, Back.PARAMETER_STATUS, Back.NOTIFICATION))


def move_of(text: str) -> tuple[str, int] | None:
    """Name and number of rows (0: all) of a MOVE forward; None for any other text."""
    found = _MOVE.fullmatch(text) if text[:64].lstrip()[:4].lower() == "move" else None
    if found is None:
        return None
    name, count = found["name"], found["count"]
    name = name[1:-1].replace('""', '"') if name[0] == '"' else name.lower()
    return name, int(count) if count.isdigit() else 0


class Skipped(Outbox):
    """Takes what the rows of a portal would be sent by: they are counted, and what the client has to hear in
    any case is passed on to ``inner``."""

    __slots__ = ("_inner", "_rested_at", "failed", "rows")

    def __init__(self, inner: Outbox) -> None:
        self._inner = inner
        self._rested_at = 0
        self.rows = 0
        self.failed = False

    @property
    def full(self) -> bool:
        return self.rows - self._rested_at >= PIECE_ROWS or self._inner.full

    def skip(self, rows: int) -> None:
        """Count rows that need not be written for it."""
        self.rows += rows

    def add(self, data: Bytes) -> None:
        view, at = memoryview(data), 0
        while at < len(view):
            end = at + 1 + int.from_bytes(view[at + 1 : at + 5])
            kind = view[at]
            self.rows += kind == Back.DATA_ROW
            self.failed = self.failed or kind == Back.ERROR
            if kind in _PASSED:
                self._inner.add(bytes(view[at:end]))
            at = end

    def flush(self) -> None:
        self._inner.flush()

    def soon(self) -> None:
        self._inner.soon()

    async def room(self) -> None:
        """Let others have their turn, too."""
        self._rested_at = self.rows
        await asyncio.sleep(0)
        await self._inner.room()

    async def drain(self) -> None:
        await self._inner.drain()
