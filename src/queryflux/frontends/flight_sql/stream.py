"""A result on its way to one DoGet: pulled on the loop, iterated in a gRPC thread."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import pyarrow as pa
import pyarrow.flight as flight

from queryflux.frontends.flight_sql.bridge import Bridge
from queryflux.frontends.flight_sql.errors import to_status
from queryflux.frontends.flight_sql.plain import plain_batch, plain_schema
from queryflux.model.errors import InternalError, QueryFluxError
from queryflux.pipeline.face import Query
from queryflux.results.answer import Answer, Batches, Done

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""ADBC's client refuses messages over 16 MiB unless told otherwise."""


class Stream(Protocol):
    """Batches with one schema, asked for on the loop."""

    schema: pa.Schema

    async def next(self) -> pa.RecordBatch | None:
        """The next batch, None at the end. Raises QueryFluxError."""

    async def close(self) -> None:
        """End it. May be called twice."""


class QueryStream:
    """The answer of a query; ``after`` is awaited once when it has ended, however it ended."""

    def __init__(self, query: Query, answer: Answer, after: Callable[[], Awaitable[None]]) -> None:
        self.done = answer if isinstance(answer, Done) else None
        self._as_it_comes = True
        if self.done is not None:
            self.schema = pa.schema([])
        elif isinstance(answer, Batches):
            self.schema = plain_schema(answer.schema)
            self._as_it_comes = self.schema is answer.schema
        else:
            raise InternalError("an engine answered in a protocol that Flight SQL clients do not speak")
        self._query = query
        self._after: Callable[[], Awaitable[None]] | None = after

    async def next(self) -> pa.RecordBatch | None:
        part = await self._query.next() if self.done is None else None
        assert part is None or isinstance(part, pa.RecordBatch)
        if part is None:
            await self.close()
        return part if part is None or self._as_it_comes else plain_batch(part, self.schema)

    async def close(self) -> None:
        after, self._after = self._after, None
        try:
            await self._query.close()
        finally:
            if after is not None:
                await after()


class Opened:
    """One DoGet, from the ticket to the last row: made in its thread, filled on the loop.

    Whatever happens in between, ``close`` ends it: a query that waits or runs is cancelled.
    """

    def __init__(self) -> None:
        self.owner = ""
        self.query: Query | None = None
        self.stream: Stream | None = None
        self.on_end: Callable[[], None] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns; known once there is a stream."""
        assert self.stream is not None
        return self.stream.schema

    async def next(self) -> pa.RecordBatch | None:
        """The next batch, None at the end. Raises QueryFluxError; it has then ended."""
        assert self.stream is not None
        try:
            batch = await self.stream.next()
        except QueryFluxError:
            await self.close()
            raise
        if batch is None:
            await self.close()
        return batch

    async def close(self) -> None:
        """End it. May be called twice, and before there is a stream."""
        try:
            if self.stream is not None:
                await self.stream.close()
            elif self.query is not None:
                await self.query.close()
        finally:
            on_end, self.on_end = self.on_end, None
            if on_end is not None:
                on_end()


class Pull:
    """What pyarrow iterates over: one batch is asked for when the last one has been taken by the client.

    pyarrow lets go of it when the call ends, also when the client vanished, and that ends the query.
    """

    def __init__(self, stream: Opened, bridge: Bridge, gone: Callable[[], bool]) -> None:
        self._stream = stream
        self._bridge = bridge
        self._gone = gone
        self._ready: deque[pa.RecordBatch] = deque()
        self._open = True

    def __iter__(self) -> "Pull":
        return self

    def __next__(self) -> pa.RecordBatch:
        while not self._ready:
            try:
                batch = self._bridge.call(self._stream.next(), self._gone)
            except QueryFluxError as error:
                self.close()
                raise to_status(error) from None
            except BaseException:
                self.close()
                raise flight.FlightInternalError("internal error") from None
            if batch is None:
                self.close()
                raise StopIteration
            self._ready.extend(pieces(batch))
        return self._ready.popleft()

    def close(self) -> None:
        """End the query if it has not ended."""
        if self._open:
            self._open = False
            self._ready.clear()
            self._bridge.post(self._stream.close())

    def __del__(self) -> None:
        self.close()


def pieces(batch: pa.RecordBatch, limit: int = MAX_MESSAGE_BYTES) -> list[pa.RecordBatch]:
    """A batch in parts of at most ``limit`` bytes, as far as whole rows allow; slices, not copies."""
    if batch.num_rows <= 1 or batch.nbytes <= limit:
        return [batch]
    half = batch.num_rows // 2
    return pieces(batch.slice(0, half), limit) + pieces(batch.slice(half), limit)
