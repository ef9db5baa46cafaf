"""An answer on its way to the client: pulled, encoded a slice at a time, written, and waited for."""

from typing import TYPE_CHECKING, cast

from queryflux.frontends.mysql.answers import Table
from queryflux.frontends.mysql.encoding import EncodingThreads
from queryflux.frontends.mysql.exchange import Exchange
from queryflux.model.endings import EndReason
from queryflux.model.errors import InternalError
from queryflux.pipeline.face import Query
from queryflux.results.answer import Batches, Done, Frames
from queryflux.wire.mysql import replies

if TYPE_CHECKING:
    from queryflux.wire.mysql.rows import Batch, RowEncoder


class ResultWriter:
    """Writes answers of one connection. ``deprecate_eof`` is what the client can do."""

    def __init__(self, exchange: Exchange, threads: EncodingThreads, *, deprecate_eof: bool) -> None:
        self._exchange = exchange
        self._threads = threads
        self._deprecate_eof = deprecate_eof

    def table(self, table: Table, status: int, *, binary: bool) -> int:
        """Queue a table of the door's own; returns the number of its rows."""
        header = replies.result_header(table.columns, status, deprecate_eof=self._deprecate_eof)
        if binary:
            rows = [replies.binary_row(row, table.columns) for row in table.rows]
        else:
            rows = [replies.text_row(row) for row in table.rows]
        self._exchange.add(*header, *rows, self._end(status))
        return len(rows)

    def _end(self, status: int) -> bytes:
        return replies.result_end(status, deprecate_eof=self._deprecate_eof)

    def end(self, status: int) -> None:
        """Queue what stands after the last row."""
        self._exchange.add(self._end(status))

    async def rows(self, query: Query, answer: Batches, status: int, *, binary: bool, limit: int) -> int:
        """Send the columns and rows of an answer, up to ``limit`` rows, all but its end; returns how many.

        Raises QueryFluxError, after which an ERR packet is all that may follow; ConnectionError.
        """
        from queryflux.wire.mysql.rows import RowEncoder

        encoder = RowEncoder(answer.schema, binary=binary)
        exchange = self._exchange
        exchange.add(*replies.result_header(encoder.columns, status, deprecate_eof=self._deprecate_eof))
        sent = 0
        while (part := await query.next()) is not None:
            batch = cast("Batch", part)
            if sent + batch.num_rows > limit:
                batch = batch.slice(0, limit - sent)
            sent += batch.num_rows
            for piece in encoder.slices(batch):
                await self._piece(encoder, piece)
            if sent >= limit:
                await query.close(EndReason.COMPLETED)
                break
        return sent

    async def _piece(self, encoder: "RowEncoder", piece: "Batch") -> None:
        sequence = self._exchange.codec.sequence
        if encoder.is_small(piece):
            data, sequence = encoder.encode(piece, sequence)
        else:
            data, sequence = await self._threads.run(encoder.encode, piece, sequence)
        self._exchange.add_packets(data, sequence)
        if self._exchange.full:
            await self._exchange.flush()


def expect_rows(answer: Batches | Done | Frames) -> Batches | Done:
    """An answer that can be encoded. Raises InternalError for frames of another protocol."""
    if isinstance(answer, Frames):
        raise InternalError("the engine answered in another protocol than the client's")
    return answer
