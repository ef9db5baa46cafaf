"""Arrow batches on their way to a client: pulled one at a time, encoded slice by slice.

Small pieces are encoded where we are; large ones in a thread of the stream's own, while the loop serves
others and the engine makes the next batch. At most one batch is read ahead, and none behind a row limit.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from queryflux.frontends.postgres.moving import Skipped
from queryflux.frontends.postgres.outbox import Bytes, Outbox
from queryflux.model.endings import EndReason
from queryflux.pipeline.face import Query
from queryflux.runtime.threads import LaneThread

if TYPE_CHECKING:
    from queryflux.wire.postgres.rows import Batch

INLINE_VALUES = 4_000
"""Values that are encoded on the loop: about a millisecond."""
READ_AHEAD_ROWS = 4_000


class Encoder(Protocol):
    """What wire.postgres.rows.RowEncoder is to us: importing it loads pyarrow."""

    description: bytes
    columns: int

    def rows_per_slice(self, batch: "Batch") -> int:
        """Rows of ``batch`` that make a good piece of work."""

    def encode(self, batch: "Batch") -> Bytes:
        """The DataRow messages of ``batch``."""


class RowStream:
    """The rows of one query. ``close`` in the end, whatever happened."""

    def __init__(self, query: Query, encoder: Encoder) -> None:
        self.query = query
        self.encoder = encoder
        self._batch: Batch | None = None
        self._at = 0
        self._ahead: asyncio.Task[object] | None = None
        self._lane: LaneThread | None = None
        self._held: list[Batch] | None = None
        self.finished = False

    async def send(self, outbox: Outbox, limit: int = 0) -> int:
        """Write up to ``limit`` rows (0: all), or skip them, and give their number; ``finished`` tells
        whether that was all. A result that ends exactly at the limit is not known to have ended, as in
        PostgreSQL."""
        sent = 0
        skipped = outbox if isinstance(outbox, Skipped) else None
        while not limit or sent < limit:
            batch = self._batch
            if batch is None:
                batch = await self._next(outbox, ahead=not limit)
                if batch is None:
                    self.finished = True
                    await self.close()
                    break
            count = batch.num_rows - self._at
            if skipped is None:
                count = min(self.encoder.rows_per_slice(batch), count)
            if limit:
                count = min(count, limit - sent)
            if skipped is None:
                outbox.add(await self._encode(batch.slice(self._at, count)))
            else:
                skipped.skip(count)
            sent += count
            self._at += count
            if self._at >= batch.num_rows:
                self._batch = None
            await outbox.room()
        return sent

    async def _next(self, outbox: Outbox, *, ahead: bool) -> "Batch | None":
        while True:
            if self._held is not None:
                batch = self._held.pop(0) if self._held else None
            elif self._ahead is not None:
                outbox.soon()
                task, self._ahead = self._ahead, None
                batch = cast("Batch | None", await task)
            else:
                outbox.soon()
                batch = cast("Batch | None", await self.query.next())
            if batch is None:
                return None
            if batch.num_rows:
                break
        if ahead and self._held is None and batch.num_rows >= READ_AHEAD_ROWS:
            self._ahead = asyncio.ensure_future(self._pull())
        self._batch, self._at = batch, 0
        return batch

    async def _pull(self) -> object:
        return await self.query.next()

    async def _encode(self, piece: "Batch") -> Bytes:
        if piece.num_rows * self.encoder.columns <= INLINE_VALUES:
            return self.encoder.encode(piece)
        if self._lane is None:
            self._lane = LaneThread("postgres-rows")
        return await self._lane.run(self.encoder.encode, piece)

    async def hold(self, take: Callable[[int], None]) -> None:
        """Take what is left into memory, so that the conversation is free for another query. ``take`` is told
        of the bytes of each batch, and raises when it is too much; the stream is then broken."""
        if self._held is not None or self.finished:
            return
        held: list[Batch] = []
        if self._batch is not None:
            take(self._batch.nbytes)
        while (batch := cast("Batch | None", await self.query.next())) is not None:
            take(batch.nbytes)
            held.append(batch)
        self._held = held
        await self._free_lane()

    async def close(self) -> None:
        """Free the thread and what was read ahead; a query not read to its end is ended by its owner."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if not ahead.done():
                await self.query.close(EndReason.CLIENT_GONE)
            await asyncio.gather(ahead, return_exceptions=True)
        await self._free_lane()
        self._batch = None
        self._held = None if self._held is None else []

    async def _free_lane(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            await lane.join()
