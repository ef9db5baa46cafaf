"""Pages of rows that are encoded here, from the batches of an engine of another protocol."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from queryflux.pipeline.face import Query
from queryflux.results.answer import Batches

if TYPE_CHECKING:
    from queryflux.wire.trino.rows import Batch

PAGE_BYTES = 1 << 20
"""A page is closed once its data is this large, as Trino's are (protocol.v1, target result size)."""
_INLINE_VALUES = 4096
"""Fewer values than this are encoded on the loop; more go to a thread."""

Encode = Callable[..., Awaitable[bytes]]


class RowPages:
    """The rows of one answer. ``columns`` describes them, ``rows`` says how many were handed out."""

    __slots__ = ("_encode", "_encoder", "_query", "_rest", "columns", "rows")

    def __init__(self, answer: Batches, query: Query, encode: Encode) -> None:
        """``encode`` runs a function in the door's own thread."""
        from queryflux.wire.trino.rows import RowEncoder

        self._query = query
        self._encode = encode
        self._encoder = RowEncoder(answer.schema)
        self._rest: Batch | None = None
        self.columns = self._encoder.columns
        self.rows = 0

    async def fill(self) -> tuple[list[bytes], bool]:
        """The data of the next page, in parts; whether it is the last one."""
        parts: list[bytes] = []
        size = 0
        while size < PAGE_BYTES:
            batch = await self._take(PAGE_BYTES - size)
            if batch is None:
                break
            part = await self._encoded(batch)
            if batch.num_rows:
                self.rows += batch.num_rows
                parts.append(part)
                size += len(part) + 1
        return parts, size < PAGE_BYTES

    async def _take(self, room: int) -> "Batch | None":
        """As many rows as fit ``room`` bytes, from what was left over or from the engine."""
        batch, self._rest = self._rest, None
        if batch is None:
            batch = cast("Batch | None", await self._query.next())
        if batch is None:
            return None
        batch, self._rest = self._encoder.split(batch, room)
        return batch

    async def _encoded(self, batch: "Batch") -> bytes:
        if batch.num_rows * batch.num_columns <= _INLINE_VALUES:
            return self._encoder.encode(batch)
        return await self._encode(self._encoder.encode, batch)
