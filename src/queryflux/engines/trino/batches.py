"""A Trino result as Arrow batches: one for each page that has rows."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from queryflux.engines.trino.errors import translate
from queryflux.engines.trino.pages import PageWithRows, decode_page_with_rows
from queryflux.engines.trino.statement import Ended, TrinoStatement
from queryflux.model.errors import EngineConnectionLost, QueryCancelled, QueryFluxError
from queryflux.results.answer import Batches, EngineStats

if TYPE_CHECKING:
    import pyarrow as pa

    from queryflux.engines.trino.columns import Columns

DECODED_ON_THE_LOOP = 32 * 1024
"""Bytes of rows that are decoded at once; more goes to a thread."""

Decode = Callable[["Columns", msgspec.Raw], Awaitable["pa.RecordBatch"]]


def read_page(statement: TrinoStatement, body: bytes, sql: str, stats: EngineStats) -> PageWithRows:
    """Look into a page and note where the next one is. Raises EngineConnectionLost when it is none, and what
    the page says went wrong."""
    try:
        page = decode_page_with_rows(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineConnectionLost(f"Trino answered with what is no page: {error}") from error
    statement.next_uri = page.next_uri
    statement.ended = page.next_uri is None
    page.fill(stats)
    if page.error is not None:
        statement.ended = True
        raise translate(page.error, sql)
    return page


class TrinoBatches(Batches):
    """Begins with the page in which the columns appeared."""

    def __init__(
        self,
        statement: TrinoStatement,
        columns: "Columns",
        first: PageWithRows,
        sql: str,
        stats: EngineStats,
        decode: Decode,
        ended: Ended,
    ) -> None:
        self.schema = columns.schema
        self.stats = stats
        self._statement = statement
        self._columns = columns
        self._page: PageWithRows | None = first
        self._sql = sql
        self._decode = decode
        self._ended: Ended | None = ended

    async def next(self) -> "pa.RecordBatch | None":
        try:
            while True:
                if self._statement.cancelled:
                    raise QueryCancelled("the query was cancelled")
                page, self._page = self._page, None
                if page is None:
                    if self._statement.ended:
                        self._over(None)
                        return None
                    response = await self._statement.get()
                    page = read_page(self._statement, response.body, self._sql, self.stats)
                if bytes(page.data):
                    batch = await self._decode(self._columns, page.data)
                    if batch.num_rows:
                        return batch
        except QueryFluxError as error:
            await self._statement.stop()
            self._over(error)
            raise

    def _over(self, failure: Exception | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(failure or self._statement.why_ended())

    async def close(self) -> None:
        self._page = None
        await self._statement.stop()
        self._over(None)
